"""Kernels as objects: what ``@nki.jit`` makes of a function, and ``nki.simulate``.

Of a kernel on two cores: "Logical NeuronCore configuration" and the stubs ``nisa.core_barrier`` and
``nisa.sendrecv`` at v2.32.0.
"""

from __future__ import annotations

import functools
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from difftest.simulator.baton import Baton
from difftest.simulator.core import Core, is_running
from difftest.simulator.errors import KernelError, Location, kernel_location, not_modelled
from difftest.simulator.frontend.kernel import Kernel, function_in, launching, need_function
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.index import as_integers
from difftest.simulator.machine import MACHINES, TRN1, TRN2, TRN3, Machine
from difftest.simulator.ordering import FORWARD
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
"""AWS's environment variable that names the machine (stub of ``nki.jit``, v2.32.0)."""
TARGETS = {
    "trn1": TRN1,
    "inf2": TRN1,
    "gen2": TRN1,
    "trn2": TRN2,
    "gen3": TRN2,
    "trn3": TRN3,
    "gen4": TRN3,
}
PARAMETER = "platform_target"
"""The parameter of ``nki.jit`` that named it up to NKI 0.2 (migration guide, v2.32.0)."""
DEFAULT_MACHINE = TRN2
"""Where nothing names one: the machine that the timing model knows, and whose limits hold on
later ones. AWS's own simulator takes trn3 then."""
MOST_CORES = 2
"""Cores that one kernel runs on: the degrees of a logical NeuronCore are 1 and 2."""

_HINTS = ("debug", "debug_kernel", "enable_out_of_bound_checks", "experimental_flags")
_IGNORED = ("mode", "show_compiler_tb", "additional_compile_opt", "opt_level", "schedule", *_HINTS)
"""Keywords of ``nki.jit`` that tell a compiler or a framework something, and change no value."""


class Target(NamedTuple):
    """The machine that ``nki.jit`` was given, as before NKI 0.3, and the kernel's line."""

    name: str
    location: Location | None


class NkiKernel:
    """A kernel of today's dialect.

    Inside another kernel, calling it inlines it; outside, with NumPy arrays, it is simulated.
    ``kernel[n]`` runs it on ``n`` cores.
    """

    by_reference = True
    """Arguments may be written: they are updated in place."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        grid: tuple[int, ...] = (),
        level: str | None = None,
        target: Target | None = None,
    ) -> None:
        self.function = function
        self.grid = grid
        self.level = level
        """The level of NKI whose modules made the kernel; None for all of them."""
        self.target = target
        functools.update_wrapper(self, function)

    @property
    def machine(self) -> Machine:
        """The machine that the environment names, or ``nki.jit`` did, or the default."""
        named = os.environ.get(TARGET_VARIABLE)
        if not named and self.target is not None:
            return machine_of(self.target.name, PARAMETER, self.target.location)
        return machine_of(named)

    def check_target(self) -> None:
        """Check a ``platform_target`` against the level of the launch, which runs."""
        if self.target is not None:
            check_level("nki.jit with platform_target", self.target.location)

    def __getitem__(self, key: Any) -> NkiKernel:
        grid = as_integers(key, "a launch grid with")
        if len(grid) != 1 or not 1 <= grid[0] <= MOST_CORES:
            raise KernelError(
                "kernel[n] names the cores of one logical NeuronCore",
                happened=f"a kernel was launched on the grid [{', '.join(map(str, grid))}]",
                received=f"{self.function.__name__}[{', '.join(map(str, grid))}]",
                limit="kernel[1] or kernel[2]",
                remedy="write a loop over larger grids inside the kernel",
            )
        return NkiKernel(self.function, grid=grid, level=self.level, target=self.target)

    def with_schedule(self, schedule: Any) -> NkiKernel:
        """The same kernel: a schedule changes no value."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_running():
            return launching().call_nki(self, args, kwargs)
        if self.grid:
            raise KernelError(
                "a kernel with a grid is not called inside another kernel",
                happened="a kernel called another one with a grid",
                received=repr(self),
                remedy="call it without the grid",
            )
        self.check_target()
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        grid = f"{list(self.grid)}" if self.grid else ""
        return f"<NKI kernel {self.function.__module__}.{self.function.__qualname__}{grid}>"


def machine_of(
    target: str | None, where: str = TARGET_VARIABLE, location: Location | None = None
) -> Machine:
    """The machine that AWS's environment variable names; the default for None or empty.

    ``where`` and ``location`` are the name of another thing that names it, and the kernel's line.

    Raises
    ------
    KernelError : there is no such machine here.
    """
    if not target:
        return DEFAULT_MACHINE
    machine = TARGETS.get(str(target).lower())
    if machine is None:
        raise KernelError(
            f"{where} names a machine",
            happened=f"{where} is {target}, which is not modelled",
            received=f"{where}={target}",
            limit=f"{', '.join(TARGETS)}: {', '.join(MACHINES)} are modelled",
            location=location,
        )
    return machine


def as_nki_kernel(kernel: Any, level: str | None = None, target: Target | None = None) -> NkiKernel:
    """``kernel`` itself, or a plain function as one of a level and for a machine."""
    if isinstance(kernel, NkiKernel):
        return kernel
    return NkiKernel(need_function(kernel), level=level, target=target)


