"""The interval of a prediction: the range that would hold a device's time.

A range is a bet of nine to one, before any comparison with a device, that the true time is between
``low`` and ``high`` times the model's. Rows whose evidence is weaker than usual for their kind have
a range of their own (``data/ranges.csv``), each with a reason; every assumed row has one.

The interval of a kernel's time follows from the ranges that contribute to it. It is widened by the
result of comparing whole kernels with devices (docs/explanation/timing-model.md).
:mod:`difftest.timing.calibration` counts the published latencies that are inside when the scale
comes from the other kernels only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from difftest.simulator.trace import Engine, Purpose
from difftest.timing.compiler import ON_DEVICE
from difftest.timing.cost_table import Cost
from difftest.timing.dma import Transfer
from difftest.timing.evidence import Evidence, rows_of
from difftest.timing.program import LoweredInstruction
from difftest.timing.schedule import Schedule, Span, waited_for_place


class Range(NamedTuple):
    """Factors: the true time is from ``low`` to ``high`` times the model's."""

    low: float
    high: float

    def with_all_of(self, other: Range) -> Range:
        """Return the smallest range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


MEASURED = Range(0.95, 1.05)
"""A row of cycles and start-up time from many samples; contention remains."""
DOCUMENTED = Range(0.8, 1.3)
"""Formulas of the documentation, which traces showed to be off by up to 30 %."""
OTHER_MACHINE = Range(0.7, 1.5)
"""A trn2 row used for another machine: trn1's probes differed by this much from trn2's rows."""
ASSUMED = Range(0.5, 2.0)
"""Unpublished figures in the models of DMA and of the Tensor Engine."""
GENERATED = Range(0.85, 1.1)
"""DMAs with device-generated descriptors: from a few published latencies of kernels."""
ADDRESSED = Range(0.9, 1.35)
"""DMAs whose address is in a register. GpSimd issues them in order, and each waits for a place,
which tiles of the previous iteration may still hold. In a trace with eight iterations, all but
two had such a wait."""
ELEMENTS = Range(0.7, 1.3)
"""Rows of a few bytes from the hardware's generator, with and without gaps between them."""
CHOSEN = Range(0.7, 1.2)
"""Instructions on an engine that the compiler chooses. The choice is inferred, and the removal of
repeated copies is not modelled."""
PLACED = Range(0.4, 1.1)
"""A wait for a place in memory only: the compiler may choose another place, without a wait."""
PARTIAL = Range(0.85, 1.35)
"""Products that fill a part of the PE array. On trn2 they are as fast as whole products, or up to
1.6 times as slow; probes on trn1 show 1.21 to 1.92 times."""
PROBED_PRODUCTS = Range(0.85, 1.65)
"""Products on trn1. The model has one rate; the probes of whole products differ this much."""
SPILLED = Range(0.9, 3.0)
"""A kernel with half or more of its tensors beyond SBUF: the cost of spilling is not modelled."""

BASE = "trn2"
"""The machine that most figures were measured on."""


def spilled(part: float) -> Range:
    """Return the range for a kernel that spills; ``part`` is the excess relative to SBUF.

    One published matmul keeps 8 % more than fits, according to the kernel here that follows its
    description. It takes no longer than a matmul that fits.
    """
    most = SPILLED.high - 1.0
    return Range(SPILLED.low, 1.0 + most * min(1.0, 2.0 * part))


def range_of(cost: Cost) -> Range:
    """Return the range of an instruction's row."""
    own = own_ranges().get((cost.instruction, cost.evidence))
    if own is not None:
        return own
    if cost.evidence is Evidence.ASSUMED and cost.machine == BASE:
        raise ValueError(
            f"ranges.csv has no range for the assumed cost of {cost.instruction}"
        )
    return range_of_evidence(cost.evidence, cost.machine)


def range_of_evidence(evidence: Evidence, machine: str) -> Range:
    """Return the range of figures in the DMA and Tensor Engine models, by their evidence."""
    if evidence is Evidence.MEASURED:
        return MEASURED
    if evidence is Evidence.DOCUMENTED:
        return DOCUMENTED
    return ASSUMED if machine == BASE else OTHER_MACHINE


