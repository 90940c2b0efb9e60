"""A trace as the device's engines receive it: instructions with engine, cost and dependences.

docs/explanation/timing-model.md describes the changes by the compiler that device traces show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from difftest.analysis.dependences import Dependences
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    EventKind,
    Iteration,
    LoopKind,
    Purpose,
    Region,
    Space,
    Trace,
)
from difftest.timing.buffers import Buffers
from difftest.timing.compiler import LIKELY, TODAYS, Compiler, cores_of
from difftest.timing.cost_model import (
    PRODUCTS,
    CostModel,
    EngineCost,
    InstructionCost,
    merged_cost,
)
from difftest.timing.dma import IN_SOFTWARE, Transfer
from difftest.timing.evidence import Evidence
from difftest.timing.middle_end import optimized
from difftest.timing.parameters import TimingParameters, timing_parameters
from difftest.timing.renaming import Renaming, RepeatedWork, in_other_tiles, refills
from difftest.timing.tensor_engine import Matmul

_LOAD = EventKind("dma_copy", Engine.DMA, purpose=Purpose.COPY)
_DRAIN = EventKind("core_barrier", Engine.GPSIMD, purpose=Purpose.BARRIER)
"""The barrier around each iteration of a loop that runs on the device."""
DeviceIteration = tuple[Iteration, ...]
Regions = tuple[Region, ...]

MODELLED = (
    *PRODUCTS,
    Purpose.COPY,
    Purpose.GATHER,
    Purpose.SCATTER,
    Purpose.SUM,
    Purpose.SEND,
)
"""Purposes that the models of the Tensor Engine and of DMA cover. Other instructions on those
engines have a row in the cost table, or an unknown cost."""


@dataclass(eq=False, slots=True)
class LoweredInstruction:
    """An instruction of the program."""

    index: int
    event: Event
    engine: Engine
    """DMA for transfers; UNKNOWN if the compiler chooses among ``times``."""
    times: dict[Engine, EngineCost] = field(default_factory=dict)
    matmul: Matmul | None = None
    transfer: Transfer | None = None
    modelled: Evidence = Evidence.ASSUMED
    """Evidence for the time of the rows of a matmul or transfer on this machine."""
    data: tuple[int, ...] = ()
    """Instructions whose results it reads; join ``j`` of the program as ``~j``."""
    order: tuple[int, ...] = ()
    """Instructions, and joins, that must end before it writes."""
    tensors: tuple[int, ...] = ()
    """Numbers of the on-chip tensors that it touches."""
    opens: tuple[Allocation, ...] = ()
    """On-chip tensors that it touches first."""
    closes: tuple[Allocation, ...] = ()
    """On-chip tensors that it touches last, in program order."""
    implied: bool = False
    """True if the compiler added it."""
    continues: bool = False
    """True for a load that a compiler may trigger together with the previous one."""
    core: int = 0
    """The physical core that runs it; with LNC 2 a logical core has two."""
    trigger: Engine = Engine.UNKNOWN
    """The engine that waits for its operands: for a DMA the engine of its queue, else its own."""

    @property
    def cost(self) -> InstructionCost:
        return InstructionCost(self.times, self.matmul, self.transfer, self.modelled)

    @property
    def is_store(self) -> bool:
        return self.transfer is not None and self.transfer.writes_hbm

    @property
    def opcode(self) -> str:
        return self.event.opcode

    @property
    def is_copy(self) -> bool:
        """Return whether an engine other than DMA copies."""
        return self.transfer is None and self.event.purpose is Purpose.COPY


class Decisions(NamedTuple):
    """Decisions of the compiler that change the dependences of a trace."""

    begins: dict[int, list[int]]
    """Position of an event -> the tensors that get another place at that event."""
    repeated: set[int]
    """Numbers of the events that are omitted because they repeat others."""
    twins: dict[int, Allocation]
    """An omitted tile -> the tile that has the same contents."""


class DependenceGraph:
    """The dependences at the start of every schedule of a program; no schedule changes them."""

    def __init__(self, program: Program) -> None:
        steps = program.instructions
        joins = program.joins
        self.missing = [
            len(step.data) + len(step.order) + len(step.opens) for step in steps
        ]
        """For each instruction, the number of results and places that it waits for."""
        self.followers: list[list[int]] = [[] for _ in steps]
        """The followers of each instruction: twice their numbers, plus one if they read it."""
        self.join_followers: list[list[int]] = [[] for _ in joins]
        self.joined_in: dict[int, list[int]] = {}
        """Instruction, or ``~j`` for a join -> the joins that contain it."""
        self.opener: dict[int, int] = {}
        """On-chip allocation -> the instruction that touches it first."""
        self.tables: list[str | None] = [None] * program.cores
        """For each core, the first table of activation functions. None if it has no work for the
        Scalar Engine, empty if no work needs a table."""
        self.shares = any(step.engine is Engine.UNKNOWN for step in steps)
        """True if the compiler chooses the engine of any instruction."""
        for number, members in enumerate(joins):
            for member in members:
                self.joined_in.setdefault(member, []).append(number)
        for step in steps:
            self._add(step)
        self.buffers = [self._granted(program, core) for core in range(program.cores)]
        """For each core, its memories after every tensor that fits has its place."""

    def _granted(self, program: Program, core: int) -> Buffers:
        """Return a core's memories, and give every tensor that fits its place."""
        steps = program.instructions
        uses = [(step.opens * (step.core == core), step.closes) for step in steps]
        buffers = Buffers(program.machine, uses)
        for memory in buffers.values():
            for granted in memory.grant():
                self.missing[self.opener[granted.id]] -= 1
        return buffers

    def _add(self, step: LoweredInstruction) -> None:
        """Add the dependences of an instruction, and the table that it needs."""
        code = 2 * step.index
        for producer in step.data:
            self._followers_of(producer).append(code + 1)
        for earlier in step.order:
            self._followers_of(earlier).append(code)
        for allocation in step.opens:
            self.opener[allocation.id] = step.index
        if step.times and not self.tables[step.core]:
            timed = step.times.get(Engine.SCALAR)
            if timed is not None:
                self.tables[step.core] = timed.table

    def _followers_of(self, number: int) -> list[int]:
        """Return the followers of an instruction, or of the join ``~number``."""
        if number >= 0:
            return self.followers[number]
        return self.join_followers[~number]


