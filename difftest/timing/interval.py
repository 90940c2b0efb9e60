"""Between which times a device's would lie: the interval of a prediction, from what it rests on.

A range is what one would bet nine to one on before any comparison with a device: the true time lies
between ``low`` and ``high`` times the model's. Rows whose evidence says less than most of their
kind have a range of their own (``data/ranges.csv``), each with a reason; every assumed row has one.
Of the ranges that a kernel's time rests on the interval of the whole is made, and widened by what
the comparison of whole kernels with devices showed (docs/explanation/intervals.md).
:mod:`difftest.timing.calibration` says how many published latencies lie inside when the scale is
taken from the other kernels alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from difftest.simulator.trace import Engine, Purpose
from difftest.timing.compiler import ON_DEVICE, descriptor_sources
from difftest.timing.cost_table import Cost
from difftest.timing.dma import Transfer
from difftest.timing.evidence import Evidence, rows_of
from difftest.timing.program import LoweredInstruction
from difftest.timing.schedule import Schedule, Span, waited_for_place


class Range(NamedTuple):
    """Factors: the true time is from ``low`` to ``high`` times what the model says."""

    low: float
    high: float

    def with_all_of(self, other: Range) -> Range:
        """From the lower of the lows to the higher of the highs."""
        return Range(min(self.low, other.low), max(self.high, other.high))


MEASURED = Range(0.95, 1.05)
"""A row of cycles and start-up through many samples: what is left is contention."""
DOCUMENTED = Range(0.8, 1.3)
"""Formulas of the documentation, which were off by up to 30 % where traces could be compared."""
OTHER_MACHINE = Range(0.7, 1.5)
"""A row of trn2 taken for another machine: by so much trn1's probes were off before they were
known."""
ASSUMED = Range(0.5, 2.0)
"""Figures of the models of DMA and of the Tensor Engine that nobody published."""
GENERATED = Range(0.85, 1.1)
"""DMAs whose descriptors the device generates: from a few published latencies of kernels."""
ADDRESSED = Range(0.9, 1.35)
"""DMAs whose place a register names: GpSimd issues them in order, and each waits for a place, which
tiles of the last turn may still hold. In a trace with eight turns all but two had such a wait."""
ELEMENTS = Range(0.7, 1.3)
"""Rows of some bytes from the hardware's generator: with and without what lies between them."""
CHOSEN = Range(0.7, 1.2)
"""What runs on the engine that the compiler chooses: it is inferred which, and how the compiler
removes repeated copies is not modelled."""
PLACED = Range(0.4, 1.1)
"""What another instruction waited for, for its place in memory alone: the compiler may give the
tensor another place, so that nothing waits."""
PARTIAL = Range(0.85, 1.35)
"""Products that fill a part of the PE array: from as fast as whole ones, on trn2, to 1.6 times as
slow; on trn1 from 1.21 to 1.92 times, as they were probed."""
PROBED_PRODUCTS = Range(0.85, 1.65)
"""Products on trn1, of which one rate is taken: as far apart are the probes of whole ones."""
SPILLED = Range(0.9, 3.0)
"""A kernel of whose tensors half or more do not fit SBUF: what spilling costs is not modelled."""

BASE = "trn2"
"""The machine that most figures are of."""


def spilled(part: float) -> Range:
    """What spilling may do to a kernel's time; ``part`` of SBUF is what does not fit.

    One published matmul keeps 8 % more than fits, by the kernel here that follows its description,
    and takes no longer than one that fits.
    """
    most = SPILLED.high - 1.0
    return Range(SPILLED.low, 1.0 + most * min(1.0, 2.0 * part))


def range_of(cost: Cost) -> Range:
    """The range of an instruction's row."""
    own = own_ranges().get((cost.instruction, cost.evidence))
    if own is not None:
        return own
    if cost.evidence is Evidence.ASSUMED and cost.machine == BASE:
        raise ValueError(f"ranges.csv has no range for the assumed cost of {cost.instruction}")
    return range_of_evidence(cost.evidence, cost.machine)


def range_of_evidence(evidence: Evidence, machine: str) -> Range:
    """The range of the models of DMA and of the Tensor Engine, by what they rest on."""
    if evidence is Evidence.MEASURED:
        return MEASURED
    if evidence is Evidence.DOCUMENTED:
        return DOCUMENTED
    return ASSUMED if machine == BASE else OTHER_MACHINE


@cache
def own_ranges() -> dict[tuple[str, Evidence], Range]:
    """``data/ranges.csv``: instruction and evidence -> the range of such rows."""
    return {
        (row["instruction"], Evidence(row["evidence"])): Range(
            float(row["low"]), float(row["high"])
        )
        for row in rows_of("ranges")
    }


