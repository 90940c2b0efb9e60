"""The state of one launch: its machine, its trace, what is live, where the loops stand.

A launch owns its state. Kernels call ``nl.load(...)`` without naming a machine, so the launch that
runs is found through a context variable, set for the time of the launch and no longer.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from difftest.simulator.baton import Seat
from difftest.simulator.capacity import check_address, check_psum, check_tensor_size
from difftest.simulator.descriptor import RUNNING, taped
from difftest.simulator.dtypes import Array, storage_dtype
from difftest.simulator.errors import Location, host_array, kernel_location, place_of
from difftest.simulator.follower import NOBODY, Follower, Followers
from difftest.simulator.machine import Machine
from difftest.simulator.memory import PlacedStorage, Shape, Storage, poison
from difftest.simulator.misuses import NO_KERNEL, OTHER_SHARED_TENSOR
from difftest.simulator.recording import Events, Lines, Touched
from difftest.simulator.state import Draws, Loops, Memories, Registers
from difftest.simulator.trace import Allocation, Space, Trace

if TYPE_CHECKING:
    from difftest.simulator.tile import Tile

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
    calls : the signatures of instructions that were checked, for the gate alone.
    followers : what goes beside the launch, and is told of each instruction.
    tape : what notes each call, for a replay (see :mod:`difftest.simulator.tape`); None without.
    """

    def __init__(self, machine: Machine, grid: Shape, *, record: bool, tile: type[Any]) -> None:
        self.machine, self.grid, self.tile = machine, grid, tile
        self.level: str | None = None
        self.seat = Seat((0,) * len(grid))
        self.trace = Trace(machine=machine.name, grid=grid)
        self.instructions = 0
        self.issued: Any = None
        self.calls: dict[Any, Any] = {}
        self.followers = Followers(Events(self)) if record else NOBODY
        self.tape: Any = None
        self.draws = Draws(np.random.default_rng(0), {})
        self.loops, self.lines = Loops(), Lines()
        self.memories, self.registers = Memories(), Registers()

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
            self.lines = Lines()  # a frame holds the kernel's tensors

    def beside(self, program: Shape) -> Core:
        """The core of another instance of the grid: on-chip memories and registers of its own.

        HBM, the trace and the random numbers are those of the launch.
        """
        core = Core(self.machine, self.grid, record=False, tile=self.tile)
        core.trace, core.calls, core.level = self.trace, self.calls, self.level
        core.draws = Draws(self.draws.random, self.draws.states)
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
        self.memories.named = Counter()

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
        """The random numbers for the instruction that runs: if it asks again, the same again."""
        seat, turns = self.seat, self.loops.turns
        turn = seat.program, tuple([(each.loop.location, each.number) for each in turns])
        return self.draws.at(turn, seat.steps)

    @taped("seed")
    def seed(self, value: int) -> None:
        """Let the random numbers begin anew."""
        self.draws.random = np.random.default_rng(value)

    @contextlib.contextmanager
    def body(self, location: Location | None) -> Iterator[None]:
        """While the body of a loop on the device runs: what it makes is of no use afterwards."""
        numbers, bodies = list[int](), self.loops.bodies
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
        """:meth:`allocate`, of what is not shared, and not for a tape."""
        lines, loops, memories = self.lines, self.loops, self.memories
        allocation = Allocation(
            len(self.trace.allocations),
            space,
            shape,
            dtype,
            partition_axis,
            place_of(lines.stack()) if self.followers.touched else kernel_location(lines.caller),
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
            data = host_array(poison, shape, dtype)
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
        self, shape: Shape, dtype: np.dtype[Any], name: str, address: tuple[int, ...] | None
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
        return Storage(allocation, array, written=written, mutable=mutable)

    def count(self, touched: Touched) -> None:
        """Count an instruction, and tell of what it read and wrote."""
        number = self.instructions
        self.instructions = number + 1
        self.seat.steps += 1
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