@dataclass(eq=False)
class Program:
    """The instructions of one launch, in program order."""

    machine: Machine
    parameters: TimingParameters
    instructions: list[LoweredInstruction]
    users: dict[int, int]
    """On-chip allocation -> the number of instructions that touch it."""
    allocations: dict[int, Allocation]
    joins: list[tuple[int, ...]] = field(default_factory=list)
    """Joins: groups of instructions, and of earlier joins, that other instructions wait for
    together."""
    cores: int = 1
    """Physical cores that run it in parallel."""
    compiler: Compiler = LIKELY
    """The assumed compiler."""
    decisions: Decisions = field(default_factory=lambda: Decisions({}, set(), {}))
    widened: bool = False
    """True if an instruction waits for others that touch other elements of a tensor."""
    as_written: bool = False
    """True if the kernel is of the current dialect, whose compiler keeps to the text."""
    as_traced: bool = False
    """True if the middle end has left each event of the trace as it was."""

    @property
    def hbm_rate(self) -> float:
        """Bytes per nanosecond between HBM and all cores."""
        alone = self.parameters.hbm_bandwidth.value
        together = self.parameters.shared_hbm.value
        return alone if self.cores == 1 else min(alone * self.cores, together)

    @cached_property
    def dependence_graph(self) -> DependenceGraph:
        """The dependences between the instructions."""
        return DependenceGraph(self)

    @cached_property
    def dma_kinds(self) -> set[str]:
        """The kinds of its DMAs, which decide their descriptor sources."""
        return {step.transfer.kind for step in self.instructions if step.transfer}

    @cached_property
    def unknown(self) -> list[LoweredInstruction]:
        """The instructions with an unknown cost."""
        return [
            step
            for step in self.instructions
            if any(timed.cost is None for timed in step.times.values())
            or (not step.times and step.event.purpose not in MODELLED)
        ]


