"""The scheduler: computes the timeline that :mod:`difftest.timing.schedule` describes.

This is the inner loop of a prediction. The data of instructions are in lists, one list for each
property, so that no object is created for an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from difftest.simulator.trace import Allocation, Engine
from difftest.timing.buffers import Memory
from difftest.timing.compiler import (
    ON_DEVICE,
    DescriptorSource,
    Toolchain,
    descriptor_sources,
)
from difftest.timing.dma import INDIRECT, SharedHbm, Transfer, software_transfer
from difftest.timing.parameters import HOPS, SAME_ENGINE, WAITS
from difftest.timing.program import STEP, LoweredInstruction, Program, Progress
from difftest.timing.units import PhysicalCore, Unit


class Timeline:
    """Times in ns from the start of the kernel's own part; each list is by instruction.

    :class:`~difftest.timing.schedule.Span` describes each list. ``finish`` is when the wait for the
    last store's semaphore is over.
    """

    def __init__(self, count: int) -> None:
        self.engine = [Engine.UNKNOWN] * count
        self.start = [0.0] * count
        self.end = [0.0] * count
        self.busy = [0.0] * count
        self.ready = [0.0] * count
        self.waited_for = [-1] * count
        self.buffer = [False] * count
        self.transfer_start = [0.0] * count
        self.transfer_end = [0.0] * count
        self.released_by = [-1] * count
        self.columns: tuple[list[Any], ...] = tuple(vars(self).values())
        """All lists above, in this order."""
        self.finish = 0.0
        self.cold_time = 0.0
        """Streaming time of the Tensor Engine at half speed."""
        self.held = False
        """True if an engine waited where it could have taken another instruction."""
        self.stores_in_software = False
        self.table_loads = 0
        self.spilled = 0
        """Excess of the live tensors over SBUF, bytes per partition: spilling is not modelled."""
        self.last_use: dict[int, tuple[float, int]] = {}
        """On-chip allocation -> the end and the number of the last instruction that uses it."""


NEVER = float("inf")
FREE = 1 << 30
"""The kind of the event that frees a tensor's place; engines have lower numbers."""


KEPT_IN_ORDER = (Engine.VECTOR, Engine.SCALAR)
"""Engines whose instructions the compiler of the current dialect orders as if each could begin when
the last one's engine is free (TODAY)."""
Order = list[list[int]]
"""Core -> the instructions of its Tensor Engine, in order of execution."""
Ended = tuple[int, Engine, float, float]
"""An issued instruction, for its followers: its number, the engine that sets its
semaphore, its start and its end in ns."""


class Join:
    """Instructions that others wait for together."""

    __slots__ = ("last", "missing")

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.last: dict[tuple[Engine, bool], Ended] = {}
        """For each engine, the instruction that starts last and the one that ends last. Waits for
        others are unnecessary."""

    def take(self, ended: Ended) -> None:
        """Count an issued instruction."""
        _, producer, start, end = ended
        last_to_start = self.last.get((producer, False))
        if last_to_start is None or start > last_to_start[2]:
            self.last[producer, False] = ended
        last_to_end = self.last.get((producer, True))
        if last_to_end is None or end > last_to_end[3]:
            self.last[producer, True] = ended


def _scarce_memories(cores: Sequence[PhysicalCore]) -> dict[int, Memory]:
    """Return the memory of each on-chip allocation, if tensors wait for it at the start."""
    scarce = {}
    for core in cores:
        for memory in core.buffers.values():
            if memory.waiting:
                scarce.update(dict.fromkeys(memory.sizes, memory))
    return scarce