@cache
def own_ranges() -> dict[tuple[str, Evidence], Range]:
    """Return ``data/ranges.csv`` as instruction and evidence -> range."""
    return {
        (row["instruction"], Evidence(row["evidence"])): Range(
            float(row["low"]), float(row["high"])
        )
        for row in rows_of("ranges")
    }


COVERAGE = 0.9
"""The share of published latencies that intervals should hold."""
MODEL = Range(0.95, 1.05)
"""Effects in every kernel that the model does not cover."""
SCALE = 3.3
"""The factor that widens ``MODEL``. 2.4 holds ``COVERAGE`` of published latencies; this scale holds
as many, and half of these intervals are narrower than 35 %."""
LAUNCH = 3.0
"""Uncertainty of the launch's part of nc_latency, in microseconds (WRITEUP: 9 to 15 us in all)."""
LAUNCHED = 8.0
"""Uncertainty of times with the whole launch in them (SWEEP: the rest of half of ten products)."""
PROFILE = 0.4
"""Uncertainty of a profile's preamble and postamble (TRACE)."""
LONG_PROFILE = 3.0
"""Uncertainty of a long kernel's postamble (TRACE: 8 to 14 us)."""

INFERRED = "inferred"
"""The evidence of the compiler's decisions, in addition to the classes of evidence."""

DEPENDS = 1.2
"""The least factor between two compilers that makes a time depend on the compiler."""
WIDE = 0.6
"""The least width of an interval, relative to the prediction, that a caution mentions."""
TWO_CORES = Range(0.87, 1.15)
"""Effects of two cores other than the rates of HBM and of DMA engines: the order of semaphores.
Published splits over two cores made kernels 1.65 to 1.94 times faster."""
MAINLY = 0.4
"""The least share of the time that makes a kind of evidence a main one."""
WEAK = (Evidence.ASSUMED.value, INFERRED, Evidence.DOCUMENTED.value)
"""The kinds of evidence that a caution names if they are main ones."""


class ErrorSource(NamedTuple):
    """A group of critical-path segments whose errors are correlated."""

    kind: str
    """"measured", "documented", "assumed", or "inferred" of the compiler."""
    subject: str
    """The instructions, or the compiler's decision."""


class Interval(NamedTuple):
    """Microseconds that hold a device's time nine times out of ten."""

    low: float
    high: float

    @property
    def spread(self) -> float:
        """The logarithm of the factor between its ends."""
        return math.log(self.high / self.low)


class Unknown(NamedTuple):
    """The fact that a prediction depends on most, with the time of two answers in us."""

    question: str
    answers: tuple[tuple[float, str], tuple[float, str]]
    """The answers that give the least and the most time."""
    rest: Interval
    """The interval if the answer were known to be the one that was taken."""

    def __str__(self) -> str:
        times = ", ".join(f"{time:,.1f} us {answer}" for time, answer in self.answers)
        return f"the largest unknown is {self.question}: {times}"


@dataclass(frozen=True)
class ErrorBudget:
    """The evidence for a kernel's own time; microseconds."""

    times: dict[ErrorSource, float]
    """Time on the critical path for each source."""
    ranges: dict[ErrorSource, tuple[float, float]]
    """Logarithms of each source's range, weighted with its time: less, more."""
    busiest: float
    """The longest busy time of one engine with every cost at the top of its range."""
    streaming: float
    """The Tensor Engine's time to stream the rows of whole products at full speed."""
    spilling: tuple[float, float] = (0.0, 0.0)
    """Possible effect of spilling, as logarithms weighted with the time: less, more."""
    whole: tuple[float, float] = (0.0, 0.0)
    """Possible error of the whole time, in the same form. Only this part is scaled."""

    @property
    def shares(self) -> dict[str, float]:
        """Return kind of evidence -> its share of the critical path, the largest first."""
        total = sum(self.times.values())
        parts: dict[str, float] = {}
        for source, time in self.times.items():
            parts[source.kind] = parts.get(source.kind, 0.0) + time / total
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    @property
    def widest(self) -> ErrorSource:
        """Return the source with the largest effect on the time."""
        return max(self.ranges, key=lambda source: sum(self.ranges[source]))

    def without(self, source: ErrorSource) -> ErrorBudget:
        """Return the budget if the times of a source were known."""
        ranges = {each: logs for each, logs in self.ranges.items() if each != source}
        return replace(self, ranges=ranges, busiest=0.0)


