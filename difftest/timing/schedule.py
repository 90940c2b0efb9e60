"""The timeline: when each instruction of a program runs.

Each engine takes the first instruction in program order whose operands and buffers are ready. A
compiler that knows all times would choose this order. The Tensor Engine instead keeps the order of
a compiler that expects times: on a device its instructions have a fixed order in the code (TRACE).
In the current dialect the Vector and the Scalar Engine take the first instruction in program order
that could begin if results were there as soon as the engine that makes them is free, and wait for
its operands (TODAY). Engines run in parallel and wait for each other through semaphores. The same
program gives the same timeline.

The compiler's expectations are inferred:

- an instruction takes the cycles of its elements, without start-up and without delay of its result;
- a DMA takes its time alone, from its trigger to its semaphore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from difftest.simulator.trace import Engine
from difftest.timing.compiler import (
    ON_DEVICE,
    Answer,
    Compiler,
    DescriptorSource,
    Toolchain,
    descriptor_sources,
)
from difftest.timing.program import LoweredInstruction, Program, Progress
from difftest.timing.scheduler import Order, Scheduler, Timeline
from difftest.timing.units import Unit


def planned_order(program: Program, *, dge: bool | Toolchain) -> Order | None:
    """Return the compiler's order; None if instructions run as they get ready."""
    part = program.compiler.expected
    tensor = any(step.engine is Engine.TENSOR for step in program.instructions)
    if not tensor or part is None:
        return None
    planner = Planner(program, dge=dge, part=part)
    planner.run()
    return planner.taken


class Planner(Scheduler):
    """The compiler's own schedule, with the times that it expects.

    Parameters
    ----------
    part : the share of each latency that the compiler expects.
    """

    second_waits = dict.fromkeys(Engine, 0.0)
    hops = dict.fromkeys(Engine, second_waits)
    same_engine = 0.0

    def __init__(self, program: Program, *, dge: bool | Toolchain, part: float) -> None:
        super().__init__(program, dge=dge, phase=0.0)
        self.part = part
        self.taken: Order = [[] for _ in self.cores]
        self.sums: dict[int, list[int]] = {}
        """Tensor -> the remaining products that accumulate in it, the next one last."""
        self.begun: list[set[int]] = [set() for _ in self.cores]
        """Core -> the sums that have some, but not all, of their products."""
        for step in reversed(self.instructions):
            if step.matmul is not None and not step.matmul.transposes:
                self.sums.setdefault(step.tensors[0], []).append(step.index)
        for unit in self.by_number:
            unit.may_wait = unit.engine is Engine.TENSOR

    def _may_take(self, unit: Unit, place: int, now: float) -> bool:
        """Return whether it begins no sum while an earlier sum is incomplete (TRACE)."""
        step = self.instructions[place]
        if step.matmul is None or step.matmul.transposes:
            return True
        total = step.tensors[0]
        begun = self.begun[step.core]
        if total not in begun and any(self.sums[other][-1] < place for other in begun):
            if unit.coming:
                self._arm(unit, max(unit.coming[0][0], unit.free))
            return False
        left = self.sums[total]
        del left[-1 if left[-1] == place else left.index(place)]
        (begun.add if left else begun.discard)(total)
        return True

    def _issue(self, unit: Unit, step: LoweredInstruction, now: float) -> None:
        """Run an instruction as the compiler expects it to take."""
        figures = self.parameters
        engine = unit.engine
        producer = unit.engine
        if step.transfer is not None:
            producer = Engine.DMA
            source = self.sources[step.transfer.kind]
            busy = self._triggering(step, step.transfer, source, now)[0]
            dma = self.cores[step.core].dma
            time = dma.alone(step.transfer, source in ON_DEVICE) * self.part
        elif step.matmul is not None:
            busy = time = figures.cycles(engine, step.matmul.passes * step.matmul.rows)
            self.taken[step.core].append(step.index)
        else:
            busy = time = step.times[engine].cycles * self.part
        self.timeline.engine[step.index] = engine
        unit.free = now + busy
        self._done(step, (step.index, producer, now, now + time))


MIDDLE = 0.5
"""The phase of the throttle window in a prediction; it is random on the device."""


@dataclass(eq=False, slots=True)
class Span:
    """The run of one instruction; times in ns from the start of the kernel's own part."""

    instruction: LoweredInstruction
    engine: Engine
    """The engine that ran it; for a DMA the engine that triggered it."""
    start: float
    end: float
    """When its result was available; for a DMA when its semaphore was set."""
    busy: float
    """Time until its engine could take another instruction."""
    ready: float
    """When its operands were ready; it may have waited for its engine until ``start``."""
    waited_for: int
    """The instruction that made it ready; -1 if it could start at once."""
    buffer: bool
    """True if it waited for a buffer."""
    transfer_start: float = 0.0
    """For a DMA: when the DMA engine that ends last begins with it."""
    transfer_end: float = 0.0
    released_by: int = -1
    """The previous instruction on its engine."""


class PathSegment(NamedTuple):
    """The part of the time that the critical path spends in one instruction."""

    span: Span
    time: float
    """Microseconds from its start to the start of the next on the path, or to its own end."""
    next: Span | None
    """The instruction that began when this segment ended; None for the last segment."""


