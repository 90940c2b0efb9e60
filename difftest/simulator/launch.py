"""The one way in: run a kernel on a machine and get its outputs and its trace."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

from difftest.simulator.baton import ProgramStopped
from difftest.simulator.core import Core, Rank, is_running
from difftest.simulator.dtypes import Array, as_dtype, as_nki_dtype
from difftest.simulator.errors import KernelError, KernelExit, NkiError
from difftest.simulator.exact.run import ExactOutput, ExactRun, ExactSettings, exact_run
from difftest.simulator.exact.shadow import Shadow
from difftest.simulator.frontend import foreign
from difftest.simulator.frontend.classic.bytecode import explained
from difftest.simulator.frontend.classic.memories import forces_auto_alloc, note_mixed
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.grid import grid_shape, physical_cores
from difftest.simulator.frontend.kernel import Kernel, as_kernel, outputs_of
from difftest.simulator.frontend.nki.kernel import (
    NkiKernel,
    as_nki_kernel,
    is_nki,
    run_side_by_side,
    warn_of_private,
)
from difftest.simulator.frontend.nki.levels import known_level
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.fuse import fuse_moves
from difftest.simulator.inputs import Arguments
from difftest.simulator.machine import MACHINES, Machine
from difftest.simulator.oracle.judge import Oracle
from difftest.simulator.ordering import FORWARD, Order
from difftest.simulator.outputs import as_arrays, flatten, note_outputs
from difftest.simulator.strictness import Strictness, judging, said
from difftest.simulator.threads import one_thread
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space, Trace
from difftest.simulator.witness import Testimony, witness


@dataclass(frozen=True)
class LaunchResult:
    """What a launch gives back.

    Attributes
    ----------
    outputs : the returned tensors as arrays, in order; empty if the kernel returned None.
    unwritten : for each output, None if all of it was written, else a bool array, True where
        nothing was (those elements are poison: NaN, or 0xA5 bytes).
    trace : the instructions in program order; empty if they were not recorded.
    exact : what the kernel computes where nothing rounds, and how far rounding may lead from it;
        None if it was not asked for.
    written : the caller's arrays that an instruction wrote to, whatever the values.
    notes : the broken rules that were warnings and no errors (see
        :mod:`difftest.simulator.strictness`), once for each line and rule, in order.
    """

    outputs: tuple[Array, ...]
    unwritten: tuple[Array | None, ...]
    trace: Trace
    exact: ExactRun | None = None
    notes: tuple[NkiError, ...] = ()
    written: tuple[Array, ...] = ()


class Finished(NamedTuple):
    """A kernel that has run, before the caller's arrays change."""

    core: Core
    arguments: Arguments
    outputs: tuple[tuple[Array, Array | None], ...]
    exact: ExactRun | None = None

    def trace(self) -> Trace:
        """What it did, each result and its move to its destination as one; made once."""
        trace, moved = self.core.trace, self.core.moved
        trace.events = fuse_moves(trace.events, moved)
        moved.clear()
        trace.allocations = [a for a in trace.allocations if not a.is_temporary]
        return trace

    def result(self) -> LaunchResult:
        """Give mutable arguments their new values; what the launch gives back."""
        self.arguments.copy_back()
        return LaunchResult(
            tuple(array for array, _ in self.outputs),
            tuple(gaps for _, gaps in self.outputs),
            self.trace(),
            self.exact,
            said(),
            tuple(one for one, tensor in self.arguments.written if tensor.storage.is_destination),
        )

    def everything(self) -> tuple[Array, ...]:
        """What the kernel returned, then what it wrote to arguments."""
        returned = tuple(array for array, _ in self.outputs)
        return returned + tuple(data for _, data in self.arguments.copies)

    def everything_exact(self) -> tuple[ExactOutput, ...]:
        """The same of the exact run; empty if there is none that has a meaning."""
        made = self.exact
        if made is None or not made.has_meaning:
            return ()
        return (*made.outputs, *(output for _, output in made.arguments))


