"""The entry point of the simulator: run a kernel on a machine; get its outputs and its trace."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from difftest.simulator.arrays import (
    Arguments,
    as_arrays,
    check_outputs,
    flatten,
    note_outputs,
    warn_of_private,
)
from difftest.simulator.core import Core, is_running
from difftest.simulator.dtypes import Array, as_dtype, as_nki_dtype
from difftest.simulator.errors import KernelExit, NkiError, guarded, hazards_reported
from difftest.simulator.follower import Follower, Followers
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.classic.memories import (
    FORCES_AUTO_ALLOC,
    SKIPS_MIDDLE_END,
    is_marked,
    note_mixed,
)
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.launchable import (
    Launchable,
    as_launchable,
    grid_shape,
    physical_cores,
)
from difftest.simulator.frontend.levels import known_level
from difftest.simulator.frontend.loops import explained
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.instructions.anomalies import Observer
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.instructions.gate import kept_calls
from difftest.simulator.launch_listeners import (
    TAPES,
    LaunchListener,
    LaunchRecord,
    current_listener,
)
from difftest.simulator.machine import MACHINES, Machine
from difftest.simulator.misuses import LAUNCH_IN_KERNEL
from difftest.simulator.program_scheduler import (
    FORWARD,
    ExecutionOrder,
    ProgramScheduler,
    ProgramStopped,
    Rank,
    YieldOnShared,
    one_thread,
)
from difftest.simulator.recording import EventRecorder, fuse_moves
from difftest.simulator.strictness import (
    Strictness,
    reported_violations,
    strictness_scope,
)
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Returned, Space, Trace
from difftest.support.annotations import signature_shown
from difftest.support.signature import function_name

if TYPE_CHECKING:
    from difftest.simulator.exact.run import ExactOutput, ExactRun, ExactSettings

_TRACE = "difftest_trace"
"""The attribute of an error with the trace of the launch that it ended."""
_LARGEST_HEAP_BLOCK = 2**25
"""The limit of glibc's M_MMAP_THRESHOLD on 64-bit systems, in bytes (mallopt(3))."""
_BLOCK_HEADER = 2**13
"""More bytes than an allocator adds to a block."""


@functools.cache
def keep_freed_memory() -> None:
    """Make glibc keep freed memory for later tensors, up to twice its largest heap block.

    Fresh pages cost as much as matrix products. glibc returns freed blocks above a threshold to the
    system. Freeing a block that came from the system raises this threshold to the block's size.
    Other allocators ignore the call.
    """
    np.empty(_LARGEST_HEAP_BLOCK - _BLOCK_HEADER, np.uint8)


class LaunchResult(NamedTuple):
    """The result of a launch.

    Attributes
    ----------
    outputs : the returned tensors as arrays, in order; empty if the kernel returned None.
    unwritten : for each output, None if it is fully written, else a bool array, True at unwritten
        elements (these are poison: NaN, or 0xA5 bytes).
    trace : the instructions in program order; empty if they were not recorded.
    exact : the kernel's results without rounding, with error bounds; None without ``exact=``.
    written : the caller's arrays that an instruction wrote to, even with equal values.
    returned : the caller's arrays whose tensors the kernel returned, written or not.
    origins : for each output, the caller's array if the output is all of it, else None.
    notes : the broken rules that were warnings instead of errors (see
        :mod:`difftest.simulator.strictness`), once for each line and rule, in order.
    """

    outputs: tuple[Array, ...]
    unwritten: tuple[Array | None, ...]
    trace: Trace
    exact: ExactRun | None = None
    notes: tuple[NkiError, ...] = ()
    written: tuple[Array, ...] = ()
    returned: tuple[Array, ...] = ()
    origins: tuple[Array | None, ...] = ()


