"""The state of one launch: its machine, trace, memories, registers and loops.

A launch owns its state. Kernels call ``nl.load(...)`` without naming a machine. The running launch
is therefore found through a context variable, which is set for the duration of the launch.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from difftest.simulator.capacity import check_address, check_psum, check_tensor_size
from difftest.simulator.descriptor import RUNNING
from difftest.simulator.dtypes import Array, DType, has_subnormals, storage_dtype
from difftest.simulator.errors import (
    Location,
    host_array,
    innermost_location,
    kernel_location,
)
from difftest.simulator.follower import NOBODY, Follower, Followers
from difftest.simulator.machine import Machine
from difftest.simulator.memory import (
    ArgumentStorage,
    PlacedMemory,
    PlacedStorage,
    Shape,
    Storage,
)
from difftest.simulator.misuses import NO_KERNEL, OTHER_SHARED_TENSOR, USE_AFTER_LOOP
from difftest.simulator.program_scheduler import FORWARD, ProgramContext
from difftest.simulator.recording import EventRecorder, InstructionAccesses, LineTracker
from difftest.simulator.trace import Allocation, Iteration, Loop, Origin, Space, Trace

if TYPE_CHECKING:
    from difftest.simulator.tile import Tile


class RandomNumbers:
    """Random numbers that are repeatable for each instruction.

    An instruction that draws twice gets the same numbers twice. A program in one iteration of its
    loops gets the same numbers in every execution order.

    Attributes
    ----------
    states : the state of ``random`` before each draw, by program, iteration and draw.
    """

    def __init__(self, states: dict[Any, Any]) -> None:
        self.states = states
        self._counts: dict[Any, dict[int, int]] = {}
        """By program and iteration: instruction number of a draw -> number of draws before it."""

    @functools.cached_property
    def random(self) -> np.random.Generator:
        """The generator. It is made on demand, because most launches draw nothing."""
        return np.random.default_rng(0)

    def at(self, turn: Any, step: int) -> np.random.Generator:
        """Return the generator for an instruction of a program in one iteration of its loops."""
        draws = self._counts.setdefault(turn, {})
        at = turn, draws.setdefault(step, len(draws))
        state = self.states.setdefault(at, self.random.bit_generator.state)
        self.random.bit_generator.state = state
        return self.random


class SubnormalArguments:
    """A search for arguments with subnormal numbers in float32, for a launch's products.

    The first product searches the arrays. Kernels without products need no search.

    Attributes
    ----------
    tensors : the arguments, and the kernel's constants, that were not searched yet.
    found : whether one of the searched arrays has such numbers.
    """

    def __init__(self) -> None:
        self.tensors: list[ArgumentStorage] = []
        self.found = False

    def look(self) -> None:
        """Look at a sample of each array as the caller passed it."""
        while self.tensors:
            tensor = self.tensors.pop()
            self.found = self.found or has_subnormals(tensor.original())


class DeviceLoopBodies(Follower):
    """The bodies of device loops: tensors made in a body are invalid once its loop has ended.

    Attributes
    ----------
    running : for each running loop, the numbers of the tensors that its body has made.
    ended : the numbers of tensors of ended loops, and the loop's line.
    """

    def __init__(self) -> None:
        self.running: list[list[int]] = []
        self.ended: dict[int, Location | None] = {}

    def asked(self, issued: Any) -> None:
        self.check((issued.dst, *issued.operands, *issued.others, *issued.indices))

    def check(self, tiles: Sequence[Any]) -> None:
        """Raise :class:`KernelError` if the body of an ended loop made one of the tensors."""
        for tile in tiles:
            storage = getattr(tile, "_storage", None)
            if storage is not None and storage.allocation.id in self.ended:
                loop = self.ended[storage.allocation.id]
                raise USE_AFTER_LOOP(
                    f"{tile!r}, made at {storage.allocation.location}, of the loop at {loop}"
                )


SINGLE_TURN: ContextVar[bool] = ContextVar("difftest_single_turn", default=False)
"""True if launches run each loop on the device for one turn, as AWS's compiler traces it.

A loop whose bounds leave no turn runs one, too: the compiler does not know registers.