def launch(
    kernel: Kernel | NkiKernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grid: tuple[int, ...] = (),
    machine: Machine | None = None,
    record: bool = True,
    plain: bool = False,
    level: str | None = None,
    strictness: str | Strictness | None = None,
    exact: bool | ExactSettings = False,
) -> LaunchResult:
    """Run ``kernel`` once for each instance of ``grid``.

    The instances run one after the other; in today's dialect they take turns where they share
    memory or meet: see :mod:`difftest.simulator.baton`.

    Parameters
    ----------
    kernel : a function decorated with the embedded ``nki.jit`` of either dialect, or a plain
        function, whose dialect is that of the functions it calls.
    args, kwargs : NumPy arrays, torch tensors and JAX arrays become HBM tensors; everything else
        is passed as it is.
    grid : the SPMD grid, as in ``kernel[4, 2]``.
    machine : the NeuronCore to simulate; by default the kernel's own (the ``platform_target`` of
        its ``nki.jit``, trn2 if it names none).
    record : whether to keep a trace.
    plain : whether an oracle follows the launch, slowly: it works out what each instruction
        literally means, and the outputs are its own. Where it parts from the simulator it raises
        :class:`OracleError`.
    level : of today's dialect, "0.3" to "0.7": names, arguments and methods that it does not have
        raise. By default the kernel's own (``embedded(level=...)``), else all exist, and those
        that have ended warn.
    strictness : "documented", "seen" or "relaxed": which broken rules are warnings and not errors.
        By default what :func:`difftest.simulator.strictness` chose, else "seen".
    exact : whether to keep, beside what the machine computes, what it would without rounding.

    Raises
    ------
    NkiError : the kernel breaks a rule of NKI or of the hardware.
    KernelExit : the kernel calls `sys.exit`, or skips a test.
    AssertionError, and whatever else the kernel itself raises.
    """
    _check_call(args, kwargs, machine)
    with judging(strictness):
        return witnessed(
            kernel,
            args,
            kwargs,
            grid=grid,
            machine=machine,
            record=record,
            plain=plain,
            level=level,
            exact=exact,
        ).result()


def witnessed(
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    record: bool,
    plain: bool = False,
    exact: bool | ExactSettings = False,
    **options: Any,
) -> Finished:
    """Run a kernel as :func:`run_kernel` does, and tell the witness, if there is one."""
    told = witness()
    if told is None:
        return run_kernel(kernel, args, kwargs, record=record, plain=plain, exact=exact, **options)
    finished = run_kernel(kernel, args, kwargs, record=True, plain=plain, exact=exact, **options)

    options |= {"record": False, "drawn": finished.core.drawn}

    def again(order: Order) -> tuple[Array, ...]:
        return run_kernel(kernel, args, kwargs, order=order, **options).everything()

    def exactly(order: Order) -> tuple[ExactOutput, ...]:
        return run_kernel(
            kernel, args, kwargs, order=order, exact=True, **options
        ).everything_exact()

    outputs = finished.everything()
    machine = finished.core.machine
    told(Testimony(finished.trace(), machine, outputs, again, exactly, kernel=kernel))
    return finished


def _check_call(args: Any, kwargs: Any, machine: Any) -> None:
    """What a launch is given can be asked further.

    Raises
    ------
    KernelError : an argument of it is of another kind.
    """
    machines = f"one of {', '.join(f'MACHINES[{name!r}]' for name in MACHINES)}"
    accepted: tuple[tuple[str, Any, tuple[type, ...], str, str], ...] = (
        ("args", args, (Sequence,), "a sequence of arguments", "launch(kernel, [array])"),
        ("kwargs", kwargs, (Mapping, NoneType), "a mapping", "launch(kernel, args, {'n': 1})"),
        ("machine", machine, (Machine, NoneType), "a Machine", machines),
    )
    for name, given, kinds, kind, remedy in accepted:
        if not isinstance(given, kinds):
            raise KernelError(
                f"launch takes {kind} as {name}",
                happened=f"launch was called with {name}={given!r:.60}",
                received=f"{name} of type {type(given).__name__}",
                remedy=remedy,
            )