class FinishedLaunch(NamedTuple):
    """A kernel that has run, before its results are in the caller's arrays."""

    core: Core
    arguments: Arguments
    outputs: tuple[tuple[Array, Array | None], ...]
    leaves: Sequence[Tile]
    exact: ExactRun | None = None

    def result(self) -> LaunchResult:
        """Write mutable arguments back, and return the launch's result."""
        with self.arguments.restored_on_error():
            self.arguments.copy_back()
        storages = [tile._storage for tile in self.leaves]
        return LaunchResult(
            tuple(array for array, _ in self.outputs),
            tuple(gaps for _, gaps in self.outputs),
            self.core.trace,
            self.exact,
            reported_violations(),
            tuple(
                array
                for array, tile in self.arguments.given
                if tile._storage.allocation.writes
            ),
            tuple(
                array
                for array, tile in self.arguments.given
                if tile._storage in storages
            ),
            tuple(map(self.arguments.origin, self.leaves)),
        )

    def everything(self) -> tuple[Array, ...]:
        """Return the kernel's outputs, then the arguments that it wrote to."""
        returned = tuple(array for array, _ in self.outputs)
        tensors = [tensor for _, tensor in self.arguments.mutable]
        return returned + tuple(tensor._storage.data for tensor in tensors)

    def everything_exact(self) -> tuple[ExactOutput, ...]:
        """Return the exact run's :meth:`everything`; empty without a meaningful exact run."""
        exact = self.exact
        if exact is None or not exact.has_meaning:
            return ()
        return (*exact.outputs, *(output for _, output in exact.arguments))