COVERAGE = 0.9
"""The part of published latencies that are to lie inside their intervals."""
MODEL = Range(0.95, 1.05)
"""Of every kernel: what nothing here models."""
SCALE = 3.3
"""By which ``MODEL`` is widened: ``COVERAGE`` of published latencies lie inside with 2.4, and as
many with this, of which half are narrower than 35 %."""
LAUNCH = 3.0
"""Microseconds by which what a launch adds to nc_latency is unsure (WRITEUP: 9 to 15 us in all)."""
LAUNCHED = 8.0
"""The same of times with the whole launch in them (SWEEP: what is left of half of ten products)."""
PROFILE = 0.4
"""The same of a profile's preamble and postamble (TRACE)."""
LONG_PROFILE = 3.0
"""And of a long kernel's postamble (TRACE: 8 to 14 us)."""

INFERRED = "inferred"
"""The compiler's decisions, beside the classes of evidence."""

ASKS = 2.0
"""The factor between two compilers from which on one question says more than an interval."""
DEPENDS = 1.2
"""And that from which on a time depends on the compiler."""
WIDE = 0.6
"""The width of an interval, of the prediction, from which on it is said in words."""
TWO_CORES = Range(0.87, 1.15)
"""What two cores share beside the rates of HBM and of DMA engines: semaphores, whose turn it is.
Published splits over two cores made kernels 1.65 to 1.94 times faster."""
MAINLY = 0.4
"""The part of the time from which on a basis is named as what the time mainly rests on."""
_MEANINGS = {
    Evidence.ASSUMED.value: "assumed costs, so that it is an order of magnitude and not a time",
    INFERRED: "what is inferred of the compiler, which may do otherwise",
    Evidence.DOCUMENTED.value: "documented formulas that no published time confirms",
}


class ErrorSource(NamedTuple):
    """What stretches rest on that err together."""

    kind: str
    """"measured", "documented", "assumed", or "inferred" of the compiler."""
    subject: str
    """Which instructions, or what of the compiler."""


class Interval(NamedTuple):
    """Microseconds between which a device's time would lie, nine times of ten."""

    low: float
    high: float


@dataclass(frozen=True)
class ErrorBudget:
    """What a kernel's own time rests on; microseconds."""

    times: dict[ErrorSource, float]
    """Of the critical path."""
    ranges: dict[ErrorSource, tuple[float, float]]
    """The logarithms of the ranges of each, weighted with its time: less, more."""
    busiest: float
    """The longest that one engine would be busy with every cost at the top of its range."""
    streaming: float
    """What the Tensor Engine takes to stream the rows of its whole products at full speed."""
    spilling: tuple[float, float] = (0.0, 0.0)
    """What spilling may take away or add, as logarithms weighted with the time."""
    whole: tuple[float, float] = (0.0, 0.0)
    """What may be wrong with all of it, whatever it rests on, in the same form; it alone is
    scaled."""

    @property
    def shares(self) -> dict[str, float]:
        """Basis -> the part of the critical path that rests on it, the largest first."""
        total = sum(self.times.values())
        parts: dict[str, float] = {}
        for figure, time in self.times.items():
            parts[figure.kind] = parts.get(figure.kind, 0.0) + time / total
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    def largest(self, kind: str) -> list[str]:
        """The subjects of a kind of basis, those of the most time first."""
        pairs = [(-time, basis.subject) for basis, time in self.times.items() if basis.kind == kind]
        return [subject for _, subject in sorted(pairs)]


def caution(ground: ErrorBudget) -> str:
    """A warning if the time rests mainly on what nobody has measured; empty if it does not."""
    for basis, meaning in _MEANINGS.items():
        share = ground.shares.get(basis, 0.0)
        if share >= MAINLY:
            which = ", ".join(ground.largest(basis)[:3])
            return f"{share:.0%} of this time rests on {meaning} ({which})"
    return ""


def compiler_caution(own: float, compiled: Interval) -> str:
    """A warning if the time depends on what the compiler does; empty if it does not."""
    if compiled.low * DEPENDS >= own and compiled.high <= own * DEPENDS:
        return ""
    return (
        f"what the compiler does to this kernel is not known: its own part takes "
        f"{compiled.low:,.1f} us if it leaves out and merges all that it could, "
        f"{compiled.high:,.1f} us if it keeps to the text"
    )


def width_caution(span: Interval, predicted: float) -> str:
    """A warning if an interval is so wide that the prediction is an order of magnitude alone."""
    if span.high - span.low <= WIDE * predicted:
        return ""
    return (
        f"from {span.low:,.1f} to {span.high:,.1f} us is an order of magnitude and not a time: "
        "compare it with no other prediction whose interval it meets"
    )


