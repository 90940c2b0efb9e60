"""The state of one launch: its machine, its trace, what is live, where the loops stand.

A launch owns its state. Kernels call ``nl.load(...)`` without naming a machine, so the launch that
runs is found through a context variable, set for the time of the launch and no longer.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from difftest.simulator.baton import FORWARD, Baton
from difftest.simulator.capacity import check_address, check_psum, check_tensor_size
from difftest.simulator.descriptor import RUNNING, taped
from difftest.simulator.dtypes import Array, DType, storage_dtype
from difftest.simulator.errors import Location, host_array, kernel_location, kernel_stack, place_of
from difftest.simulator.follower import NOBODY, Follower, Followers
from difftest.simulator.machine import Machine
from difftest.simulator.memory import PlacedMemory, PlacedStorage, Shape, Storage, poison
from difftest.simulator.misuses import NO_KERNEL, OTHER_SHARED_TENSOR, USE_AFTER_LOOP
from difftest.simulator.recording import Part, mark_in_part, region_of
from difftest.simulator.trace import (
    Allocation,
    Event,
    Iteration,
    Kind,
    Loop,
    Origin,
    Space,
    Trace,
)

if TYPE_CHECKING:
    from difftest.simulator.tile import Tile

Result = TypeVar("Result")
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def current() -> Core:
    """The launch that is running.

    Raises
    ------
    KernelError : an NKI function was called outside a kernel.
    """
    core: Core | None = RUNNING.get(None)
    if core is None:
        raise NO_KERNEL("a call with no kernel running")
    return core


def is_running() -> bool:
    """Whether a kernel is running now."""
    return RUNNING.get(None) is not None


def entry(call: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Make a function one that is handed the launch; a tape notes its outermost calls by a name."""

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(function)
        def entered(*args: Any, **kwargs: Any) -> Result:
            core: Core = RUNNING.get(None) or current()
            tape = core.tape
            if tape is None or tape.busy:
                return function(core, *args, **kwargs)
            result: Result = tape.noted(call, function, core, *args, **kwargs)
            return result

        return entered

    return decorate


class Rank(NamedTuple):
    """The place of a launch among those of :func:`difftest.simulator.launch_ranks`."""

    number: int
    ranks: int
    baton: Baton


class Bodies(Follower):
    """The bodies of loops on the device: what one makes is of no use when its loop has ended.

    Attributes
    ----------
    running : of each loop that runs, the numbers of the tensors that its body has made.
    ended : those of loops that have ended, and the loop's line.
    """

    def __init__(self) -> None:
        self.running: list[list[int]] = []
        self.ended: dict[int, Location | None] = {}

    def asked(self, issued: Any) -> None:
        self.check((issued.dst, *issued.operands, *issued.others, *issued.indices))

    def check(self, tiles: Sequence[Any]) -> None:
        """Raise :class:`KernelError` where a body that has ended made one of the tensors."""
        for tile in tiles:
            storage = getattr(tile, "_storage", None)
            if storage is not None and storage.allocation.id in self.ended:
                loop = self.ended[storage.allocation.id]
                raise USE_AFTER_LOOP(
                    f"{tile!r}, made at {storage.allocation.location}, of the loop at {loop}"
                )


