"""The timeline: when each instruction of a program runs.

Each engine takes, of the instructions whose operands and buffers are ready, the first in program
order: the compiler's order of a kernel that is free to be reordered. On the Tensor Engine one may
overtake a few earlier ones and no more (:mod:`difftest.timing.compiler`). Engines run side by side
and wait for each other through semaphores. The same program gives the same timeline.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from difftest.simulator.trace import Allocation, Engine
from difftest.timing.clockwork import SAME_ENGINE, WAITS, hop
from difftest.timing.hbm import SharedHbm
from difftest.timing.program import STEP, LoweredInstruction, Program, Progress
from difftest.timing.units import GENERATOR, PhysicalCore, Unit

MIDDLE = 0.5
"""The throttle window's phase that a prediction is made with: random on the device."""


@dataclass(eq=False, slots=True)
class Span:
    """When one instruction ran; ns from the start of the kernel's own part."""

    instruction: LoweredInstruction
    engine: Engine
    """Where it ran; for a DMA the engine that triggered it."""
    start: float
    end: float
    """Its result stands; for a DMA its completion semaphore."""
    busy: float
    """How long it kept its engine from the next instruction."""
    ready: float
    """When its operands were ready; it may have waited for its engine until ``start``."""
    waited_for: int
    """The instruction that made it ready; -1 if it could start at once."""
    buffer: bool
    """Whether it was a buffer that it waited for."""
    transfer_start: float = 0.0
    """For a DMA: when the DMA engine that ends last begins with it."""
    transfer_end: float = 0.0
    released_by: int = -1
    """The instruction before it on its engine."""


@dataclass(eq=False)
class Schedule:
    """The timeline of a program; times in ns from the start of the kernel's own part."""

    program: Program
    spans: list[Span]
    """By instruction."""
    end: float
    """The last store's semaphore has been waited for."""
    dge: bool
    phase: float
    cold_time: float
    """Time that the Tensor Engine streamed at half speed."""
    table_loads: int
    residence: dict[int, tuple[float, float]]
    """On-chip allocation -> when its first instruction began and its last one ended."""
    spilled: int
    """Bytes a partition by which the live tensors exceed SBUF: spilling is not modelled."""


def schedule(
    program: Program, *, dge: bool, phase: float = MIDDLE, progress: Progress | None = None
) -> Schedule:
    """The timeline of ``program``.

    Parameters
    ----------
    program : what runs.
    dge : whether descriptors are generated on the device (``nki.benchmark``) or lie in HBM
        (profiles with ``--disable-dge``).
    phase : the part of a throttle window that had passed when the kernel began, 0 to 1.
    progress : told how far it is.
    """
    return _Scheduler(program, dge=dge, phase=phase, progress=progress).run()


class _Join:
    """Instructions that others wait for together."""

    __slots__ = ("followers", "last", "missing")

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.followers: list[tuple[int, bool]] = []
        self.last: dict[tuple[Engine, bool], Span] = {}
        """Of each engine, the span that starts last and the one that ends last: all that a follower
        can wait for."""

    def take(self, span: Span) -> None:
        """Count one that has been issued."""
        engine = _producer(span)
        for by_end in (False, True):
            known = self.last.get((engine, by_end))
            if (
                known is None
                or (by_end and span.end > known.end)
                or (not by_end and span.start > known.start)
            ):
                self.last[engine, by_end] = span


_FREE = 1 << 30
"""The event that a tensor's place is free, after the engines' numbers."""