def width(span: Interval, predicted: float) -> float:
    """Return the width of an interval, relative to the prediction."""
    return (span.high - span.low) / predicted


def error_budget(schedule: Schedule) -> ErrorBudget:
    """Return the error budget of ``schedule``."""
    times: dict[ErrorSource, float] = {}
    ranges: dict[ErrorSource, tuple[float, float]] = {}

    def add(source: ErrorSource, time: float, within: Range) -> None:
        less, more = ranges.get(source, (0.0, 0.0))
        times[source] = times.get(source, 0.0) + time
        less = less - time * math.log(within.low)
        more = more + time * math.log(within.high)
        ranges[source] = less, more

    costs: dict[tuple[int, int, Engine], tuple[ErrorSource, Range]] = {}
    for segment in schedule.path:
        step = segment.span.instruction
        engine = segment.span.engine
        if segment.next is not None and waited_for_place(segment.next):
            add(ErrorSource(INFERRED, "places in memory"), segment.time, PLACED)
            continue
        # instructions of one form share these objects
        key = (id(step.times), id(step.transfer or step.matmul), engine)
        if key not in costs:
            costs[key] = _cost_of(segment.span, schedule)
        source, within = costs[key]
        add(source, segment.time, within)
    own = schedule.end / 1e3
    after = max(0.0, own - schedule.path[-1].span.end / 1e3)
    add(ErrorSource(Evidence.MEASURED.value, "the last waits"), after, MEASURED)
    whole = (-own * math.log(MODEL.low), own * math.log(MODEL.high))
    if schedule.program.cores > 1:
        shared = ErrorSource(INFERRED, "what two cores share")
        ranges[shared] = -own * math.log(TWO_CORES.low), own * math.log(TWO_CORES.high)
    spilling = (0.0, 0.0)
    if schedule.timeline.spilled:
        room = schedule.program.machine.sbuf_usable_bytes
        spills = spilled(schedule.timeline.spilled / room)
        spilling = (-own * math.log(spills.low), own * math.log(spills.high))
    return ErrorBudget(
        times,
        ranges,
        busiest=_busiest(schedule),
        streaming=_streaming(schedule),
        spilling=spilling,
        whole=whole,
    )


def _cost_of(span: Span, schedule: Schedule) -> tuple[ErrorSource, Range]:
    """Return the error source and the range of an instruction's own time."""
    step = span.instruction
    if step.transfer is not None:
        return _transfer_budget(step, step.transfer, schedule)
    if step.matmul is not None:
        return _product_budget(step, schedule)
    cost = step.times[span.engine].cost
    if cost is None:
        return ErrorSource(Evidence.ASSUMED.value, step.opcode), ASSUMED
    within = range_of(cost)
    if step.engine is Engine.UNKNOWN:
        shared = ErrorSource(INFERRED, "copies shared among engines")
        return shared, within.with_all_of(CHOSEN)
    return ErrorSource(cost.evidence.value, step.opcode), within