class Core:
    """One NeuronCore while one kernel runs on it."""

    def __init__(self, machine: Machine, grid: Shape, *, record: bool, tile: type[Any]) -> None:
        self.machine = machine
        self.tile = tile
        """What instructions make for their results: the tensors of the kernel's dialect."""
        self.issued: Any = None
        """What was asked of the instruction that is being issued, for its errors."""
        self.calls: dict[Any, Any] = {}
        """The signatures of instructions that were checked, for the gate alone."""
        self.grid = grid
        self.program: Shape = (0,) * len(grid)
        self.record = record
        self.trace = Trace(machine=machine.name, grid=grid)
        self.moved: dict[int, Allocation] = {}
        """Number of an event -> the result that it only takes to its destination, for
        :func:`difftest.simulator.recording.fuse_moves`."""
        self.instructions = 0
        """Number of instructions issued so far; an event's number."""
        self.caller: FrameType | None = None
        """The frame that called the simulator, where :func:`entering` noted it: no kernel's line
        lies further in. None where the kernel has to be looked for."""
        self._stacks: dict[int, tuple[Location, ...]] = {}
        """By place of the code of ``_stacks_of``: the lines that are being executed there."""
        self._stacks_of: FrameType | None = None
        self.loops: tuple[Iteration, ...] = ()
        self.loop_count = 0
        self.registers = 0
        """How many registers the trace has named."""
        self.order = FORWARD
        """In which order what claims to have none runs."""
        self.tested: dict[tuple[int, int], tuple[Loop, tuple[Iteration, ...], int]] = {}
        """Of each ``while register:`` that runs, by frame and line: the loop, those around it, and
        how many turns it has begun."""
        self.random = np.random.default_rng(0)
        self.drawn: dict[Any, Any] = {}
        """The state of ``random`` before each draw, by who drew: see :meth:`numbers`."""
        self._draws: dict[Any, dict[int, int]] = {}
        """By program and turn of its loops: instructions issued at a draw -> draws before it."""
        self.accumulators: dict[str, Array] = {}
        """The engines' reduction registers (nisa.reduce_cmd), by engine name."""
        self.register_origins: dict[str, Origin] = {}
        """Whence came what they hold of elements that nothing wrote; those have accounts there."""
        self.placed: dict[Space, PlacedMemory] = defaultdict(PlacedMemory)
        """The memories in which the kernel places tensors itself."""
        self.followers = NOBODY
        """What goes beside the launch, and is told of each instruction."""
        self.tape: Any = None
        """What notes each call, for a replay (see :mod:`difftest.simulator.tape`); None without."""
        self.baton: Baton | None = None
        """Of the programs that run side by side; None where one runs alone."""
        self.seat = 0
        """The number of this program to the baton."""
        self.steps = 0
        """How many instructions this program has issued, where it has a baton."""
        self.level: str | None = None
        """The level of NKI that the kernel is for; None for all of them."""
        self.keeps_order = False
        """Whether the kernel is inside ``nl.no_reorder``."""
        self.rank: Rank | None = None
        """Among several ranks; None where a kernel is launched alone."""
        self.carried: tuple[str, ...] = ()
        """Names that an earlier turn of a loop that runs has bound, and its body reads before."""
        self.made_by_lines: Counter[tuple[Location, ...]] = Counter()
        """How much the kernel's lines have made, each turn of a loop that is traced once alike."""
        self.made_first: dict[Any, Any] = {}
        """By line and number of it: see :func:`difftest.simulator.frontend.loops.of_first_turn`."""
        self.bodies = Bodies()
        """Of the loops on the device."""
        self.auto_alloc = False
        """Whether the kernel asked for its own placements to be ignored."""
        self._in_psum: list[Allocation] = []
        self._fitting: dict[tuple[Space, Shape, DType, int], DType] = {}
        """Tensors on chip that fit their memory -> the dtype in which one is held."""
        self._shared: dict[tuple[str, int], Storage] = {}
        self._shared_next: Counter[str] = Counter()

    @contextlib.contextmanager
    def running(self) -> Iterator[Core]:
        """Make this the launch that :func:`current` finds."""
        token = RUNNING.set(self)
        try:
            # The engines know no floating-point exceptions; NumPy tells of them at no cost.
            observer = self.followers.observer
            kind: Any = "ignore" if observer is None else "call"
            ring = observer and observer.ring
            with np.errstate(divide=kind, over=kind, invalid=kind, under="ignore", call=ring):
                yield self
        finally:
            RUNNING.reset(token)
            self._stacks_of = None  # a frame holds the kernel's tensors

    def beside(self, program: Shape) -> Core:
        """The core of another instance of the grid: on-chip memories and registers of its own.

        HBM, the trace and the random numbers are those of the launch.
        """
        core = Core(self.machine, self.grid, record=self.record, tile=self.tile)
        core.trace, core.moved, core.random = self.trace, self.moved, self.random
        core.calls = self.calls
        core.drawn = self.drawn
        core._shared = self._shared
        core.placed[Space.SHARED_HBM] = self.placed[Space.SHARED_HBM]
        core.rank, core.level = self.rank, self.level
        core.order, core.followers = self.order, self.followers.beside(core)
        core.tape = None if self.tape is None else self.tape.beside(core)
        core.auto_alloc = self.auto_alloc
        core.program = program
        return core

    def kind(self, kind: type[Any]) -> Any:
        """A class of tensors as this launch has it: followed, if there is an oracle."""
        oracle = self.followers.oracle
        return kind if oracle is None else oracle.followed(kind)

    def attach(self, follower: Follower) -> None:
        """Let it go beside this core from now on: before those that are there."""
        self.followers = Followers(follower, *self.followers.all)

    def wrote(self, tile: Tile) -> None:
        """Tell the tape, if there is one, and followers of what no instruction wrote."""
        if self.tape is not None:
            self.tape.found(tile)
        for tell in self.followers.wrote:
            tell(tile)

    def follow(self, other: Core) -> None:
        """Go on with the numbers where another core of this launch has stopped."""
        self.instructions = other.instructions
        self.loop_count = other.loop_count

    def start_program(self, program: Shape) -> None:
        """Begin one instance of the SPMD grid; its shared_hbm tensors are the grid's."""
        self.program = program
        self._shared_next = Counter()

    @taped("allocate")
    def allocate(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        space: Space,
        *,
        partition_axis: int = 0,
        name: str = "",
        address: tuple[int, ...] | None = None,
    ) -> Storage:
        """A new tensor, nothing of it written by itself.

        Parameters
        ----------
        partition_axis : which axis runs over partitions: how many block dimensions there are.
        address : of a tensor that the kernel places: on chip the first partition and the first byte
            in each, in HBM the first byte. Tensors that overlap share what they hold.

        Raises
        ------
        LimitError : it does not fit its memory, or not at its address.
        """
        if space is Space.SHARED_HBM and len(self.grid):
            return self._allocate_shared(shape, dtype, name, address)
        return self.hold(shape, dtype, space, partition_axis, name, address)

    def numbers(self) -> np.random.Generator:
        """The random numbers for the instruction that runs: if it asks again, the same again.

        So are those of each program in each turn of its loops, if it runs in another order.
        """
        turn = self.program, tuple([(one.loop.location, one.number) for one in self.loops])
        draws = self._draws.setdefault(turn, {})
        at = turn, draws.setdefault(self.steps, len(draws))
        state = self.drawn.setdefault(at, self.random.bit_generator.state)
        self.random.bit_generator.state = state
        return self.random

    @taped("seed")
    def seed(self, value: int) -> None:
        """Let the random numbers begin anew."""
        self.random = np.random.default_rng(value)

    @contextlib.contextmanager
    def body(self, location: Location | None) -> Iterator[None]:
        """While the body of a loop on the device runs: what it makes is of no use afterwards."""
        numbers: list[int] = []
        self.bodies.running.append(numbers)
        try:
            yield
        finally:
            self.bodies.running.pop()
            if self.bodies not in self.followers.all:
                self.attach(self.bodies)
            self.bodies.ended.update(dict.fromkeys(numbers, location))

    def hold(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        space: Space,
        partition_axis: int = 0,
        name: str = "",
        address: tuple[int, ...] | None = None,
    ) -> Storage:
        """:meth:`allocate`, of what is not shared, and not for a tape."""
        allocation = Allocation(
            len(self.trace.allocations),
            space,
            shape,
            dtype,
            partition_axis,
            place_of(self.stack()) if self.record else kernel_location(self.caller),
            name,
            loops=self.loops,
        )
        for body in self.bodies.running:
            body.append(allocation.id)
        if space.is_hbm:
            if address is not None:
                allocation.address = 0, address[0]
            if self.followers.shadow is not None:
                self.followers.shadow.contract.may_return(dtype)
            data = host_array(poison, shape, dtype)
        else:
            key = (space, shape, dtype, partition_axis)
            held = self._fitting.get(key)
            if held is None:
                check_tensor_size(allocation, partition_axis, self.machine)
                held = self._fitting[key] = storage_dtype(dtype)
            if address is not None:
                allocation.address = address[0], address[1]
                check_address(allocation, self.machine)
            if space is Space.PSUM:
                self._in_psum.append(allocation)
            data = np.empty(shape, held)
        self.trace.allocations.append(allocation)
        if address is not None:
            return PlacedStorage(self.placed[space], allocation, data)
        return Storage(allocation, data)

    def _allocate_shared(
        self, shape: Shape, dtype: np.dtype[Any], name: str, address: tuple[int, ...] | None
    ) -> Storage:
        """Every instance of the grid sees the same shared_hbm tensors.

        Those of one name, or without one, are the same by the order in which they are created.
        """
        at = name, self._shared_next[name]
        self._shared_next[name] += 1
        if at not in self._shared:
            self._shared[at] = self.hold(shape, dtype, Space.SHARED_HBM, 0, name, address)
        storage = self._shared[at]
        storage.programs = int(np.prod(self.grid))
        if storage.allocation.shape != shape or storage.dtype != dtype:
            raise OTHER_SHARED_TENSOR(
                f"shape {shape} {dtype} in program {self.program}, after "
                f"{storage.allocation} in an earlier one"
            )
        return storage

    def check_capacity(self) -> None:
        """Whether the tensors live at one time fit this core's PSUM."""
        check_psum(self.machine, self._in_psum)

    @taped("adopt")
    def adopt(
        self,
        array: Array,
        *,
        name: str,
        mutable: bool,
        written: bool = True,
        space: Space = Space.SHARED_HBM,
    ) -> Storage:
        """An argument of the kernel as an HBM tensor; its data are not copied."""
        allocation = Allocation(
            len(self.trace.allocations), space, array.shape, array.dtype, 0, None, name
        )
        self.trace.allocations.append(allocation)
        return Storage(allocation, array, written=written, mutable=mutable)

    def emit(
        self,
        kind: Kind,
        writes: Sequence[Tile],
        reads: Sequence[Tile],
        roles: Sequence[str],
        numbers: tuple[Any, ...] = (),
        partial: Sequence[Part] = (),
        moved: Tile | None = None,
    ) -> None:
        """Count, and record if asked to, one instruction.

        Parameters
        ----------
        roles : of ``writes``, then of ``reads``, one each.
        numbers : those that ``kind`` names.
        partial : those of them of which not every element is touched, with what is.
        moved : the one that it only takes to its destination: see
            :func:`difftest.simulator.recording.fuse_moves`.
        """
        number = self.instructions
        self.instructions = number + 1
        self.steps += 1
        if moved is not None:
            moved._storage.allocation.moves += 1
        for tile in reads:
            allocation = tile._storage.allocation
            allocation.reads += 1
            allocation.last = number
        for tile in writes:
            allocation = tile._storage.allocation
            allocation.writes += 1
            allocation.last = number
            if allocation.first < 0:
                allocation.first = number
        if not self.record:
            return
        written = [*map(region_of, writes, roles)]
        read = [*map(region_of, reads, roles[len(writes) :])]
        observer = self.followers.observer
        seen = () if observer is None else tuple(observer.sights)
        if seen:
            observer.sights.clear()
        if moved is not None:
            self.moved[number] = moved._storage.allocation
        if partial:
            mark_in_part(written, writes, partial)
            mark_in_part(read, reads, partial)
        self.trace.events.append(
            Event(
                number,
                kind,
                tuple(written),
                tuple(read),
                self.stack(),
                self.loops,
                self.program,
                seen,
                numbers,
            )
        )

    def stack(self) -> tuple[Location, ...]:
        """The kernel's lines that are being executed, innermost first.

        Those around a function's frame stay the same as long as it runs, so that each line of it
        is looked for once in a row. A generator may go on for somebody else.
        """
        frame = self.caller
        if frame is None:
            return kernel_stack()
        if frame is not self._stacks_of:
            if frame.f_code.co_flags & _RESUMED:
                return kernel_stack(frame)
            self._stacks_of, self._stacks = frame, {}
        lines = self._stacks.get(frame.f_lasti)
        if lines is None:
            lines = self._stacks[frame.f_lasti] = kernel_stack(frame)
        return lines

    @taped("amend")
    def amend(self, count: int, **attributes: Any) -> None:
        """Say more of the last instructions that were issued."""
        for event in self.trace.events[-1 : -1 - count : -1]:
            changed = event.attributes._replace(**attributes)
            event.kind = event.kind._replace(attributes=changed)