def run_kernel(
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    grid: tuple[int, ...] = (),
    machine: Machine | None = None,
    record: bool = True,
    plain: bool = False,
    level: str | None = None,
    rank: Rank | None = None,
    exact: bool | ExactSettings = False,
    order: Order = FORWARD,
    drawn: Mapping[Any, Any] | None = None,
) -> Finished:
    """Run a kernel as :func:`launch` does, up to where the caller's arrays change.

    ``rank`` is its place among several launches that talk to each other; ``order`` that of what
    claims to have none; ``drawn`` the random numbers of a launch in another order.
    """
    if is_running():
        raise KernelError(
            "a kernel is launched from outside kernels",
            happened="a kernel launched another one",
            received="a launch inside a running kernel",
            remedy="call the other kernel directly, without a grid",
        )
    target, tensor = _target(kernel)
    function = target.function
    grid = grid_shape(grid) or target.grid
    chosen = target.machine if machine is None else machine
    core = Core(chosen, grid, record=record, tile=tensor)
    own = target.level if isinstance(target, NkiKernel) else None
    core.rank, core.level = rank, known_level(level) or own
    core.order = order
    core.drawn = dict(drawn or {})
    if exact:
        core.shadow = Shadow(exact if isinstance(exact, ExactSettings) else ExactSettings())
    core.auto_alloc = forces_auto_alloc(function)
    core.trace.kernel = getattr(function, "__qualname__", "")
    core.trace.dialect = "nki" if tensor is NkiTensor else "classic"
    side_by_side = tensor is NkiTensor and math.prod(grid) > 1
    core.trace.cores = tuple(range(math.prod(grid))) if side_by_side else physical_cores(grid)
    if plain:
        core.oracle = Oracle()
        core.tile = core.kind(tensor)
    with one_thread(), core.running():
        if isinstance(target, NkiKernel):
            target.check_target()
        bound = _bind(function, args, dict(kwargs or {}))
        known = as_nki_dtype if tensor is NkiTensor else as_dtype
        arguments = Arguments(
            functools.partial(_argument, core), function, known, by_reference=target.by_reference
        )
        values = {name: arguments.convert(name, value) for name, value in bound.arguments.items()}
        call = inspect.BoundArguments(bound.signature, values)
        kernel_call = functools.partial(_call, function, *call.args, **call.kwargs)
        if side_by_side or (order.interleaved and math.prod(grid) > 1):
            returned = run_side_by_side(core, kernel_call)
        else:
            returned = None
            programs = [*itertools.product(*map(range, grid))]
            for program in programs if order.loop else order.arranged(programs):
                core.start_program(program)
                with explained() if tensor is Tensor else contextlib.nullcontext():
                    returned = kernel_call()
            core.check_capacity()
            if tensor is Tensor:
                note_mixed(core)
        leaves = flatten(returned)
        if tensor is NkiTensor:
            warn_of_private(leaves)
        core.check_bodies(leaves)
        outputs = as_arrays(leaves)
        note_outputs(leaves, outputs, [tensor for _, tensor in arguments.written])
        if core.oracle is not None:
            outputs = core.oracle.outputs(leaves, outputs)
            for (_, data), (_, tensor) in zip(arguments.copies, arguments.written, strict=True):
                data[...] = core.oracle.array(tensor)
        made = None
        if core.shadow is not None:
            made = exact_run(core.shadow, leaves, arguments.written)
    return Finished(core, arguments, outputs, made)


def _call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a kernel returns; what would end its caller's process or test is an error of it."""
    try:
        return function(*args, **kwargs)
    except (Exception, KeyboardInterrupt, ProgramStopped):
        raise
    except BaseException as error:
        raise KernelExit(error).with_traceback(error.__traceback__) from None


def call_nki(kernel: NkiKernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A call of a kernel of today's dialect from outside: its outputs, as its arguments are."""
    finished = witnessed(kernel, args, kwargs, record=False)
    foreign.check_outputs([args, kwargs], [array for array, _ in finished.outputs])
    return foreign.like([args, kwargs], outputs_of(finished.result()))


_NKI = NkiTensor.__module__.rpartition(".")[0]
"""The package of the newer dialect's names."""


def _target(kernel: Any) -> tuple[Kernel | NkiKernel, type[Tile]]:
    """A kernel of either dialect, and what its tensors are."""
    if is_nki(kernel, _NKI):
        return as_nki_kernel(kernel), NkiTensor
    return as_kernel(kernel), Tensor


def _bind(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise KernelError(
            f"{function.__name__} takes {signature}",
            happened=f"{function.__name__} was called with arguments that do not fit it",
            received=f"arguments that do not fit: {error}",
        ) from None
    bound.apply_defaults()
    return bound


def _argument(core: Core, array: Array, name: str, mutable: bool) -> Tile:
    """An array as an HBM tensor; it is not copied.

    In today's dialect it lies in ``nl.hbm``, of two programs in ``nl.shared_hbm``
    (``nki_simulator.rst`` at v2.32.0); in the classic one in ``nl.shared_hbm``.
    """
    if core.shadow is not None:
        core.shadow.contract.allow(array.dtype)
    alone = core.trace.dialect == "nki" and math.prod(core.grid) == 1
    space = Space.PRIVATE_HBM if alone else Space.SHARED_HBM
    made: Tile = core.tile.whole(core.adopt(array, name=name, mutable=mutable, space=space))
    return made
