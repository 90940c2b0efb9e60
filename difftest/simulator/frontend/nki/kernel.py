"""Kernels as objects: what ``@nki.jit`` makes of a function, and ``nki.simulate``."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar

from difftest.simulator.core import is_running
from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.index import as_integers
from difftest.simulator.machine import MACHINES, TRN1, TRN2, TRN3, Machine
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
DEFAULT_MACHINE = TRN2
"""Where nothing names one: the machine that the timing model knows, and whose limits hold on
later ones. AWS's own simulator takes trn3 then."""
MOST_CORES = 2
"""Cores that one kernel runs on: the degrees of a logical NeuronCore are 1 and 2."""

_HINTS = ("debug", "debug_kernel", "enable_out_of_bound_checks", "experimental_flags")
_IGNORED = ("mode", "show_compiler_tb", "additional_compile_opt", "opt_level", "schedule", *_HINTS)
"""Keywords of ``nki.jit`` that tell a compiler or a framework something, and change no value."""


class NkiKernel:
    """A kernel of today's dialect.

    Inside another kernel, calling it inlines it; outside, with NumPy arrays, it is simulated.
    ``kernel[n]`` runs it on ``n`` cores.
    """

    launcher: ClassVar[Callable[[NkiKernel, tuple[Any, ...], Mapping[str, Any]], Any]]
    """Runs a kernel from outside; :mod:`difftest.simulator.launch` plugs itself in here."""

    by_reference = True
    """Arguments may be written: they are updated in place."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        grid: tuple[int, ...] = (),
        level: str | None = None,
    ) -> None:
        self.function = function
        self.grid = grid
        self.level = level
        """The level of NKI whose modules made the kernel; None for all of them."""
        functools.update_wrapper(self, function)

    @property
    def machine(self) -> Machine:
        """The machine that the environment names, or the default."""
        return machine_of(os.environ.get(TARGET_VARIABLE))

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
        return NkiKernel(self.function, grid=grid, level=self.level)

    def with_schedule(self, schedule: Any) -> NkiKernel:
        """The same kernel: a schedule changes no value."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not is_running():
            return NkiKernel.launcher(self, args, kwargs)
        if self.grid:
            raise KernelError(
                "a kernel with a grid is not called inside another kernel",
                happened="a kernel called another one with a grid",
                received=repr(self),
                remedy="call it without the grid",
            )
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        grid = f"{list(self.grid)}" if self.grid else ""
        return f"<NKI kernel {self.function.__module__}.{self.function.__qualname__}{grid}>"


def machine_of(target: str | None) -> Machine:
    """The machine that AWS's environment variable names; the default for None or empty.

    Raises
    ------
    KernelError : there is no such machine here.
    """
    if not target:
        return DEFAULT_MACHINE
    machine = TARGETS.get(target.lower())
    if machine is None:
        raise KernelError(
            f"{TARGET_VARIABLE} names a machine",
            happened=f"{TARGET_VARIABLE} is {target}, which is not modelled",
            received=f"{TARGET_VARIABLE}={target}",
            limit=f"{', '.join(TARGETS)}: {', '.join(MACHINES)} are modelled",
        )
    return machine


def jit(fn: Any = None, **kwargs: Any) -> Any:
    """``@nki.jit``, ``@nki.jit(...)`` and ``nki.jit(function)``."""
    return _jit(fn, None, kwargs)


def _jit(fn: Any, level: str | None, kwargs: Mapping[str, Any]) -> Any:
    for name, value in kwargs.items():
        if name == "platform_target":
            raise KernelError(
                "nki.jit takes no platform_target since NKI 0.3",
                happened=f"nki.jit got platform_target={value!r:.40}",
                received=f"platform_target={value!r}",
                remedy=f"set the environment variable {TARGET_VARIABLE}={value}, or launch with "
                "machine=",
            )
        if name not in _IGNORED:
            raise not_modelled(f"nki.jit's argument {name!r}", f"{name}={value!r}")
        if name == "mode":
            warnings.warn("nki.jit ignores mode= since NKI 0.3", stacklevel=3)
    return functools.partial(as_nki_kernel, level=level) if fn is None else as_nki_kernel(fn, level)


def as_nki_kernel(kernel: Any, level: str | None = None) -> NkiKernel:
    """``kernel`` itself, or a plain function as one of a level."""
    if isinstance(kernel, NkiKernel):
        return kernel
    if callable(kernel):
        return NkiKernel(kernel, level=level)
    raise KernelError(
        "a kernel is a function",
        happened=f"something that cannot be called, {kernel!r:.40}, was to be a kernel",
        received=f"{type(kernel).__name__} {kernel!r:.80}",
    )


class Simulation:
    """``nki.simulate(kernel)``: called with arrays, it runs the kernel and returns arrays."""

    def __init__(self, kernel: NkiKernel) -> None:
        self.kernel = kernel

    def __getitem__(self, key: Any) -> Simulation:
        return Simulation(self.kernel[key])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)


def simulate(kernel: Any) -> Simulation:
    """``nki.simulate(kernel)(*arrays)``: NumPy arrays in and out; those written are updated.

    ``nki.simulate(kernel[2])`` and ``nki.simulate(kernel)[2]`` run it on two cores.
    """
    return Simulation(as_nki_kernel(kernel))


def functions_of(level: str | None) -> dict[str, Callable[..., Any]]:
    """``nki.jit`` and ``nki.simulate``, whose kernels are of a level of NKI."""
    if level is None:
        return {"jit": jit, "simulate": simulate}

    @functools.wraps(jit)
    def leveled_jit(fn: Any = None, **kwargs: Any) -> Any:
        return _jit(fn, level, kwargs)

    @functools.wraps(simulate)
    def leveled_simulate(kernel: Any) -> Simulation:
        return Simulation(as_nki_kernel(kernel, level))

    return {"jit": leveled_jit, "simulate": leveled_simulate}


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

    ``package`` is the name of the package whose modules and functions are the dialect's.
    """
    if isinstance(kernel, NkiKernel):
        return True
    function = getattr(kernel, "__wrapped__", kernel)
    if not isinstance(function, FunctionType):
        return False
    used = (function.__globals__.get(name) for name in _names(function.__code__))
    return any(_home(value).startswith(package) for value in used)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _home(value: object) -> str:
    """The module that a value is, or comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    return str(getattr(value, "__module__", ""))