class Simulation:
    """``nki.simulate(kernel)``: called with arrays, it runs the kernel and returns arrays."""

    def __init__(self, kernel: NkiKernel) -> None:
        self.kernel = kernel

    def __getitem__(self, key: Any) -> Simulation:
        return Simulation(self.kernel[key])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)


@functools.cache
def functions_of(level: str | None) -> dict[str, Callable[..., Any]]:
    """``nki.jit`` and ``nki.simulate``, whose kernels are of a level of NKI; None for all."""

    def jit(fn: Any = None, **kwargs: Any) -> Any:
        """``@nki.jit``, ``@nki.jit(...)`` and ``nki.jit(function)``."""
        target = None
        for name, value in kwargs.items():
            if name == PARAMETER:
                target = Target(value, kernel_location())
            elif name not in _IGNORED:
                raise not_modelled(f"nki.jit's argument {name!r}", f"{name}={value!r}")
            if name == "mode":
                warnings.warn("nki.jit ignores mode= since NKI 0.3", stacklevel=2)
        made = functools.partial(as_nki_kernel, level=level, target=target)
        return made if fn is None else made(fn)

    def simulate(kernel: Any) -> Simulation:
        """``nki.simulate(kernel)(*arrays)``: NumPy arrays in and out; those written are updated.

        ``nki.simulate(kernel[2])`` and ``nki.simulate(kernel)[2]`` run it on two cores.
        """
        return Simulation(as_nki_kernel(kernel, level))

    return {"jit": jit, "simulate": simulate}


jit, simulate = functions_of(None).values()


def simulation_of(simulate: Callable[..., Any]) -> Callable[..., Any]:
    """``nki.simulator.simulate_kernel``, which vLLM's Neuron plugin calls, by ``nki.simulate``."""

    def simulate_kernel(
        func: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, _lnc: int = 1
    ) -> Any:
        """What ``nki.simulate(func)[_lnc](*args, **kwargs)`` returns."""
        simulation = simulate(func)
        chosen = simulation if _lnc == 1 else simulation[_lnc]
        return chosen(*args, **dict(kwargs or {}))

    return simulate_kernel


def warn_of_private(returned: Iterable[Any]) -> None:
    """Warn of returned tensors in private HBM, which AWS's compiler refuses since NKI 0.3."""
    for value in returned:
        if not isinstance(value, Tile) or value.space is not Space.PRIVATE_HBM:
            continue
        if value.storage.allocation.location is not None:  # an argument may be returned
            warnings.warn(
                f"a kernel returns {value!r}: the compiler rejects outputs that are not in "
                "nl.shared_hbm since NKI 0.3 (AWS's simulator does not)",
                stacklevel=3,
            )


def is_nki(kernel: Any, package: str) -> bool:
    """Whether a kernel is of this dialect: by its object, or by what its function calls.

    A function that names neither dialect is of that of the functions that it calls. ``package`` is
    the name of the package whose modules and functions are this dialect's.
    """
    return _is_nki(kernel, package, set()) is True


def _is_nki(value: Any, package: str, seen: set[FunctionType]) -> bool | None:
    """Whether a name's value is of this dialect, False of the other, None of neither."""
    named = _is_named_nki(value, package)
    function = None if named is not None else function_in(value)
    if function is None or function in seen:
        return named
    seen.add(function)
    used = [function.__globals__.get(name) for name in _names(function.__code__)]
    used += [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    found = {_is_named_nki(one, package) for one in used} - {None}
    found = found or {_is_nki(one, package, seen) for one in used} - {None}
    return True in found if found else None


def _is_named_nki(value: Any, package: str) -> bool | None:
    """The same, by where a value comes from alone."""
    if isinstance(value, (Kernel, NkiKernel)):
        return isinstance(value, NkiKernel)
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if f"{home}.".startswith((f"{package}.", "nki.")):
        return True
    other = (f"{package.rpartition('.')[0]}.", "neuronxcc.")
    return False if f"{home}.".startswith(other) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def run_side_by_side(core: Core, kernel: Callable[[], Any]) -> Any:
    """Run a kernel once for each instance of the launch's grid; what the last one returns.

    Each has on-chip memories of its own; HBM and the trace are those of ``core``. They take turns:
    see :mod:`difftest.simulator.baton`.

    Raises
    ------
    DeadlockError : they wait for each other. Whatever one of them raises ends the launch.
    """
    cores = [core.beside(program) for program in itertools.product(*map(range, core.grid))]
    names = [f"program {', '.join(map(str, one.program))}" for one in cores]
    order, first, seed = core.order, None, None
    if order.interleaved:
        seed = order.seed
    elif order.loop is None and order is not FORWARD:
        first = order.arranged(range(len(cores)))[0]
    baton = Baton(names, lambda before, after: cores[after].follow(cores[before]), first, seed)
    cores[first or 0].follow(core)
    for seat, one in enumerate(cores):
        one.baton, one.seat = baton, seat

    def instance(one: Core) -> Callable[[], Any]:
        def run() -> Any:
            with one.running():
                return kernel()

        return run

    returned = baton.run([instance(one) for one in cores])
    for one in cores:
        one.check_capacity()
    return returned[-1]