def launch(
    kernel: Launchable | Callable[..., Any],
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
    """Run ``kernel`` once for each program of ``grid``.

    The programs run one after the other. In the current dialect they take turns where they share
    memory or synchronize: see :mod:`difftest.simulator.program_scheduler`.

    Parameters
    ----------
    kernel : a function decorated with the embedded ``nki.jit`` of either dialect, or a plain
        function, whose dialect follows from the functions that it calls.
    args, kwargs : NumPy arrays, torch tensors and JAX arrays become HBM tensors; all other values
        are passed unchanged.
    grid : the SPMD grid, as in ``kernel[4, 2]``.
    machine : the NeuronCore to simulate; by default the kernel's own (the ``platform_target`` of
        its ``nki.jit``, trn2 if it names none).
    record : whether to keep a trace.
    plain : whether to run the oracle with the launch, which is slow. The oracle computes the
        literal meaning of each instruction, and its outputs are returned. If it differs from the
        simulator, it raises :class:`OracleError`.
    level : for the current dialect, "0.3" to "0.7": names, arguments and methods that the level
        lacks raise. By default the kernel's own (``embedded(level=...)``), else all exist, and
        ended ones warn.
    strictness : "documented", "seen" or "relaxed": which broken rules are warnings and not errors.
        By default the setting of :func:`difftest.simulator.strictness`, else "seen".
    exact : whether to also compute the results without rounding.

    Raises
    ------
    NkiError : the kernel breaks a rule of NKI or of the hardware.
    KernelExit : the kernel calls `sys.exit`, or skips a test.
    AssertionError, and any other exception of the kernel itself.
    """
    _check_call(args, kwargs, machine)
    with strictness_scope(strictness):
        run = Launch(kernel, args, kwargs, grid, machine, record, plain, level, exact)
        return ran([run])[0]


def launch_call(
    kernel: Launchable,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    record: bool = False,
) -> LaunchResult:
    """Launch a called kernel; change no array unless outputs can have the arguments' kind."""
    with strictness_scope(None):
        (finished,) = _run_observed([Launch(kernel, args, kwargs, record=record)])
        with finished.arguments.restored_on_error():
            check_outputs([args, kwargs], [array for array, _ in finished.outputs])
        return finished.result()


def _check_call(args: Any, kwargs: Any, machine: Any) -> None:
    """Raise unless the parameters of a launch have the right types.

    Raises
    ------
    KernelError : a parameter has another type.
    """
    machines = f"one of {', '.join(f'MACHINES[{name!r}]' for name in MACHINES)}"
    accepted: tuple[tuple[str, Any, tuple[type, ...], str, str], ...] = (
        (
            "args",
            args,
            (Sequence,),
            "a sequence of arguments",
            "launch(kernel, [array])",
        ),
        (
            "kwargs",
            kwargs,
            (Mapping, NoneType),
            "a mapping",
            "launch(kernel, args, {'n': 1})",
        ),
        ("machine", machine, (Machine, NoneType), "a Machine", machines),
    )
    for name, value, kinds, kind, remedy in accepted:
        if not isinstance(value, kinds):
            raise wrong_kind(value, kind, "launch", name, remedy)


class Launch(NamedTuple):
    """A run of a kernel: the parameters of :func:`launch`, and more for communicating runs."""

    kernel: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None = None
    grid: tuple[int, ...] = ()
    machine: Machine | None = None
    record: bool = True
    plain: bool = False
    level: str | None = None
    exact: bool | ExactSettings = False
    rank: Rank | None = None
    """Its place among several communicating launches."""
    order: ExecutionOrder = FORWARD
    """The execution order of programs and of iterations that claim to be independent."""
    drawn: Mapping[Any, Any] = MappingProxyType({})
    """The random numbers of a launch, to repeat it in another order."""
    once: bool = False
    """True if no other launch needs the arguments as they are before this one."""

    def finished(self) -> FinishedLaunch:
        """Run the kernel to its end.

        The caller's arrays change only in :meth:`FinishedLaunch.result`, or ``once`` in the run.
        """
        if is_running():
            raise LAUNCH_IN_KERNEL("a launch inside a running kernel")
        keep_freed_memory()
        target = as_launchable(self.kernel)
        core = self._core(target)
        settings = None
        with one_thread(), core.running(), _trace_in_errors(core):
            target.check_target()
            arguments, kernel_call = _arguments(
                core, target, self.args, dict(self.kwargs or {})
            )
            if TAPES.get() is not None:
                from difftest.simulator.tape import recorder

                core.tape = recorder(core, target, arguments)
            elif self._may_write_in_place(core):
                arguments.write_in_place()
            with arguments.restored_on_error():
                leaves = _outputs(core, kernel_call)
                finished = FinishedLaunch(core, arguments, as_arrays(leaves), leaves)
                _note_interface(finished)
            if core.tape is not None:
                core.tape.end(finished.leaves)
            if core.followers.oracle is not None:
                finished = _with_oracle_outputs(finished)
            if core.followers.shadow is not None:
                settings, finished = _with_exact_run(finished)
        if settings is not None:
            return self._replace(exact=settings).finished()
        fuse(core)
        return finished

    def _may_write_in_place(self, core: Core) -> bool:
        """Return whether the kernel may write to the caller's arrays.

        Programs of threads may not: a thread that was interrupted may write once more.
        """
        alone = core.followers.shadow is None and core.followers.oracle is None
        return self.once and alone and not _side_by_side(core)

    def _core(self, target: Launchable) -> Core:
        """Return the core for the run."""
        tensor = NkiTensor if target.dialect == "nki" else Tensor
        grid = grid_shape(self.grid) or target.grid
        chosen = target.machine if self.machine is None else self.machine
        core = Core(chosen, grid, record=False, tile=tensor)
        core.seat.rank = self.rank
        core.level = known_level(self.level) or target.level
        core.loops.order = self.order
        core.draws.states = dict(self.drawn)
        core.followers = Followers(*self._followers())
        core.tile = core.kind(tensor)
        core.memories.auto_alloc = is_marked(target.function, FORCES_AUTO_ALLOC)
        core.trace.kernel = target.qualname
        core.trace.dialect = target.dialect
        core.trace.middle_end = target.dialect == "classic" and not is_marked(
            target.function, SKIPS_MIDDLE_END
        )
        core.calls = kept_calls(chosen, target.dialect)
        programs = tuple(range(math.prod(grid)))
        core.trace.cores = programs if _side_by_side(core) else physical_cores(grid)
        return core

    def _followers(self) -> Iterator[Follower]:
        """Yield the followers that the launch's settings ask for."""
        if self.record:
            yield Observer()
        if self.exact:
            from difftest.simulator.exact.run import ExactSettings, Shadow

            settings = ExactSettings() if isinstance(self.exact, bool) else self.exact
            yield Shadow(settings)
        if self.plain:
            from difftest.simulator.oracle.comparison import Oracle

            yield Oracle()
        if self.record:
            yield EventRecorder()


def _outputs(core: Core, kernel_call: Callable[[], Any]) -> list[Any]:
    """Run the kernel, and return the tensors that it returns."""
    leaves = flatten(_returned(core, kernel_call))
    if core.trace.dialect == "nki":
        warn_of_private(leaves)
    core.loops.bodies.check(leaves)
    return leaves


def _note_interface(finished: FinishedLaunch) -> None:
    """Note the kernel's arguments and outputs in the trace."""
    trace = finished.core.trace
    leaves = finished.leaves
    given = [tensor for _, tensor in finished.arguments.given]
    note_outputs(leaves, finished.outputs, given)
    trace.arguments = [tensor._storage.allocation for tensor in given]
    trace.returned = [
        Returned(leaf._storage.allocation, leaf._pattern, leaf.dtype) for leaf in leaves
    ]


def _with_oracle_outputs(finished: FinishedLaunch) -> FinishedLaunch:
    """Compare the outputs with the oracle's; return the launch with the oracle's in their place."""
    oracle = finished.core.followers.oracle
    outputs = oracle.outputs(finished.leaves, finished.outputs)
    for tensor in finished.arguments.written:
        tensor._storage.data[...] = oracle.array(tensor)
    return finished._replace(outputs=outputs)


def _with_exact_run(
    finished: FinishedLaunch,
) -> tuple[ExactSettings | None, FinishedLaunch]:
    """Return the launch with its exact run, or settings for a second run that knows the outputs."""
    shadow = finished.core.followers.shadow
    kept = (*finished.leaves, *finished.arguments.written)
    settings = shadow.contract.without_scratch(kept)
    if settings is not None:
        return settings, finished
    exact = shadow.exact_run(finished.leaves, finished.arguments.mutable)
    return None, finished._replace(exact=exact)


def fuse(core: Core) -> None:
    """Fuse each result in the trace with its move to its destination."""
    trace = core.trace
    events = core.followers.events
    # the current dialect has no mere moves
    if events is not None and trace.dialect == "classic":
        trace.events = fuse_moves(trace.events, events.moved)
    trace.allocations = [a for a in trace.allocations if not a.is_temporary]


@contextlib.contextmanager
def _trace_in_errors(core: Core) -> Iterator[None]:
    """Let an error within the block carry the trace up to it: see :func:`unfinished_trace`."""
    try:
        yield
    except BaseException as error:
        fuse(core)
        # The error's class may define what setting an attribute means.
        object.__setattr__(error, _TRACE, core.trace)
        raise


def unfinished_trace(error: BaseException) -> Trace | None:
    """Return the trace of the launch that an error ended; None if no launch had begun."""
    return vars(error).get(_TRACE)


def _side_by_side(core: Core) -> bool:
    """Return whether the programs of a grid are cores that run at the same time."""
    return core.trace.dialect == "nki" and math.prod(core.grid) > 1


def _arguments(
    core: Core, target: Launchable, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Arguments, Callable[[], Any]]:
    """Return the kernel's arguments, and its call with them."""
    function = target.function
    bound = _bind(function, args, kwargs)
    check = as_nki_dtype if target.dialect == "nki" else as_dtype
    tensor = functools.partial(_argument, core)
    by_reference = target.by_reference
    arguments = Arguments(
        tensor, function, bound.signature, check, by_reference=by_reference
    )
    values = {
        name: arguments.convert(name, value) for name, value in bound.arguments.items()
    }
    call = inspect.BoundArguments(bound.signature, values)
    return arguments, functools.partial(_call, function, *call.args, **call.kwargs)


def _returned(core: Core, kernel_call: Callable[[], Any]) -> Any:
    """Return the result of the last program of the grid."""
    order = core.loops.order
    if _side_by_side(core) or (order.held and math.prod(core.grid) > 1):
        return _run_side_by_side(core, kernel_call)
    returned = None
    classic = core.trace.dialect == "classic"
    programs = list(itertools.product(*map(range, core.grid)))
    for program in programs if order.loop else order.arranged(programs):
        core.start_program(program)
        with explained() if classic else contextlib.nullcontext():
            returned = kernel_call()
    core.check_capacity()
    if classic:
        note_mixed(core)
    return returned


def _run_side_by_side(core: Core, kernel: Callable[[], Any]) -> Any:
    """Run a kernel once for each program of the grid; return the last one's result.

    Each program has its own on-chip memories. HBM and the trace are those of ``core``. The programs
    take turns: see :mod:`difftest.simulator.program_scheduler`. Source: "Logical NeuronCore
    configuration" and the stubs ``nisa.core_barrier`` and ``nisa.sendrecv`` at v2.32.0.

    Raises
    ------
    DeadlockError : the programs wait for each other. Any exception of a program ends the launch.
    """
    programs = list(itertools.product(*map(range, core.grid)))
    cores = list(map(core.beside, programs))
    names = [f"program {', '.join(map(str, program))}" for program in programs]
    order = core.loops.order
    first = None
    if not order.loop and order is not FORWARD:
        first = order.arranged(range(len(cores)))[0]
    scheduler = ProgramScheduler(
        names, lambda a, b: cores[b].follow(cores[a]), first, bool(order.held)
    )
    cores[first or 0].follow(core)
    for seat, peer in enumerate(cores):
        peer.seat.scheduler = scheduler
        peer.seat.number = seat
        peer.attach(YieldOnShared(peer))

    def run(own: Core) -> Any:
        with own.running():
            return kernel()

    returned = scheduler.run([functools.partial(run, own) for own in cores])
    for peer in cores:
        peer.check_capacity()
    return returned[-1]


def _call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return the kernel's result; convert an exit of the process or the test to an error."""
    try:
        return guarded(functools.partial(function, *args, **kwargs))
    except (Exception, KeyboardInterrupt, ProgramStopped):
        raise
    except BaseException as error:
        raise KernelExit(error).with_traceback(error.__traceback__) from None


# each case of a test binds arguments
_cached_signature = functools.lru_cache(maxsize=8)(signature_shown)


def _bind(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    """Bind arguments to the kernel's signature; raise if they do not fit."""
    signature = (
        _cached_signature if isinstance(function, FunctionType) else signature_shown
    )(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise not_taken(
            function_name(function),
            f"{signature}",
            "arguments that do not fit it",
            f"{error}",
        ) from None
    bound.apply_defaults()
    return bound


def _argument(core: Core, array: Array, name: str, mutable: bool) -> Tile:
    """Return an array as an HBM tensor, without a copy.

    In the current dialect, arguments are in ``nl.hbm``, or for two programs in ``nl.shared_hbm``
    (``nki_simulator.rst`` at v2.32.0). In the classic dialect they are in ``nl.shared_hbm``.
    """
    if core.followers.shadow is not None:
        core.followers.shadow.contract.allow(array.dtype)
    alone = core.trace.dialect == "nki" and math.prod(core.grid) == 1
    space = Space.PRIVATE_HBM if alone else Space.SHARED_HBM
    tensor: Tile = core.tile._whole(
        core.adopt(array, name=name, mutable=mutable, space=space)
    )
    return tensor


# -- several ranks: a kernel on machines of their own, which talk in ``nki.collectives`` -----------


def launch_ranks(
    kernel: Launchable | Callable[..., Any],
    args: Sequence[Sequence[Any]],
    kwargs: Mapping[str, Any] | None = None,
    *,
    machine: Machine | None = None,
    record: bool = True,
    level: str | None = None,
) -> tuple[LaunchResult, ...]:
    """Run a kernel once on each rank; the ranks take turns where they meet in a collective.

    Parameters
    ----------
    kernel : a kernel of the current dialect. With a grid (``kernel[2]``), its programs call the
        same collectives in the same order on all ranks.
    args : for each rank in order, the ``args`` of :func:`difftest.simulator.launch`.
    kwargs, machine, record, level : see :func:`launch`; equal for all ranks.

    Raises
    ------
    KernelError : there is no rank.
    DeadlockError : ranks wait for each other. Any exception of a rank ends all ranks, and no rank's
        arguments are changed.
    """
    if not args or not all(isinstance(values, (list, tuple)) for values in args):
        raise wrong_kind(args, "a list of arguments for each rank", "launch_ranks")
    run = Launch(kernel, (), kwargs, machine=machine, level=level, record=record)
    return ran([run._replace(args=values) for values in args], ranks=True)


def ran(runs: Sequence[Launch], *, ranks: bool = False) -> tuple[LaunchResult, ...]:
    """Return the results of one launch, or of several communicating ones, one for each rank."""
    return tuple([run.result() for run in _run_observed(runs, ranks=ranks)])


def _run_observed(
    runs: Sequence[Launch], *, ranks: bool = False
) -> list[FinishedLaunch]:
    """Run launches, and call the listener for each, if there is one."""
    listener = current_listener()
    if listener is None:
        return _run(runs, ranks=ranks, once=not ranks)
    with hazards_reported():
        return _run_recorded(listener, runs, ranks=ranks)


def _run_recorded(
    listener: LaunchListener, runs: Sequence[Launch], *, ranks: bool
) -> list[FinishedLaunch]:
    """Run launches with a trace, and call a listener for each."""
    finished = _run(runs, ranks=ranks, record=True)
    drawn = {} if ranks else finished[0].core.draws.states

    @functools.cache
    def again(order: ExecutionOrder, *, exact: bool = False) -> list[Any]:
        changes = {
            "record": False,
            "plain": False,
            "exact": exact,
            "drawn": drawn,
            "order": order,
        }
        others = _run(runs, ranks=ranks, **changes)
        return [
            other.everything_exact() if exact else other.everything()
            for other in others
        ]

    for number, run in enumerate(finished):
        trace = run.core.trace
        machine = run.core.machine
        outputs = run.everything()
        own = functools.partial(lambda number, order: again(order)[number], number)
        launch_record = LaunchRecord(trace, machine, outputs, own)
        if ranks:
            listener(launch_record._replace(rank=number))
        else:
            exactly = lambda order: again(order, exact=True)[0]  # noqa: E731
            listener(launch_record._replace(exactly=exactly, kernel=runs[0].kernel))
    return finished


def _run(
    runs: Sequence[Launch], *, ranks: bool, **changes: Any
) -> list[FinishedLaunch]:
    """Run a launch, or the ranks, to their ends: see :meth:`Launch.finished`."""
    if not ranks:
        return [runs[0]._replace(**changes).finished()]
    scheduler = ProgramScheduler(
        [f"rank {number}" for number in range(len(runs))], lambda before, after: None
    )
    placed = [
        run._replace(rank=Rank(n, len(runs), scheduler), **changes)
        for n, run in enumerate(runs)
    ]
    finished: list[FinishedLaunch] = scheduler.run([run.finished for run in placed])
    return finished