Progress = Callable[[int, int], None]
"""Called at intervals with (amount done, total amount)."""
STEP = 2000
"""Instructions between two calls of progress."""


def lower(
    trace: Trace,
    machine: Machine,
    progress: Progress | None = None,
    compiler: Compiler = LIKELY,
) -> Program:
    """Return the program of ``trace`` on ``machine``; ``progress`` is called at intervals."""
    repeated = RepeatedWork(trace, machine, compiler)
    decisions = Decisions(refills(trace, compiler), repeated.events, repeated.twins)
    return _ProgramBuilder(machine, compiler, trace, decisions).build(progress)


def recompile(program: Program, trace: Trace, compiler: Compiler) -> Program:
    """Return the program that another compiler makes of the trace of ``program``.

    The instruction costs stay the same. Equal decisions of the compilers give equal dependences.
    """
    begins = program.decisions.begins
    assumed = program.compiler
    if compiler.renames != assumed.renames:
        begins = refills(trace, compiler)
    repeated = RepeatedWork(trace, program.machine, compiler)
    decisions = Decisions(begins, repeated.events, repeated.twins)
    if decisions == program.decisions and not _differ(program, compiler, trace):
        other = replace(program, compiler=compiler)
        other.dependence_graph = program.dependence_graph
        return other
    lowered = {}
    if program.as_traced or not trace.middle_end:  # an instruction for each event
        steps = program.instructions
        lowered = {step.event.number: step for step in steps if not step.implied}
    builder = _ProgramBuilder(program.machine, compiler, trace, decisions, lowered)
    return builder.build(None)


def _differ(program: Program, compiler: Compiler, trace: Trace) -> bool:
    """Return whether a compiler with equal decisions makes another program of the trace."""
    assumed = program.compiler
    may_distribute = trace.middle_end and not program.as_traced
    if may_distribute and compiler.distributes != assumed.distributes:
        return True
    return program.widened and compiler.by_tensor != assumed.by_tensor


def _continues(before: LoweredInstruction, step: LoweredInstruction) -> bool:
    """Return whether a load continues the previous one: from one tensor to one tile."""
    if before.transfer is None or before.core != step.core or step.is_store:
        return False
    ends = [
        tuple(region.allocation.id for region in event.writes + event.reads)
        for event in (before.event, step.event)
    ]
    return ends[0] == ends[1]


def _trigger(transfer: Transfer) -> Engine:
    """Return the engine that triggers a DMA."""
    if transfer.writes_hbm or transfer.kind in IN_SOFTWARE:
        return Engine.GPSIMD
    return Engine.SYNC