@dataclass(eq=False)
class Schedule:
    """The timeline of a program; times in ns from the start of the kernel's own part."""

    program: Program
    timeline: Timeline
    toolchain: Toolchain
    phase: float
    order: Order | None
    """The instruction order of the Tensor Engines; None: as instructions got ready."""

    @property
    def end(self) -> float:
        """When the wait for the last store's semaphore is over."""
        return self.timeline.finish

    def stands_for(self, other: Program, order: Order | None) -> bool:
        """Return whether this is also the timeline of a recompiled program.

        ``order`` is the other compiler's order for the Tensor Engines.
        """
        compiler = other.compiler
        if other.instructions is not self.program.instructions:
            return False
        if any(self._different_times(compiler)):
            return False
        if compiler.expected is None:
            kept = self.order in (None, list(map(sorted, self.order or ())))
            return kept and not self.timeline.held
        return order == self.order

    def _different_times(self, compiler: Compiler) -> Iterator[bool]:
        """Yield whether each decision of another compiler changes the time of an instruction."""
        program = self.program
        yield any(self.disputed_sources(compiler.descriptors))
        yield compiler.one_table and self.timeline.table_loads > program.cores
        if compiler.merged_loads != program.compiler.merged_loads:
            yield any(step.continues for step in program.instructions)

    @cached_property
    def descriptor_sources(self) -> dict[str, DescriptorSource]:
        """Kind of DMA -> the source of its descriptors."""
        program = self.program
        answer = program.compiler.descriptors
        return descriptor_sources(self.toolchain, program.machine, answer)

    def disputed_sources(self, answer: Answer) -> tuple[set[DescriptorSource], ...]:
        """Return the descriptor sources of the DMAs for which another answer has other ones.

        Returns
        -------
        The sources of this timeline, and the sources of the answer.
        """
        mine = self.descriptor_sources
        other = descriptor_sources(self.toolchain, self.program.machine, answer)
        kinds = [k for k in self.program.dma_kinds if mine[k] is not other[k]]
        return {mine[kind] for kind in kinds}, {other[kind] for kind in kinds}

    @cached_property
    def residence(self) -> dict[int, tuple[float, float]]:
        """On-chip allocation -> when its first instruction began and its last one ended.

        Sorted by their ends.
        """
        start = self.timeline.start
        opener = self.program.dependence_graph.opener
        ends = sorted(
            (end, tensor) for tensor, (end, _) in self.timeline.last_use.items()
        )
        return {tensor: (start[opener[tensor]], end) for end, tensor in ends}

    @cached_property
    def path(self) -> list[PathSegment]:
        """The critical path, from its first to its last instruction.

        Each instruction waited for the previous one: for its result, its buffer, or its engine.
        Their times add up to the end of the last one.
        """
        ends = self.timeline.end
        until = max(ends)
        spans = self.spans
        span: Span | None = spans[len(ends) - 1 - ends[::-1].index(until)]
        chain: list[PathSegment] = []
        following: Span | None = None
        while span is not None:
            before = span.released_by if waited_for_engine(span) else span.waited_for
            previous = None if before < 0 else spans[before]
            since = min(span.start, until) if previous is not None else 0.0
            chain.append(PathSegment(span, (until - since) / 1e3, following))
            until = since
            following = span
            span = previous
        return chain[::-1]

    @cached_property
    def critical(self) -> dict[int, float]:
        """Instruction on the critical path -> its microseconds there, in order."""
        return {segment.span.instruction.index: segment.time for segment in self.path}

    @cached_property
    def spans(self) -> list[Span]:
        """The span of each instruction, in program order."""
        runs = zip(*self.timeline.columns, strict=True)
        steps = self.program.instructions
        return [Span(step, *run) for step, run in zip(steps, runs, strict=True)]


def schedule(
    program: Program,
    *,
    dge: bool | Toolchain,
    phase: float = MIDDLE,
    order: Order | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """Return the timeline of ``program``.

    Parameters
    ----------
    program : the program to run.
    dge : who makes descriptors: a toolchain, or whether a classic toolchain generates them on the
        device.
    phase : the part of a throttle window that had passed when the kernel began, 0 to 1.
    order : the compiler's order for the Tensor Engines, if you have it.
    progress : called at intervals.
    """
    order = order or planned_order(program, dge=dge)
    scheduler = Scheduler(program, dge=dge, phase=phase, order=order, progress=progress)
    return Schedule(program, scheduler.run(), scheduler.toolchain, phase, order)


def reschedule_without(schedule: Schedule, spared: Mapping[int, float]) -> Timeline:
    """Return the timeline if a share of some instructions took no time; all keep their order."""
    phase = schedule.phase
    order = schedule.order
    again = Scheduler(
        schedule.program, dge=schedule.toolchain, phase=phase, order=order
    )
    again.spared = spared
    return again.run()


def waited_for_engine(span: Span) -> bool:
    """Return whether the operands were ready before the engine was."""
    return span.start > span.ready and span.released_by >= 0


def waited_for_place(span: Span) -> bool:
    """Return whether it waited for a place to write to, and not for an operand.

    The compiler decides which tensors share a place, and when a tensor that is written again
    gets a new place.
    """
    if waited_for_engine(span) or span.waited_for < 0:
        return False
    step = span.instruction
    return span.buffer or (
        span.waited_for in step.order and span.waited_for not in step.data
    )