def error_budget(schedule: Schedule) -> ErrorBudget:
    """What the time of ``schedule`` rests on."""
    times: dict[ErrorSource, float] = {}
    ranges: dict[ErrorSource, tuple[float, float]] = {}

    def add(figure: ErrorSource, time: float, within: Range) -> None:
        less, more = ranges.get(figure, (0.0, 0.0))
        times[figure] = times.get(figure, 0.0) + time
        less = less - time * math.log(within.low)
        more = more + time * math.log(within.high)
        ranges[figure] = less, more

    costs: dict[tuple[int, int, Engine], tuple[ErrorSource, Range]] = {}
    for stretch in schedule.path:
        step = stretch.span.instruction
        engine = stretch.span.engine
        if stretch.next is not None and waited_for_place(stretch.next):
            add(ErrorSource(INFERRED, "places in memory"), stretch.time, PLACED)
            continue
        key = id(step.times), id(step.transfer or step.matmul), engine  # equal costs share them
        if key not in costs:
            costs[key] = _cost_of(stretch.span, schedule)
        figure, within = costs[key]
        add(figure, stretch.time, within)
    own = schedule.end / 1e3
    after = max(0.0, own - schedule.path[-1].span.end / 1e3)
    add(ErrorSource(Evidence.MEASURED.value, "the last waits"), after, MEASURED)
    whole = (-own * math.log(MODEL.low), own * math.log(MODEL.high))
    if schedule.program.cores > 1:
        shared = ErrorSource(INFERRED, "what two cores share")
        ranges[shared] = -own * math.log(TWO_CORES.low), own * math.log(TWO_CORES.high)
    spills = spilled(schedule.timeline.spilled / schedule.program.machine.sbuf_usable_bytes)
    spilling = (-own * math.log(spills.low), own * math.log(spills.high))
    return ErrorBudget(
        times,
        ranges,
        _busiest(schedule),
        _streaming(schedule),
        spilling if schedule.timeline.spilled else (0.0, 0.0),
        whole,
    )


def _cost_of(span: Span, schedule: Schedule) -> tuple[ErrorSource, Range]:
    """What the instruction's own time rests on."""
    step = span.instruction
    if step.transfer is not None:
        return _transfer(step, step.transfer, schedule)
    if step.matmul is not None:
        return _product(step, schedule)
    cost = step.times[span.engine].cost
    if cost is None:
        return ErrorSource(Evidence.ASSUMED.value, step.opcode), ASSUMED
    within = range_of(cost)
    if step.engine is Engine.UNKNOWN:
        return ErrorSource(INFERRED, "copies shared among engines"), within.with_all_of(CHOSEN)
    return ErrorSource(cost.evidence.value, step.opcode), within


def _transfer(
    step: LoweredInstruction, moved: Transfer, schedule: Schedule
) -> tuple[ErrorSource, Range]:
    machine = schedule.program.machine.name
    does = step.event.purpose
    if does is not Purpose.COPY:
        told = does in (Purpose.TRANSPOSE, Purpose.SUM)
        basis = Evidence.DOCUMENTED if told else Evidence.ASSUMED
        return ErrorSource(basis.value, step.opcode), DOCUMENTED if told else ASSUMED
    within = range_of_evidence(step.modelled, machine)
    if descriptor_sources(schedule.toolchain, schedule.program.machine)[moved.kind] in ON_DEVICE:
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


def _product(step: LoweredInstruction, schedule: Schedule) -> tuple[ErrorSource, Range]:
    machine = schedule.program.machine
    assert step.matmul is not None
    if step.matmul.width > 1:
        return ErrorSource(Evidence.DOCUMENTED.value, "products in a fast mode"), DOCUMENTED
    within = PROBED_PRODUCTS
    if machine.nc_version >= 3:
        within = range_of_evidence(step.modelled, machine.name)
    if step.matmul.partial:
        partial = within.with_all_of(PARTIAL)
        return ErrorSource(step.modelled.value, "products of part of the PE array"), partial
    return ErrorSource(step.modelled.value, "products"), within


def _busiest(schedule: Schedule) -> float:
    """What is hidden now may be the limit if it costs more than is assumed."""
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
    """No core is faster, whatever the compiler does: the clock and the rows are known."""
    program = schedule.program
    cycles = [0.0] * program.cores
    for step in program.instructions:
        if step.matmul is not None and not step.matmul.partial:
            cycles[step.core] += step.matmul.passes * step.matmul.rows
    return program.parameters.cycles(Engine.TENSOR, max(cycles)) / 1e3


@dataclass(frozen=True)
class Estimate:
    """A predicted time, microseconds, and what its interval comes from."""

    ground: ErrorBudget
    """What the kernel's own part rests on."""
    own: float
    fixed: float
    """What the launch or the profiler adds to the kernel's own part."""
    unsure: float
    """By how much the fixed part is unsure."""
    random: float
    """By how much the phase of the throttle window moves the time, at most."""
    compiled: Interval | None = None
    """The kernel's own part as the fastest and the slowest compiler would have it; None if it
    depends on no compiler."""

    @property
    def total(self) -> float:
        return self.own + self.fixed

    def interval(self, scale: float = SCALE) -> Interval:
        """Between which times a device's would lie; wider with a larger scale."""
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