class _Scheduler:
    def __init__(
        self, program: Program, *, dge: bool, phase: float, progress: Progress | None
    ) -> None:
        self.program = program
        self.instructions = program.instructions
        self.clockwork = program.clockwork
        self.dge = dge
        self.phase = phase
        self.progress = progress
        hbm = SharedHbm(self.clockwork.shared_hbm.value) if program.cores > 1 else None
        self.cores = [PhysicalCore(program, number, phase, hbm) for number in range(program.cores)]
        self.by_number = [unit for core in self.cores for unit in core.units.values()]
        self.store_spans: list[Span] = []
        self.residence: dict[int, tuple[float, float]] = {}
        count = len(self.instructions)
        self.spans: list[Span | None] = [None] * count
        self.missing = [0] * count
        self.ready_at = [0.0] * count
        self.waited_for = [-1] * count
        self.for_buffer = [False] * count
        self.followers: list[list[tuple[int, bool]]] = [[] for _ in range(count)]
        self.joins = [_Join(len(members)) for members in program.joins]
        self.joined_in: dict[int, list[int]] = {}
        """Instruction, or ``~j`` for a join -> the joins that it is a part of."""
        self.opener: dict[int, int] = {}
        self.users = dict(program.users)
        self.last_use: dict[int, tuple[float, int]] = {}
        self.events: list[tuple[float, int, int]] = []
        self.scheduled = 0

    def run(self) -> Schedule:
        self._wire()
        while self.scheduled < len(self.instructions) or self.events:
            if not self.events:
                raise RuntimeError("the schedule is stuck: instructions wait for each other")
            now, kind, what = heapq.heappop(self.events)
            if kind == _FREE:
                allocation = self.program.allocations[what]
                self.residence[what] = (self._span(self.opener[what]).start, now)
                core = self._core(self.opener[what])
                for granted in core.buffers.release(allocation):
                    self._granted(granted, now, self.last_use[what][1])
                continue
            self._wake(self.by_number[kind], now)
        spans = [span for span in self.spans if span is not None]
        return Schedule(
            program=self.program,
            spans=spans,
            end=self._finish(spans),
            dge=self.dge,
            phase=self.phase,
            cold_time=sum(core.tensor.throttle.cold_time for core in self.cores),
            table_loads=sum(len(core.tables) for core in self.cores),
            residence=self.residence,
            spilled=max(core.buffers.spilled for core in self.cores),
        )

    # Before the first instruction

    def _wire(self) -> None:
        self._prefetch_table()
        for number, members in enumerate(self.program.joins):
            for member in members:
                self.joined_in.setdefault(member, []).append(number)
        for one in self.instructions:
            self.missing[one.index] = len(one.data) + len(one.order) + len(one.opens) + 1
            for producer in one.data:
                self._followers(producer).append((one.index, True))
            for producer in one.order:
                self._followers(producer).append((one.index, False))
            for allocation in one.opens:
                self.opener[allocation.id] = one.index
                self.cores[one.core].buffers.enter(allocation)
        for core in self.cores:
            for granted in core.buffers.grant():
                self._granted(granted, 0.0, -1)
        for one in self.instructions:
            self._less(one.index)

    def _prefetch_table(self) -> None:
        """Each core loads its first table of activation functions before all else (TRACE)."""
        for one in self.instructions:
            core = self.cores[one.core]
            if Engine.SCALAR in one.times and not core.tables:
                core.tables.add(_table(one))
                core.units[Engine.SCALAR].free = self.clockwork.table_load.value

    def _followers(self, producer: int) -> list[tuple[int, bool]]:
        return self.followers[producer] if producer >= 0 else self.joins[~producer].followers

    # Readiness

    def _less(self, index: int) -> None:
        """One thing less that an instruction waits for."""
        self.missing[index] -= 1
        if not self.missing[index]:
            self._enqueue(self.instructions[index])

    def _granted(self, allocation: Allocation, now: float, by: int) -> None:
        index = self.opener[allocation.id]
        if by >= 0:
            engine = self.instructions[index].engine
            now += hop(self._span(by).engine, engine)
            if now > self.ready_at[index]:
                self.ready_at[index] = now
                self.waited_for[index] = by
                self.for_buffer[index] = True
        self._less(index)

    def _span(self, index: int) -> Span:
        span = self.spans[index]
        assert span is not None
        return span

    def _core(self, index: int) -> PhysicalCore:
        return self.cores[self.instructions[index].core]

    def _enqueue(self, one: LoweredInstruction) -> None:
        ready = self.ready_at[one.index]
        core = self.cores[one.core]
        if one.engine is Engine.UNKNOWN:
            engine = core.sharing.choose(one, ready)
        elif one.transfer is not None:
            static = Engine.GPSIMD if one.is_store or one.transfer.software else Engine.SYNC
            engine = GENERATOR if self._generates(one) else static
        else:
            engine = one.engine
            core.sharing.add(engine, one, ready)
        unit = core.units[engine]
        heapq.heappush(unit.coming, (ready, one.index))
        self._arm(unit, max(ready, unit.free))

    def _generates(self, one: LoweredInstruction) -> bool:
        """Whether a DMA's descriptors are generated on the device."""
        transfer = one.transfer
        return self.dge and transfer is not None and transfer.generated and not transfer.software

    def _arm(self, unit: Unit, time: float) -> None:
        if time < unit.wake:
            unit.wake = time
            heapq.heappush(self.events, (time, unit.number, 0))

    # Issue

    def _wake(self, unit: Unit, now: float) -> None:
        if now != unit.wake:
            return  # an earlier wake-up took its place
        unit.wake = float("inf")
        coming, ready = unit.coming, unit.ready
        if now < unit.free:
            self._arm(unit, unit.free)
            return
        while coming and coming[0][0] <= now:
            heapq.heappush(ready, heapq.heappop(coming)[1])
        if ready:
            index = self._pick(unit, now)
            if index < 0:
                return
            self._issue(unit, self.instructions[index], now)
        if ready:
            self._arm(unit, unit.free)
        elif coming:
            self._arm(unit, max(coming[0][0], unit.free))

    def _pick(self, unit: Unit, now: float) -> int:
        """The first in program order; a store only once no load could be triggered (TRACE).

        -1 if that one has to wait for others that come before it.
        """
        index = unit.ready[0]
        if unit.order:
            if index > unit.order.end:
                if unit.coming:
                    self._arm(unit, max(unit.coming[0][0], unit.free))
                return -1
            unit.order.take(index)
        sync = self._core(index).units[Engine.SYNC]
        triggers = unit.engine is Engine.GPSIMD and self.instructions[index].is_store
        if triggers and (sync.ready or sync.free > now):
            self._arm(unit, max(sync.free, now + self.clockwork.trigger.value))
            return -1
        return heapq.heappop(unit.ready)

    def _issue(self, unit: Unit, one: LoweredInstruction, now: float) -> None:
        core = self.cores[one.core]
        span = Span(
            one,
            unit.engine,
            now,
            now,
            0.0,
            self.ready_at[one.index],
            self.waited_for[one.index],
            self.for_buffer[one.index],
            released_by=unit.last,
        )
        if one.transfer is not None:
            self._issue_dma(core, one, span)
        elif one.matmul is not None:
            issued = core.tensor.issue(now, one.matmul)
            span.end = issued.visible
            span.busy = issued.next - now
        else:
            timed = one.times[unit.engine]
            if unit.engine is Engine.SCALAR and _table(one) not in core.tables:
                core.tables.add(_table(one))
                span.start = now = now + self.clockwork.table_load.value
            span.end = now + timed.latency
            span.busy = timed.interval
        unit.free = span.start + span.busy
        unit.last = one.index
        self.spans[one.index] = span
        self._done(one, span)

    def _issue_dma(self, core: PhysicalCore, one: LoweredInstruction, span: Span) -> None:
        transfer = one.transfer
        assert transfer is not None
        figures = self.clockwork
        queue = core.stores if one.is_store else core.loads
        span.start = max(span.start, queue.slot())
        if one.merged:
            trigger = span.start
        elif transfer.software:
            per_partition = figures.software_per_partition.value * (transfer.partitions - 1)
            span.busy = figures.software_generation.value + per_partition
            trigger = span.start + span.busy
        elif self._generates(one):
            per_partition = figures.generation_per_partition.value * (transfer.partitions - 1)
            span.busy = figures.generation.value + per_partition
            trigger = span.start + span.busy
        else:
            span.busy = figures.trigger.value
            trigger = span.start
        span.transfer_start, span.transfer_end, span.end = core.dma.run(trigger, transfer)
        queue.done.append(span.end)
        if one.is_store:
            self.store_spans.append(span)

    def _done(self, one: LoweredInstruction, span: Span) -> None:
        """Tell those that wait for it, and free the tensors that it was the last to use."""
        for index, is_data in self.followers[one.index]:
            self._follow(index, is_data, one, span)
            self._less(index)
        if one.index in self.joined_in:
            self._join(one.index, [span])
        use = (span.end, one.index)
        for tensor in one.tensors:
            last = self.last_use.get(tensor)
            if last is None or use > last:
                self.last_use[tensor] = last = use
            self.users[tensor] -= 1
            if not self.users[tensor]:
                heapq.heappush(self.events, (last[0], _FREE, tensor))
        self.scheduled += 1
        if self.progress and self.scheduled % STEP == 0:
            self.progress(self.scheduled, len(self.instructions))

    def _follow(self, index: int, is_data: bool, one: LoweredInstruction, span: Span) -> None:
        producer = _producer(span)
        consumer = self.instructions[index].engine
        if producer is consumer and producer is not Engine.DMA:
            in_order = producer is Engine.TENSOR or not is_data
            ready = span.start if in_order else span.end + SAME_ENGINE.value
        else:
            target = _trigger_engine(self.instructions[index])
            ready = span.end + hop(producer, target)
            if self.waited_for[index] >= 0 and target in WAITS:
                ready += self._second_wait(index, producer, target)
        if ready > self.ready_at[index] or self.waited_for[index] < 0:
            self.ready_at[index] = max(ready, self.ready_at[index])
            self.waited_for[index] = one.index
            self.for_buffer[index] = False

    def _join(self, member: int, spans: list[Span]) -> None:
        """Tell the joins of which ``member`` is a part; those that are complete, their followers.

        ``spans`` are the last ones of what ended.
        """
        ended = [(member, spans)]
        while ended:
            member, spans = ended.pop()
            for number in self.joined_in.get(member, ()):
                join = self.joins[number]
                for span in spans:
                    join.take(span)
                join.missing -= 1
                if join.missing:
                    continue
                last = list(join.last.values())
                for index, is_data in join.followers:
                    for span in last:
                        self._follow(index, is_data, span.instruction, span)
                    self._less(index)
                ended.append((~number, last))

    def _second_wait(self, index: int, producer: Engine, target: Engine) -> float:
        """A second engine's semaphore takes a wait instruction of its own."""
        earlier = _producer(self._span(self.waited_for[index]))
        return WAITS[target] if earlier is not producer and earlier is not target else 0.0

    # After the last instruction

    def _finish(self, spans: list[Span]) -> float:
        """When the stores have been waited for, one after the other.

        Profiles show a wait for each store, benchmarks show none: there it is taken to be as many
        as can be under way.
        """
        end = max((span.end for span in spans), default=0.0)
        last = max((span.start for span in self.store_spans), default=0.0)
        wait = self.clockwork.final_wait.value
        now = last + wait
        figures = self.clockwork
        waits = figures.outstanding if self.dge else int(figures.final_waits.value)
        for span in sorted(self.store_spans, key=lambda span: span.end)[-waits:]:
            now = max(now, span.end) + wait
        return max(end, now)


def _producer(span: Span) -> Engine:
    """The engine whose semaphore says that an instruction is over."""
    return Engine.DMA if span.instruction.transfer is not None else span.engine


def _table(one: LoweredInstruction) -> str:
    """The table of activation functions that it needs; copies are in every table."""
    op = one.event.attributes.op if one.opcode == "activation" else None
    return op or "copy"


def _trigger_engine(one: LoweredInstruction) -> Engine:
    """The engine that waits for an instruction's operands."""
    if one.transfer is not None:
        return Engine.GPSIMD if one.is_store or one.transfer.software else Engine.SYNC
    return one.engine