class Scheduler:
    """See :func:`difftest.timing.schedule.schedule`."""

    hops: Mapping[Engine, Mapping[Engine, float]] = HOPS
    same_engine = SAME_ENGINE
    second_waits: Mapping[Engine, float] = WAITS
    """The cost of a second engine's semaphore: it needs a wait instruction of its own."""

    def __init__(
        self,
        program: Program,
        *,
        dge: bool | Toolchain,
        phase: float,
        order: Order | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.program = program
        self.instructions = program.instructions
        self.parameters = program.parameters
        self.toolchain = Toolchain.of(dge, "")
        self.sources = descriptor_sources(
            self.toolchain, program.machine, program.compiler.descriptors
        )
        self.progress = progress
        hbm = SharedHbm(self.parameters.shared_hbm.value) if program.cores > 1 else None
        self.cores = [
            PhysicalCore(program, number, phase, hbm) for number in range(program.cores)
        ]
        self.by_number = [unit for core in self.cores for unit in core.units.values()]
        count = len(self.instructions)
        self.timeline = Timeline(count)
        self.ready = self.timeline.ready
        self.expected = self.ready
        """When the compiler takes each instruction to be ready."""
        if program.as_written and program.compiler.expected is not None:
            self.expected = self.ready.copy()
        self.producers = [Engine.UNKNOWN] * count
        """The engine whose semaphore marks the end of each instruction."""
        self.graph = program.dependence_graph
        self.missing = self.graph.missing.copy()
        self.joins = [Join(len(members)) for members in program.joins]
        self.stores: list[int] = []
        self.spared: Mapping[int, float] = {}
        """Instruction -> the share of it that takes no time."""
        self.scarce = _scarce_memories(self.cores)
        self.users = program.users.copy()
        self.events: list[tuple[float, int, int]] = []
        self.scheduled = 0
        self.position: Sequence[int] = range(count)
        """Instruction -> its place in its engine's heap; for the Tensor Engine, the compiler's
        order."""
        self.at: Sequence[int] = range(count)
        """The inverse of ``position``."""
        if order:
            self._follow_order(order)

    def run(self) -> Timeline:
        """Return the timeline."""
        events = self.events
        units = self.by_number
        for step, count in zip(self.instructions, self.missing, strict=True):
            if not count:
                self._enqueue(step)
        while events:
            now, kind, what = heappop(events)
            if kind == FREE:
                for granted in self.scarce[what].release(
                    self.program.allocations[what]
                ):
                    self._grant(granted, now, self.timeline.last_use[what][1])
            elif now == units[kind].wake:  # else an earlier wake-up replaced it
                self._wake(units[kind], now)
        if self.scheduled < len(self.instructions):
            raise RuntimeError(
                "the schedule is stuck: instructions wait for each other"
            )
        timeline = self.timeline
        timeline.finish = self._finish()
        timeline.cold_time = sum(core.tensor.throttle.cold_time for core in self.cores)
        timeline.table_loads = sum(core.table_loads for core in self.cores)
        timeline.spilled = max(
            buffer.spilled for buffer in self.program.dependence_graph.buffers
        )
        return timeline

    # Before the first instruction

    def _follow_order(self, order: Order) -> None:
        """Make the Tensor Engines take their instructions in exactly this order."""
        self.position, self.at = position, at = list(self.position), list(self.at)
        for core, taken in zip(self.cores, order, strict=True):
            places = sorted(taken)
            for place, index in zip(places, taken, strict=True):
                position[index], at[place] = place, index
            core.units[Engine.TENSOR].places = places[::-1]

    def _load_table(self, core: PhysicalCore, table: str) -> float:
        """Return the time to load a function's table; 0 if the Scalar Engine has the table."""
        if table == core.table or self.program.compiler.one_table:
            return 0.0
        core.table = table
        core.table_loads += 1
        return self.parameters.table_load.value

    # Readiness

    def _grant(self, allocation: Allocation, now: float, by: int) -> None:
        """Note that a tensor got its place, which instruction ``by`` freed."""
        index = self.graph.opener[allocation.id]
        now += HOPS[self.timeline.engine[by]][self.instructions[index].engine]
        if now > self.ready[index]:
            self.ready[index] = now
            self.timeline.waited_for[index] = by
            self.timeline.buffer[index] = True
        self.expected[index] = max(self.expected[index], now)
        self.missing[index] -= 1
        if not self.missing[index]:
            self._enqueue(self.instructions[index])

    def _enqueue(self, step: LoweredInstruction) -> None:
        """Pass a ready instruction to its engine."""
        ready = self.expected[step.index]
        core = self.cores[step.core]
        engine = step.engine
        if step.transfer is not None:
            source = self.sources[step.transfer.kind]
            engine = step.trigger
            if source is DescriptorSource.SOFTWARE:
                engine = Engine.GPSIMD
            elif source is not DescriptorSource.LAID_DOWN:
                engine = core.generator(self.toolchain.generators)
        elif engine is Engine.UNKNOWN:
            engine = core.sharing.choose(step, ready)
        elif self.graph.shares and (engine is Engine.VECTOR or engine is Engine.SCALAR):
            core.sharing.add(engine, step, ready)
        unit = core.units[engine]
        heappush(unit.coming, (ready, self.position[step.index]))
        time = ready if ready > unit.free else unit.free
        if time < unit.wake:  # inlined _arm: each instruction passes here
            unit.wake = time
            heappush(self.events, (time, unit.number, 0))

    def _arm(self, unit: Unit, time: float) -> None:
        if time < unit.wake:
            unit.wake = time
            heappush(self.events, (time, unit.number, 0))

    # Issue

    def _wake(self, unit: Unit, now: float) -> None:
        """Let an engine issue its next instruction, and set when it wakes next."""
        unit.wake = NEVER
        coming = unit.coming
        ready = unit.ready
        while coming and coming[0][0] <= now:
            heappush(ready, heappop(coming)[1])
        if ready:
            if unit.may_wait and not self._may_take(unit, ready[0], now):
                return
            self._issue(unit, self.instructions[self.at[heappop(ready)]], now)
        time = unit.free
        if not ready:
            if not coming:
                return
            time = max(coming[0][0], time)
        self._arm(unit, time)

    def _may_take(self, unit: Unit, place: int, now: float) -> bool:
        """Return whether the first ready instruction may precede others that are not ready.

        The Tensor Engine keeps its order. A store runs when no load could be triggered (TRACE).
        """
        if unit.places:
            if unit.places[-1] != place:
                self.timeline.held = True
                if unit.coming:
                    self._arm(unit, max(unit.coming[0][0], unit.free))
                return False
            unit.places.pop()
        elif self.instructions[self.at[place]].is_store:
            sync = self.cores[self.instructions[self.at[place]].core].units[Engine.SYNC]
            if sync.ready or sync.free > now:
                self._arm(unit, max(sync.free, now + self.parameters.trigger.value))
                return False
        return True

    def _issue(self, unit: Unit, step: LoweredInstruction, now: float) -> None:
        """Run an instruction on an engine, and note its times."""
        timeline = self.timeline
        index = step.index
        engine = unit.engine
        core = self.cores[step.core]
        producer = engine
        if now < self.ready[index]:  # its engine waits for its operands
            now = self.ready[index]
            timeline.held = True
        keep = 1.0 - self.spared.get(index, 0.0) if self.spared else 1.0
        if step.transfer is not None:
            producer = Engine.DMA
            now, end, busy = self._issue_dma(core, step, step.transfer, now)
        elif not keep:
            end = now
            busy = 0.0
        elif step.matmul is not None:
            work = step.matmul
            if keep < 1.0:  # its weights do not delay it either
                work = work._replace(rows=work.rows * keep, strided=False)
            end, following = core.tensor.issue(now, work)
            busy = following - now
        else:
            timed = step.times[engine]
            if timed.table and engine is Engine.SCALAR:
                now += self._load_table(core, timed.table)
            end = now + timed.latency * keep
            busy = timed.interval * keep
        timeline.engine[index] = engine
        timeline.start[index] = now
        timeline.end[index] = end
        timeline.busy[index] = busy
        timeline.released_by[index] = unit.last
        self.producers[index] = producer
        unit.free = now + busy
        unit.last = index
        self._done(step, (index, producer, now, end))

    def _issue_dma(
        self,
        core: PhysicalCore,
        step: LoweredInstruction,
        transfer: Transfer,
        now: float,
    ) -> tuple[float, float, float]:
        """Trigger a DMA; return when it began, when it is done, and how long its engine took."""
        keep = 1.0 - self.spared.get(step.index, 0.0)
        queue = core.stores if step.is_store else core.loads
        if not keep:
            return now, now, 0.0
        now = max(now, queue[0] + HOPS[Engine.DMA][Engine.SYNC])
        source = self.sources[transfer.kind]
        busy, start = self._triggering(step, transfer, source, now)
        if source is DescriptorSource.SOFTWARE:
            transfer = software_transfer(transfer)
        if keep < 1.0:
            busy *= keep
            rows = tuple(
                (engine, round(count * keep)) for engine, count in transfer.busy
            )
            transfer = transfer._replace(busy=rows)
        begin, finish, end = core.dma.run(start, transfer, source in ON_DEVICE)
        self.timeline.transfer_start[step.index] = begin
        self.timeline.transfer_end[step.index] = finish
        queue.append(end)
        if step.is_store:
            self.stores.append(step.index)
            self.timeline.stores_in_software |= source is DescriptorSource.SOFTWARE
        return now, end, busy

    def _triggering(
        self,
        step: LoweredInstruction,
        transfer: Transfer,
        source: DescriptorSource,
        now: float,
    ) -> tuple[float, float]:
        """Return how long a DMA triggered at ``now`` keeps its engine, and when it starts."""
        figures = self.parameters
        core = self.cores[step.core]
        others = transfer.partitions - 1
        if step.continues and self.program.compiler.merged_loads:
            return 0.0, now
        if step.event.purpose in INDIRECT:
            each = figures.indirect_per_partition.value
            busy = figures.indirect_generation.value + each * others
            return busy, now + busy
        if source is DescriptorSource.SOFTWARE:
            dispatch = figures.software_dispatch
            start = figures.software_start
            if transfer.kind == "register":  # its address is loaded first (TODAY)
                dispatch = figures.addressed_generation
                start = figures.addressed_start
            keep = 1.0 - self.spared.get(step.index, 0.0)
            return core.software.take(
                now, dispatch.value * keep, start.value * keep, keep
            )
        if source is DescriptorSource.HARDWARE:
            busy = (
                figures.generation.value
                + figures.generation_per_partition.value * others
            )
            return busy, now + busy
        if source is DescriptorSource.IN_TURN:
            return core.dma.moving_time(transfer), now
        return figures.trigger.value, now

    def _done(self, step: LoweredInstruction, ended: Ended) -> None:
        """Notify the followers of an instruction, and free the tensors that it used last."""
        index = step.index
        followers = self.graph.followers[index]
        if followers:
            self._tell(followers, ended, 1)
        if index in self.graph.joined_in:
            self._join(index, [ended])
        use = (ended[3], index)
        last_use = self.timeline.last_use
        scarce = self.scarce
        for tensor in step.tensors:
            last = last_use.get(tensor)
            if last is None or use > last:
                last_use[tensor] = use
            if tensor in scarce:
                self.users[tensor] -= 1
                if not self.users[tensor] and scarce[tensor].waiting:
                    heappush(self.events, (last_use[tensor][0], FREE, tensor))
        self.scheduled += 1
        if self.progress and self.scheduled % STEP == 0:
            self.progress(self.scheduled, len(self.instructions))

    def _tell(self, codes: list[int], ended: Ended, part: int) -> None:
        """Delay instructions until a result is available, or until its operands are read.

        ``part`` is 1 if this completes one of the dependences that they count, else 0.
        """
        by, producer, start, end = ended
        instructions = self.instructions
        missing = self.missing
        all_ready = self.ready
        expected = self.expected
        hops = self.hops[producer]
        waited_for = self.timeline.waited_for
        buffer = self.timeline.buffer
        in_order = None if producer is Engine.DMA else producer
        issued = start + self.timeline.busy[by]
        after_write = start if producer is Engine.TENSOR else end + self.same_engine
        for code in codes:
            follower = code >> 1
            consumer = instructions[follower]
            earlier = waited_for[follower]
            if consumer.engine is in_order:
                ready = after_write if code & 1 else start
            else:
                target = consumer.trigger
                ready = end + hops[target]
                if earlier >= 0 and self.producers[earlier] not in (producer, target):
                    ready += self.second_waits[target]
            if expected is not all_ready:
                handed = ready
                if in_order is not None and consumer.engine in KEPT_IN_ORDER:
                    handed = min(ready, issued)
                if handed > expected[follower]:
                    expected[follower] = handed
            if ready > all_ready[follower]:
                all_ready[follower] = ready
                earlier = -1
            if earlier < 0:
                waited_for[follower] = by
                buffer[follower] = False
            missing[follower] -= part
            if not missing[follower]:
                self._enqueue(consumer)

    def _join(self, member: int, last: list[Ended]) -> None:
        """Update the joins that contain ``member``; notify the followers of complete joins.

        ``last`` holds the last instructions among those that ended.
        """
        ended = [(member, last)]
        while ended:
            member, last = ended.pop()
            for number in self.graph.joined_in.get(member, ()):
                join = self.joins[number]
                for end in last:
                    join.take(end)
                join.missing -= 1
                if join.missing:
                    continue
                latest = list(join.last.values())
                for place, end in enumerate(latest, 1):
                    self._tell(
                        self.graph.join_followers[number], end, place == len(latest)
                    )
                ended.append((~number, latest))

    # After the last instruction

    def _finish(self) -> float:
        """Return when the waits for the stores are over, one after the other.

        Profiles show a wait for each store. Benchmarks show none; there the number of waits is
        assumed to be the number of DMAs in flight.
        """
        timeline = self.timeline
        end = max(timeline.end, default=0.0)
        last = max((timeline.start[store] for store in self.stores), default=0.0)
        figures = self.parameters
        wait = self.parameters.final_wait.value
        now = last + wait
        profiled = self.toolchain is Toolchain.CLASSIC_PROFILE
        waits = int(figures.final_waits.value) if profiled else figures.outstanding
        for done in sorted(timeline.end[store] for store in self.stores)[-waits:]:
            now = max(now, done) + wait
        return max(end, now)