def _transfer_budget(
    step: LoweredInstruction, moved: Transfer, schedule: Schedule
) -> tuple[ErrorSource, Range]:
    machine = schedule.program.machine.name
    purpose = step.event.purpose
    if purpose in (Purpose.TRANSPOSE, Purpose.SUM):
        return ErrorSource(Evidence.DOCUMENTED.value, step.opcode), DOCUMENTED
    if purpose is not Purpose.COPY:
        return ErrorSource(Evidence.ASSUMED.value, step.opcode), ASSUMED
    within = range_of_evidence(step.modelled, machine)
    if schedule.descriptor_sources[moved.kind] in ON_DEVICE:
        least = schedule.program.parameters.element_bytes
        subject = "DMAs with generated descriptors"
        within = within.with_all_of(GENERATED)
        if moved.kind == "register":
            subject = "DMAs whose place a register names"
            within = ADDRESSED
        elif moved.row_bytes <= least and moved.rows > 2 * moved.partitions:
            subject = "DMAs in rows of single elements"
            within = ELEMENTS
        return ErrorSource(step.modelled.value, subject), within
    return ErrorSource(step.modelled.value, "DMAs"), within


def _product_budget(
    step: LoweredInstruction, schedule: Schedule
) -> tuple[ErrorSource, Range]:
    machine = schedule.program.machine
    assert step.matmul is not None
    if step.matmul.width > 1:
        fast = ErrorSource(Evidence.DOCUMENTED.value, "products in a fast mode")
        return fast, DOCUMENTED
    within = PROBED_PRODUCTS
    if machine.nc_version >= 3:
        within = range_of_evidence(step.modelled, machine.name)
    if step.matmul.partial:
        partial = ErrorSource(step.modelled.value, "products of part of the PE array")
        return partial, within.with_all_of(PARTIAL)
    return ErrorSource(step.modelled.value, "products"), within


def _busiest(schedule: Schedule) -> float:
    """Return the longest busy time of an engine if all costs are at the top of their ranges.

    A cost that overlaps with others now may become the limit.
    """
    busy: dict[tuple[int, Engine], float] = {}
    highs: dict[int, float] = {}
    when = schedule.timeline
    instructions = schedule.program.instructions
    for step, engine, time in zip(instructions, when.engine, when.busy, strict=True):
        if step.times:
            timed = step.times[engine]
            key = id(timed.cost)
            if key not in highs:
                highs[key] = range_of(timed.cost).high if timed.cost else ASSUMED.high
            unit = step.core, engine
            busy[unit] = busy.get(unit, 0.0) + time * highs[key]
    return max(busy.values(), default=0.0) / 1e3


def _streaming(schedule: Schedule) -> float:
    """Return a lower bound of the time: the clock and the rows are certain."""
    program = schedule.program
    cycles = [0.0] * program.cores
    for step in program.instructions:
        if step.matmul is not None and not step.matmul.partial:
            cycles[step.core] += step.matmul.passes * step.matmul.rows
    return program.parameters.cycles(Engine.TENSOR, max(cycles)) / 1e3


@dataclass(frozen=True)
class Estimate:
    """A predicted time in microseconds, and the parts of its interval."""

    ground: ErrorBudget
    """The evidence for the kernel's own part."""
    own: float
    fixed: float
    """Time that the launch or the profiler adds to the kernel's own part."""
    unsure: float
    """Uncertainty of the fixed part."""
    random: float
    """The largest change of the time by the phase of the throttle window."""
    compiled: Interval | None = None
    """The kernel's own part with the fastest and slowest compiler; None if none matters."""

    @property
    def total(self) -> float:
        return self.own + self.fixed

    def interval(self, scale: float = SCALE) -> Interval:
        """Return the interval that would hold a device's time; a larger scale is wider."""
        ends = []
        for side, other in enumerate(self.compiled or (self.own, self.own)):
            parts = [logs[side] for logs in self.ground.ranges.values()]
            parts += [scale * self.ground.whole[side], self.ground.spilling[side]]
            parts += [self.unsure, self.random]
            costs = math.hypot(*parts) / self.total
            ends.append(math.hypot(costs, math.log((other + self.fixed) / self.total)))
        least = min(self.total, self.ground.streaming + self.fixed - self.unsure)
        return Interval(
            max(self.total * math.exp(-ends[0]), least),
            max(self.total * math.exp(ends[1]), self.fixed + self.ground.busiest),
        )
