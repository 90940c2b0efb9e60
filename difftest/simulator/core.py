"""The state of one launch: its machine, its trace, what is live, where the loops stand.

A launch owns its state. Kernels call ``nl.load(...)`` without naming a machine, so the launch that
runs is found through a context variable, set for the time of the launch and no longer.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from difftest.simulator.capacity import check_address, check_psum, check_tensor_size
from difftest.simulator.descriptor import RUNNING
from difftest.simulator.dtypes import Array, DType, has_subnormals, storage_dtype
from difftest.simulator.errors import Location, host_array, innermost_location, kernel_location
from difftest.simulator.follower import NOBODY, Follower, Followers
from difftest.simulator.machine import Machine
from difftest.simulator.memory import PlacedMemory, PlacedStorage, Shape, Storage, poison_array
from difftest.simulator.misuses import NO_KERNEL, OTHER_SHARED_TENSOR, USE_AFTER_LOOP
from difftest.simulator.program_scheduler import FORWARD, ProgramContext
from difftest.simulator.recording import EventRecorder, InstructionAccesses, LineTracker
from difftest.simulator.trace import Allocation, Iteration, Loop, Origin, Space, Trace

if TYPE_CHECKING:
    from difftest.simulator.tile import Tile


class RandomNumbers:
    """Random numbers, of which an instruction that asks again gets the same again.

    So does each program in each turn of its loops, if it runs in another order.

    Attributes
    ----------
    states : the state of ``random`` before each draw, by who drew.
    """

    def __init__(self, states: dict[Any, Any]) -> None:
        self.states = states
        self._counts: dict[Any, dict[int, int]] = {}
        """By program and turn of its loops: steps of it at a draw -> draws before it."""

    @functools.cached_property
    def random(self) -> np.random.Generator:
        """What makes them; most launches draw none."""
        return np.random.default_rng(0)

    def at(self, turn: Any, step: int) -> np.random.Generator:
        """The numbers for a step of a program in a turn of its loops."""
        draws = self._counts.setdefault(turn, {})
        at = turn, draws.setdefault(step, len(draws))
        state = self.states.setdefault(at, self.random.bit_generator.state)
        self.random.bit_generator.state = state
        return self.random


class DeviceLoopBodies(Follower):
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


class Loops:
    """Where the loops of a program stand.

    Attributes
    ----------
    turns : those that run, the outermost loop's first.
    count : how many loops the launch has begun.
    order : in which order what claims to have none runs.
    keeps_order : whether the kernel is inside ``nl.no_reorder``.
    tested : of each ``while register:`` that runs, by frame and line: the loop, the turns around
        it, and how many it has begun.
    carried : names that an earlier turn of a loop that runs has bound, and its body reads before.
    made_by_lines : how much the kernel's lines have made, each turn of a loop that is traced once
        alike.
    made_first : by line and number of it: see
        :func:`difftest.simulator.frontend.loops.of_first_turn`.
    bodies : of the loops on the device.
    """

    def __init__(self) -> None:
        self.turns: tuple[Iteration, ...] = ()
        self.count = 0
        self.order = FORWARD
        self.keeps_order = False
        self.tested: dict[tuple[int, int], tuple[Loop, tuple[Iteration, ...], int]] = {}
        self.carried: tuple[str, ...] = ()
        self.made_by_lines: defaultdict[tuple[Location, ...], int] = defaultdict(int)
        self.made_first: dict[Any, Any] = {}
        self.bodies = DeviceLoopBodies()


class Memories:
    """What a core's memories hold.

    Attributes
    ----------
    placed : those in which the kernel places tensors itself.
    auto_alloc : whether the kernel asked for its own placements to be ignored.
    in_psum : the tensors in PSUM.
    fitting : tensors on chip that fit their memory -> the dtype in which one is held.
    shared : the tensors in shared_hbm of a grid, by name and number of that name.
    named : how many of a name the program that runs has asked for.
    """

    def __init__(self) -> None:
        self.placed: dict[Space, PlacedMemory] = defaultdict(PlacedMemory)
        self.auto_alloc = False
        self.in_psum: list[Allocation] = []
        self.fitting: dict[tuple[Space, Shape, DType, int], DType] = {}
        self.shared: dict[tuple[str, int], Storage] = {}
        self.named: Counter[str] = Counter()


class Registers:
    """The registers of a core.

    Attributes
    ----------
    accumulators : those of the engines for reductions (nisa.reduce_cmd), by the engine's name.
    exact : the same of the exact run.
    unread : engines whose accumulators hold a reduction that no instruction has read out.
    origins : whence came what they hold of elements that nothing wrote.
    named : how many scalar registers the trace has named.
    """

    def __init__(self) -> None:
        self.accumulators: dict[str, Array] = {}
        self.exact: dict[str, Any] = {}
        self.unread: set[str] = set()
        self.origins: dict[str, Origin] = {}
        self.named = 0


Result = TypeVar("Result")


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
        noted = taped(call)(function)

        @functools.wraps(function)
        def entered(*args: Any, **kwargs: Any) -> Result:
            return noted(current(), *args, **kwargs)

        return entered

    return decorate


def taped(call: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Make a method of the launch one whose outermost calls a tape notes by a name."""

    def decorate(method: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(method)
        def noted(core: Core, *args: Any, **kwargs: Any) -> Result:
            if core.tape is None or core.tape.busy:
                return method(core, *args, **kwargs)
            result: Result = core.tape.noted(call, method, core, *args, **kwargs)
            return result

        return noted

    return decorate


class Core:
    """One NeuronCore while one kernel runs on it.

    Attributes
    ----------
    machine, grid, level : what the kernel was launched on; the level of NKI that it is for, None
        for all of them.
    tile : what instructions make for their results: the tensors of the kernel's dialect.
    seat : which program it runs, and among whom.
    trace : what is known of the launch afterwards; events only if it is recorded.
    instructions : how many were issued so far; an event's number.
    issued : what was asked of the instruction that is being issued, for its errors.
    tiny : whether the kernel was given numbers that are subnormal in float32.
    calls : the signatures of instructions that were checked, for the gate alone.
    followers : what goes beside the launch, and is told of each instruction.
    tape : what notes each call, for a replay (see :mod:`difftest.simulator.tape`); None without.
    """

    def __init__(self, machine: Machine, grid: Shape, *, record: bool, tile: type[Any]) -> None:
        self.machine = machine
        self.grid = grid
        self.tile = tile
        self.level: str | None = None
        self.seat = ProgramContext((0,) * len(grid))
        self.trace = Trace(machine=machine.name, grid=grid)
        self.instructions = 0
        self.issued: Any = None
        self.tiny = False
        self.calls: dict[Any, Any] = {}
        self.followers = Followers(EventRecorder()) if record else NOBODY
        self.tape: Any = None
        self.draws = RandomNumbers({})
        self.loops = Loops()
        self.lines = LineTracker()
        self.memories = Memories()
        self.registers = Registers()

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
            self.lines = LineTracker()  # a frame holds the kernel's tensors

    def beside(self, program: Shape) -> Core:
        """The core of another instance of the grid: on-chip memories and registers of its own.

        HBM, the trace and the random numbers are those of the launch.
        """
        core = Core(self.machine, self.grid, record=False, tile=self.tile)
        core.trace = self.trace
        core.calls = self.calls
        core.level = self.level
        core.tiny = self.tiny
        core.draws = RandomNumbers(self.draws.states)
        core.draws.random = self.draws.random
        core.memories.shared = self.memories.shared
        core.memories.auto_alloc = self.memories.auto_alloc
        core.memories.placed[Space.SHARED_HBM] = self.memories.placed[Space.SHARED_HBM]
        core.seat.rank, core.seat.program = self.seat.rank, program
        core.loops.order, core.followers = self.loops.order, self.followers.beside(core)
        core.tape = None if self.tape is None else self.tape.beside(core)
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
        self.loops.count = other.loops.count

    def start_program(self, program: Shape) -> None:
        """Begin one instance of the SPMD grid; its shared_hbm tensors are the grid's."""
        self.seat.program = program
        self.memories.named, self.registers = Counter(), Registers()

    @taped("allocate")
    def allocate(
        self, shape: Shape, dtype: np.dtype[Any], space: Space, *how: Any, **named: Any
    ) -> Storage:
        """A new tensor, nothing of it written by itself; parameters as :meth:`hold` has them.

        Raises
        ------
        LimitError : it does not fit its memory, or not at its address.
        """
        if space is Space.SHARED_HBM and len(self.grid):
            return self._allocate_shared(shape, dtype, *how, **named)
        return self.hold(shape, dtype, space, *how, **named)

    def numbers(self) -> np.random.Generator:
        """The random numbers for the instruction that runs: if it asks again, the same again."""
        seat = self.seat
        turns = self.loops.turns
        turn = seat.program, tuple([(each.loop.location, each.number) for each in turns])
        return self.draws.at(turn, self.instructions)

    @taped("seed")
    def seed(self, value: int) -> None:
        """Let the random numbers begin anew."""
        self.draws.random = np.random.default_rng(value)

    @contextlib.contextmanager
    def body(self, location: Location | None) -> Iterator[None]:
        """While the body of a loop on the device runs: what it makes is of no use afterwards."""
        numbers = list[int]()
        bodies = self.loops.bodies
        bodies.running.append(numbers)
        try:
            yield
        finally:
            bodies.running.pop()
            if bodies not in self.followers.all:
                self.attach(bodies)
            bodies.ended.update(dict.fromkeys(numbers, location))

    def hold(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        space: Space,
        partition_axis: int = 0,
        name: str = "",
        address: tuple[int, ...] | None = None,
    ) -> Storage:
        """:meth:`allocate`, of what is not shared, and not for a tape.

        Parameters
        ----------
        partition_axis : which axis runs over partitions: how many block dimensions there are.
        address : of a tensor that the kernel places: on chip the first partition and the first byte
            in each, in HBM the first byte. Tensors that overlap share what they hold.
        """
        lines = self.lines
        loops = self.loops
        memories = self.memories
        allocation = Allocation(
            len(self.trace.allocations),
            space,
            shape,
            dtype,
            partition_axis,
            innermost_location(lines.stack())
            if self.followers.touched
            else kernel_location(lines.caller),
            name,
            loops=loops.turns,
        )
        for body in loops.bodies.running:
            body.append(allocation.id)
        if space.is_hbm:
            if address is not None:
                allocation.address = 0, address[0]
            if self.followers.shadow is not None:
                self.followers.shadow.contract.may_return(dtype)
            data = host_array(poison_array, shape, dtype)
        else:
            key = (space, shape, dtype, partition_axis)
            held = memories.fitting.get(key)
            if held is None:
                check_tensor_size(allocation, partition_axis, self.machine)
                held = memories.fitting[key] = storage_dtype(dtype)
            if address is not None:
                allocation.address = address[0], address[1]
                check_address(allocation, self.machine)
            if space is Space.PSUM:
                memories.in_psum.append(allocation)
            data = np.empty(shape, held)
        self.trace.allocations.append(allocation)
        if address is not None:
            return PlacedStorage(memories.placed[space], allocation, data)
        return Storage(allocation, data)

    def _allocate_shared(
        self, shape: Shape, dtype: np.dtype[Any], _: int = 0, name: str = "", address: Any = None
    ) -> Storage:
        """Every instance of the grid sees the same shared_hbm tensors.

        Those of one name, or without one, are the same by the order in which they are created.
        """
        memories = self.memories
        at = name, memories.named[name]
        memories.named[name] += 1
        if at not in memories.shared:
            memories.shared[at] = self.hold(shape, dtype, Space.SHARED_HBM, 0, name, address)
        storage = memories.shared[at]
        storage.programs = int(np.prod(self.grid))
        if storage.allocation.shape != shape or storage.dtype != dtype:
            raise OTHER_SHARED_TENSOR(
                f"shape {shape} {dtype} in program {self.seat.program}, after "
                f"{storage.allocation} in an earlier one"
            )
        return storage

    def check_capacity(self) -> None:
        """Whether the tensors live at one time fit this core's PSUM."""
        check_psum(self.machine, self.memories.in_psum)

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
        self.tiny = self.tiny or has_subnormals(array)
        return Storage(allocation, array, written=written, mutable=mutable)

    def count(self, touched: InstructionAccesses) -> None:
        """Count an instruction, and tell of what it read and wrote."""
        number = self.instructions
        self.instructions = number + 1
        _, writes, reads, _, _, _, moved = touched
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
        for tell in self.followers.touched:
            tell(number, touched)

    @taped("amend")
    def amend(self, count: int, **attributes: Any) -> None:
        """Say more of the last instructions that were issued."""
        for event in self.trace.events[-1 : -1 - count : -1]:
            changed = event.attributes._replace(**attributes)
            event.kind = event.kind._replace(attributes=changed)