Tensors count as written then: the turns that are left out would write them.
"""


class Loops:
    """The state of a program's loops.

    Attributes
    ----------
    turns : the current iterations, the outermost loop's first.
    count : how many loops the launch has begun.
    order : the execution order of programs or of iterations that claim to be independent.
    is_single_turn : whether loops on the device run one turn, whatever their bounds.
    keeps_order : whether the kernel is inside ``nl.no_reorder``.
    tested : for each running ``while register:``, by frame and line: the loop, the iterations
        around it, and how many iterations it has begun.
    carried : names that an earlier iteration of a running loop has bound, and its body reads first.
    made_by_lines : how much the kernel's lines have made. It is equal for each iteration of a loop
        that is traced once.
    made_first : by line and its count: see
        :func:`difftest.simulator.frontend.loops.of_first_turn`.
    bodies : the bodies of device loops.
    """

    def __init__(self) -> None:
        self.turns: tuple[Iteration, ...] = ()
        self.count = 0
        self.order = FORWARD
        self.keeps_order = False
        self.is_single_turn = SINGLE_TURN.get()
        self.tested: dict[tuple[int, int], tuple[Loop, tuple[Iteration, ...], int]] = {}
        self.carried: tuple[str, ...] = ()
        self.made_by_lines: defaultdict[tuple[Location, ...], int] = defaultdict(int)
        self.made_first: dict[Any, Any] = {}
        self.bodies = DeviceLoopBodies()


class Memories:
    """The contents of a core's memories.

    Attributes
    ----------
    placed : the memories in which the kernel places tensors itself.
    auto_alloc : whether the kernel asked to ignore its own placements.
    in_psum : the tensors in PSUM.
    fitting : on-chip tensors that fit their memory -> the dtype in which they are held.
    shared : a grid's tensors in shared_hbm, by name and number of that name.
    named : how often the running program has asked for each name.
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
    accumulators : the engines' accumulators for reductions (nisa.reduce_cmd), by engine name.
    exact : the accumulators of the exact run.
    unread : engines whose accumulators hold a reduction that no instruction has read.
    origins : the origins of undefined data in the accumulators, by engine and kind of marks.
    named : how many scalar registers the trace has named.
    """

    def __init__(self) -> None:
        self.accumulators: dict[str, Array] = {}
        self.exact: dict[str, Any] = {}
        self.unread: set[str] = set()
        self.origins: dict[tuple[str, int], Origin] = {}
        self.named = 0

    @contextlib.contextmanager
    def exchanged(self) -> Iterator[None]:
        """Let the exact run's accumulators be the accumulators within the block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        self.accumulators, self.exact = self.exact, self.accumulators


Result = TypeVar("Result")


def current() -> Core:
    """Return the running launch.

    Raises
    ------
    KernelError : an NKI function was called outside a kernel.
    """
    core: Core | None = RUNNING.get(None)
    if core is None:
        raise NO_KERNEL("a call with no kernel running")
    return core


def is_running() -> bool:
    """Return whether a kernel is running."""
    return RUNNING.get(None) is not None