class _ProgramBuilder:
    """Builds the program of a trace, event by event."""

    def __init__(
        self,
        machine: Machine,
        compiler: Compiler,
        trace: Trace,
        decisions: Decisions,
        lowered: Mapping[int, LoweredInstruction] = MappingProxyType({}),
    ) -> None:
        self.machine = machine
        self.compiler = compiler
        self.trace = trace
        self.decisions = decisions
        self.lowered = lowered
        """Number of an event -> an instruction with the same cost."""
        self.parameters = timing_parameters(machine)
        self.costing = CostModel(machine)
        by_tensor = compiler.by_tensor and trace.dialect == TODAYS
        self.dependences = Dependences(by_tensor=by_tensor)
        self.renaming = Renaming(trace, decisions.begins)
        self.optimizes = trace.middle_end and compiler.distributes
        self.pending: list[Event] = []
        """Events for the middle end."""
        self.renames = bool(decisions.begins or decisions.twins)
        """True if some regions belong to other tiles than in the kernel."""
        self.as_traced = False
        """See :class:`Program`."""
        self.instructions: list[LoweredInstruction] = []
        self.users: dict[int, int] = {}
        self.allocations: dict[int, Allocation] = {}
        self.last: dict[int, int] = {}
        """On-chip allocation -> the instruction that touched it last."""
        self.identities: dict[tuple[int, str], Allocation] = {}
        self.cores = cores_of(trace)
        self.iterations: dict[int, DeviceIteration] = {}
        """Core -> the present iteration of its device loops."""
        self.barriers: dict[int, int] = {}
        """Core -> the barrier that precedes its next instructions."""

    def build(self, progress: Progress | None) -> Program:
        """Return the program of all events."""
        events = self.trace.events
        unneeded = self.decisions.repeated | self._cleared_before_sums()
        loops: tuple[Iteration, ...] = ()
        iteration: DeviceIteration = ()
        self._load_identities()
        for number, event in enumerate(events):
            if progress and number % STEP == STEP - 1:
                progress(number + 1, len(events))
            if self.renames:
                self.renaming.enter(number, event)
            if event.number in unneeded:
                continue
            core = self._core(event) if self.cores else 0
            if event.loops is not loops:
                loops = event.loops
                iteration = _device_iteration(loops)
            if iteration != self.iterations.get(core, ()):
                self._drain(core, iteration)
            self._take(event, core)
        self._add_pending()
        for allocation, index in self.last.items():
            self.instructions[index].closes += (self.allocations[allocation],)
        return Program(
            machine=self.machine,
            parameters=self.parameters,
            instructions=self.instructions,
            users=self.users,
            allocations=self.allocations,
            joins=self.dependences.joins,
            cores=1 + max(self.cores.values(), default=0),
            compiler=self.compiler,
            decisions=self.decisions,
            widened=self.dependences.widened,
            as_written=self.trace.dialect == TODAYS,
            as_traced=self.as_traced,
        )

    def _take(self, event: Event, core: int) -> None:
        """Add an event's instruction, or keep the event for the middle end."""
        reads, writes = self._within_their_tiles(event)
        if not self.optimizes:
            self._add(event, core, reads, writes)
            return
        if self.renames:
            event = event.with_regions(writes, reads)
        self.pending.append(event)

    def _cleared_before_sums(self) -> set[int]:
        """Return the events that clear a sum in PSUM; the classic compiler removes them."""
        if self.trace.dialect == TODAYS:
            return set()
        sums = set[int]()
        clears: list[Event] = []
        for event in self.trace.events:
            if event.attributes.accumulate:
                sums.add(event.writes[0].allocation.id)
            elif event.writes and event.clears:
                clears.append(event)
        return {
            event.number
            for event in clears
            if event.writes[0].allocation.id in sums
            and event.writes[0].allocation.space is Space.PSUM
        }

    def _core(self, event: Event) -> int:
        return self.cores.get(event.program, 0)

    def _load_identities(self) -> None:
        """Add one DMA for each dtype that the Tensor Engine of a core transposes."""
        for event in self.trace.events:
            if (
                event.engine is not Engine.TENSOR
                or event.purpose is not Purpose.TRANSPOSE
            ):
                continue
            dtype = event.reads[0].dtype
            core = self._core(event)
            if (core, dtype.name) in self.identities:
                continue
            side = self.machine.partitions
            number = -2 * (len(self.identities) + 1)
            hbm = _identity(number, Space.PRIVATE_HBM, side, dtype, event)
            sbuf = _identity(number - 1, Space.SBUF, side, dtype, event)
            self.identities[core, dtype.name] = sbuf
            load = Event(-1, _LOAD, (_whole(sbuf),), (_whole(hbm),), event.stack)
            self._add_implied(load, core)

    def _drain(self, core: int, iteration: DeviceIteration) -> None:
        """Add a barrier before or after an iteration of a loop that runs on the device.

        All engines and DMAs of the core wait for each other there.
        """
        around = iteration or self.iterations[core]
        self.iterations[core] = iteration
        start = self.barriers.get(core, 0)
        before = [step.index for step in self.instructions[start:] if step.core == core]
        if not before:
            return
        place = around[-1].loop.location
        event = Event(-1, _DRAIN, (), (), (place,) if place else ())
        barrier = self._add_implied(event, core)
        barrier.order = (self.dependences.join(before),)
        self.barriers[core] = barrier.index

    def _within_their_tiles(self, event: Event) -> tuple[Regions, Regions]:
        """Return the reads and writes of an event, in the tiles that the compiler gives it."""
        if not self.renames:
            return event.reads, event.writes
        reads = in_other_tiles(self.renaming.renamed(event.reads), self.decisions.twins)
        return reads, self.renaming.renamed(event.writes)

    def _add_pending(self) -> None:
        """Add the instructions that the middle end makes of all events."""
        groups = optimized(self.pending, self.machine)
        if self.optimizes and not self.renames:
            self.as_traced = groups == [(event,) for event in self.pending]
        # the costs of events that the middle end may leave as they are
        known = {
            id(event): self.lowered[event.number].cost
            for event in self.pending
            if event.number in self.lowered
        }
        for group in groups:
            event = _merged_event(group)
            costs = [known.get(id(each)) or self.costing.of(each) for each in group]
            self._add(
                event, self._core(event), event.reads, event.writes, merged_cost(costs)
            )

    def _add_implied(self, event: Event, core: int) -> LoweredInstruction:
        """Add an instruction that the trace does not have."""
        step = self._add(event, core, event.reads, event.writes)
        step.implied = True
        return step

    def _add(
        self,
        event: Event,
        core: int,
        reads: Regions,
        writes: Regions,
        costs: InstructionCost | None = None,
    ) -> LoweredInstruction:
        index = len(self.instructions)
        work = costs or self.lowered.get(event.number) or self.costing.of(event)
        product = work.matmul
        moved = work.transfer
        if product is not None and product.transposes:
            identity = self.identities[core, event.reads[0].dtype.name]
            reads = (*reads, _whole(identity))
        data, order = self.dependences.of(index, reads, writes)
        if self.barriers and core in self.barriers:
            order.add(self.barriers[core])
        tensors, opened = self._touch(index, writes + reads)
        step = LoweredInstruction(
            index,
            event,
            event.engine,
            work.times,
            product,
            moved,
            work.modelled,
            data=tuple(sorted(data)),
            order=tuple(sorted(order)),
            tensors=tensors,
            opens=opened,
            core=core,
            trigger=event.engine if moved is None else _trigger(moved),
        )
        if moved is not None and index:
            step.continues = _continues(self.instructions[-1], step)
        self.instructions.append(step)
        return step

    def _touch(
        self, index: int, regions: tuple[Region, ...]
    ) -> tuple[tuple[int, ...], tuple[Allocation, ...]]:
        """Count a use of each on-chip tensor.

        Returns
        -------
        The numbers of the tensors, and the tensors without an earlier use.
        """
        tensors: list[int] = []
        opened: list[Allocation] = []
        users = self.users
        last = self.last
        for region in regions:
            allocation = region[0]
            number = allocation.id
            if allocation.space.is_hbm or last.get(number) == index:
                continue
            if number in users:
                users[number] += 1
            else:
                users[number] = 1
                self.allocations[number] = allocation
                opened.append(allocation)
            last[number] = index
            tensors.append(number)
        return tuple(tensors), tuple(opened)


def _merged_event(group: tuple[Event, ...]) -> Event:
    """Return an event that touches the regions of all events of a group."""
    first = group[0]
    if len(group) == 1:
        return first
    reads = tuple(region for event in group for region in event.reads)
    writes = tuple(region for event in group for region in event.writes)
    return first.with_regions(writes, reads)


def _device_iteration(loops: tuple[Iteration, ...]) -> DeviceIteration:
    """Return the iterations of the loops that run on the device."""
    return tuple(run for run in loops if run.loop.kind is LoopKind.DYNAMIC)


def _identity(
    number: int, space: Space, side: int, dtype: np.dtype[np.generic], event: Event
) -> Allocation:
    """Return the allocation of an identity matrix, which the compiler adds."""
    return Allocation(
        number,
        space,
        (side, side),
        dtype,
        0,
        event.location,
        "identity",
        reads=1,
        writes=0,
    )


def _whole(allocation: Allocation) -> Region:
    rows, columns = allocation.shape
    return Region(allocation, 0, (rows, columns), (columns, 1))