def entry(call: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a function that takes the launch; a tape records its outermost calls as ``call``."""

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(function)
        def entered(*args: Any, **kwargs: Any) -> Result:
            core = current()
            if core.tape is None or core.tape.busy:
                return function(core, *args, **kwargs)
            result: Result = core.tape.noted(call, function, core, *args, **kwargs)
            return result

        return entered

    return decorate


def taped(call: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a method of the launch; a tape records its outermost calls as ``call``."""

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
    """A NeuronCore while a kernel runs on it.

    Attributes
    ----------
    machine, grid : the launch's machine and SPMD grid.
    level : the NKI level of the kernel; None for all levels.
    tile : the class of instruction results: the tensor class of the kernel's dialect.
    seat : the running program, and the other programs of the grid.
    trace : the record of the launch; it has events only if recording is on.
    instructions : how many were issued so far; the number of the next event.
    issued : the request of the instruction that is being issued, for its errors.
    subnormals : tells whether arguments have numbers that are subnormal in float32.
    calls : the signatures of checked instructions; only the gate uses them.
    followers : the objects that are called for each instruction.
    tape : records each call for a replay (see :mod:`difftest.simulator.tape`); None if off.
    """

    def __init__(
        self, machine: Machine, grid: Shape, *, record: bool, tile: type[Any]
    ) -> None:
        self.machine = machine
        self.grid = grid
        self.tile = tile
        self.level: str | None = None
        self.seat = ProgramContext((0,) * len(grid))
        self.trace = Trace(machine=machine.name, grid=grid)
        self.instructions = 0
        self.issued: Any = None
        self.subnormals = SubnormalArguments()
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
        """Make this the launch that :func:`current` returns within the block."""
        token = RUNNING.set(self)
        try:
            # The engines have no floating-point exceptions. NumPy reports them for free.
            observer = self.followers.observer
            kind: Any = "ignore" if observer is None else "call"
            ring = observer and observer.ring
            with np.errstate(
                divide=kind, over=kind, invalid=kind, under="ignore", call=ring
            ):
                yield self
        finally:
            RUNNING.reset(token)
            self.lines = LineTracker()  # a frame keeps the kernel's tensors alive

    def beside(self, program: Shape) -> Core:
        """Return a core for another program of the grid, with its own chip memories and registers.

        HBM, the trace and the random numbers are the launch's.
        """
        core = Core(self.machine, self.grid, record=False, tile=self.tile)
        core.trace = self.trace
        core.calls = self.calls
        core.level = self.level
        core.subnormals = self.subnormals
        core.draws = RandomNumbers(self.draws.states)
        core.draws.random = self.draws.random
        core.memories.shared = self.memories.shared
        core.memories.auto_alloc = self.memories.auto_alloc
        core.memories.placed[Space.SHARED_HBM] = self.memories.placed[Space.SHARED_HBM]
        core.seat.rank = self.seat.rank
        core.seat.program = program
        core.loops.order = self.loops.order
        core.followers = self.followers.beside(core)
        core.tape = None if self.tape is None else self.tape.beside(core)
        return core

    def kind(self, kind: type[Any]) -> Any:
        """Return this launch's class of tensors: the followed subclass if there is an oracle."""
        oracle = self.followers.oracle
        if oracle is None:
            return kind
        return oracle.followed(kind)

    def attach(self, follower: Follower) -> None:
        """Add a follower, before the existing ones."""
        self.followers = Followers(follower, *self.followers.all)

    def wrote(self, tile: Tile) -> None:
        """Notify the tape and the followers of a write that no instruction made."""
        if self.tape is not None:
            self.tape.found(tile)
        for tell in self.followers.wrote:
            tell(tile)

    def follow(self, other: Core) -> None:
        """Continue the counters of another core of this launch."""
        self.instructions = other.instructions
        self.loops.count = other.loops.count

    def start_program(self, program: Shape) -> None:
        """Begin one program of the SPMD grid. Its shared_hbm tensors are the grid's."""
        self.seat.program = program
        self.memories.named = Counter()
        self.registers = Registers()

    @taped("allocate")
    def allocate(
        self, shape: Shape, dtype: DType, space: Space, *how: Any, **named: Any
    ) -> Storage:
        """Return a new unwritten tensor; for the parameters, see :meth:`hold`.

        Raises
        ------
        LimitError : the tensor does not fit its memory or its address.
        """
        if space is Space.SHARED_HBM and len(self.grid):
            storage = self._allocate_shared(shape, dtype, *how, **named)
        else:
            storage = self.hold(shape, dtype, space, *how, **named)
        if self.loops.is_single_turn:
            if storage.blank:
                storage.poison()
            storage.validity = None
        return storage

    def note_on_tape(self, kind: str, *texts: str) -> None:
        """Record on the tape, if there is one, something that a replay does not repeat."""
        if self.tape is not None:
            self.tape.note(kind, *texts)

    def numbers(self) -> np.random.Generator:
        """Return the random numbers for the current instruction: the same for each of its draws."""
        seat = self.seat
        turns = self.loops.turns
        turn = (
            seat.program,
            tuple([(each.loop.location, each.number) for each in turns]),
        )
        return self.draws.at(turn, self.instructions)

    @taped("seed")
    def seed(self, value: int) -> None:
        """Restart the random numbers from a seed."""
        self.draws.random = np.random.default_rng(value)

    @contextlib.contextmanager
    def body(self, location: Location | None) -> Iterator[None]:
        """Run the body of a device loop within the block; its tensors are invalid afterwards."""
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
        dtype: DType,
        space: Space,
        partition_axis: int = 0,
        name: str = "",
        address: tuple[int, ...] | None = None,
    ) -> Storage:
        """Return a new tensor as :meth:`allocate` does, without sharing and without the tape.

        Parameters
        ----------
        partition_axis : the axis that runs over partitions, which is the number of block
            dimensions.
        address : the address of a tensor that the kernel places. On chip it is the first partition
            and the first byte in each, in HBM the first byte. Tensors that overlap share bytes.
        """
        memories = self.memories
        allocation = Allocation(
            len(self.trace.allocations),
            space,
            shape,
            dtype,
            partition_axis,
            innermost_location(self.lines.stack())
            if self.followers.touched
            else kernel_location(self.lines.caller),
            name,
            loops=self.loops.turns,
        )
        for body in self.loops.bodies.running:
            body.append(allocation.id)
        if space.is_hbm:
            data = self._hold_in_hbm(allocation, address)
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
            data = self._make_array(shape, held)
        self.trace.allocations.append(allocation)
        if address is not None:
            return PlacedStorage(memories.placed[space], allocation, data)
        storage = Storage(allocation, data)
        storage.blank = storage.in_hbm
        return storage

    def _hold_in_hbm(
        self, allocation: Allocation, address: tuple[int, ...] | None
    ) -> Array:
        """Return the data of a new tensor in HBM, and set its address if it has one."""
        if address is not None:
            allocation.address = 0, address[0]
        if self.followers.shadow is not None:
            self.followers.shadow.contract.may_return(allocation.dtype)
        data: Array = host_array(self._make_array, allocation.shape, allocation.dtype)
        return data

    def _make_array(self, shape: Shape, dtype: DType) -> Array:
        """Return the data of a new tensor.

        An exact run reads unwritten elements too. They are zeros there, so that its notes do not
        depend on the earlier content of the memory.
        """
        if self.followers.shadow is None:
            return np.empty(shape, dtype)
        return np.zeros(shape, dtype)

    def _allocate_shared(
        self,
        shape: Shape,
        dtype: DType,
        _: int = 0,
        name: str = "",
        address: Any = None,
    ) -> Storage:
        """Return a shared_hbm tensor, which all programs of the grid share.

        Programs identify tensors by name. Tensors with equal names, or without a name, are matched
        in order of creation.
        """
        memories = self.memories
        at = name, memories.named[name]
        memories.named[name] += 1
        if at not in memories.shared:
            memories.shared[at] = self.hold(
                shape, dtype, Space.SHARED_HBM, 0, name, address
            )
        storage = memories.shared[at]
        storage.programs = int(np.prod(self.grid))
        if storage.allocation.shape != shape or storage.dtype != dtype:
            raise OTHER_SHARED_TENSOR(
                f"shape {shape} {dtype} in program {self.seat.program}, after "
                f"{storage.allocation} in an earlier one"
            )
        return storage

    def check_capacity(self) -> None:
        """Raise :class:`LimitError` unless the tensors that are live at one time fit PSUM."""
        check_psum(self.machine, self.memories.in_psum)

    @taped("adopt")
    def adopt(
        self,
        array: Array,
        *,
        name: str,
        mutable: bool,
        space: Space = Space.SHARED_HBM,
    ) -> ArgumentStorage:
        """Return a contiguous array as an HBM tensor."""
        allocation = Allocation(
            len(self.trace.allocations), space, array.shape, array.dtype, 0, None, name
        )
        self.trace.allocations.append(allocation)
        storage = ArgumentStorage(allocation, array, mutable=mutable)
        self.subnormals.tensors.append(storage)
        return storage

    def count(self, touched: InstructionAccesses) -> None:
        """Count an instruction, and notify followers of its accesses."""
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
        """Change attributes of the last ``count`` events."""
        for event in self.trace.events[-1 : -1 - count : -1]:
            changed = event.attributes._replace(**attributes)
            event.kind = event.kind._replace(attributes=changed)
