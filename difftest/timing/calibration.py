"""Check the intervals of predictions against published latencies.

For each latency, the calibration finds the smallest scale
(:data:`~difftest.timing.interval.SCALE`) whose interval holds it. Each kernel is judged with the
scale that the other kernels give (leave one out), so that no kernel confirms itself. Latencies are
data (``data/measurements-trn2.csv``): each row names its source and, if there is one, the kernel of
this repository that it belongs to.

A timeline is compared with a device trace of the same kernel engine by engine. Both are timed from
their first DMA trigger, and the n-th instruction to start is compared with the n-th. A matmul
counts from its LDWEIGHTS to the end of its MATMUL, a DMA from its trigger to its semaphore. The
traces (``data/traces``) are of neuronx-cc 2.21.18209 on a trn2.3xlarge, with static descriptors;
their format was inferred.

A probe is one instruction that a kernel repeats back to back on tensors in a ring. Its time is the
slope over the repeats (PROBE). Here the same trace is built directly and predicted. The rows are
data (``data/probes-trn1.csv``). An operand is its memory, the bytes of an element and its shape.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.machine import TRN1
from difftest.simulator.trace import (
    Allocation,
    Attributes,
    Engine,
    Event,
    EventKind,
    Purpose,
    Region,
    Space,
    Trace,
)
from difftest.timing.compiler import Toolchain
from difftest.timing.evidence import rows_of
from difftest.timing.interval import COVERAGE, SCALE, Estimate, Interval
from difftest.timing.prediction import Prediction, predict
from difftest.timing.schedule import Schedule, Span

NEAR = 0.2
"""The largest error that counts as small."""
WIDEST = 64.0
"""The largest scale that is tried. If it does not reach a latency, no interval does."""
STEPS = 40
"""Halvings of the scale's range: enough for double precision."""


class CheckedPrediction(NamedTuple):
    """A published latency and the interval of its prediction."""

    kernel: str
    """The kernel; all rows of one kernel are left out together."""
    measured: float
    predicted: float
    interval: Interval
    needed: float
    """The smallest scale whose interval holds the latency; infinite if none does."""

    @property
    def inside(self) -> bool:
        return self.interval.low <= self.measured <= self.interval.high

    @property
    def width(self) -> float:
        """The interval's width, relative to the prediction."""
        return (self.interval.high - self.interval.low) / self.predicted


def check_prediction(
    kernel: str,
    measured: float,
    predicted: float,
    interval_at: Callable[[float], Interval],
) -> CheckedPrediction:
    """Return a published latency with its interval and the smallest scale that reaches it.

    Parameters
    ----------
    interval_at : scale -> interval; a larger scale is never narrower.
    """
    return CheckedPrediction(
        kernel,
        measured,
        predicted,
        interval_at(SCALE),
        needed_scale(measured, interval_at),
    )


def needed_scale(measured: float, interval_at: Callable[[float], Interval]) -> float:
    """Return the smallest scale whose interval holds ``measured``; infinite if none does."""

    def holds(scale: float) -> bool:
        low, high = interval_at(scale)
        return low <= measured <= high

    if holds(0.0):
        return 0.0
    if not holds(WIDEST):
        return math.inf
    low = 0.0
    high = WIDEST
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def scale_for(needed: Sequence[float]) -> float:
    """Return the scale that covers the share ``COVERAGE`` of rows that need these scales."""
    if not needed:
        raise ValueError("no published latency: there is nothing to calibrate with")
    return sorted(needed)[math.ceil(COVERAGE * len(needed)) - 1]


class Calibration(NamedTuple):
    """The coverage of published latencies by their intervals."""

    rows: int
    inside: int
    left_out: int
    """Rows inside their interval with the scale that the other kernels give."""
    scale: float
    """The scale that covers nine of ten rows."""
    median_width: float
    """Median width of the intervals, relative to the prediction."""
    median_error: float
    near: int
    """Rows whose error is at most ``NEAR``."""
    in_order: int
    """Pairs that are predicted in their measured order."""
    pairs: int

    @property
    def rank(self) -> float:
        """Kendall's rank correlation: 1 if all pairs are in order, -1 if none is."""
        return 2 * self.in_order / self.pairs - 1


def calibration(judged: Sequence[CheckedPrediction]) -> Calibration:
    """Return the calibration of all rows, with the leave-one-kernel-out count."""
    errors = [abs(row.predicted / row.measured - 1) for row in judged]
    pairs = list(combinations(judged, 2))
    left_out = 0
    for row in judged:
        others = [other.needed for other in judged if other.kernel != row.kernel]
        left_out += bool(others) and row.needed <= scale_for(others)
    return Calibration(
        rows=len(judged),
        inside=sum(row.inside for row in judged),
        left_out=left_out,
        scale=scale_for([row.needed for row in judged]),
        median_width=median(row.width for row in judged),
        median_error=median(errors),
        near=sum(error <= NEAR for error in errors),
        in_order=sum(map(_is_in_order, pairs)),
        pairs=len(pairs),
    )


def _is_in_order(pair: tuple[CheckedPrediction, CheckedPrediction]) -> bool:
    one, other = pair
    return (one.measured < other.measured) == (one.predicted < other.predicted)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A published latency, or a threshold to stay below. Times in microseconds."""

    kernel: str
    """The kernel's name in its source."""
    shape: str
    dtype: str
    machine: str
    toolchain: Toolchain
    metric: str
    kind: str
    """``measured`` or ``threshold``."""
    value_us: float
    counterpart: str
    """``module:function`` of this repository; empty if there is none."""
    inputs: tuple[tuple[int, ...], ...]
    keywords: tuple[tuple[str, Any], ...]
    slow: bool
    """True if its counterpart takes more than three seconds to run."""
    source: str
    notes: str

    @property
    def is_launched(self) -> bool:
        """Return whether the time includes the whole launch."""
        return self.metric == "launched latency"

    @property
    def run(self) -> tuple[Any, ...]:
        """The launch: equal for measurements of one kernel on the same inputs."""
        launch = self.counterpart, self.inputs, self.keywords, self.dtype
        return (*launch, self.machine, self.toolchain)


@cache
def measurements() -> tuple[Measurement, ...]:
    """Return every row of ``data/measurements-trn2.csv``."""
    return tuple(map(_measurement, rows_of("measurements-trn2")))


def _measurement(row: dict[str, str]) -> Measurement:
    """Return the measurement of a row."""
    inputs = json.loads(row.pop("inputs") or "[]")
    keywords = json.loads(row.pop("keywords") or "{}")
    return Measurement(
        value_us=float(row.pop("value_us")),
        inputs=tuple(tuple(shape) for shape in inputs),
        keywords=tuple(sorted(keywords.items())),
        slow=row.pop("slow") == "yes",
        toolchain=Toolchain(row.pop("toolchain")),
        **row,
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The measurements of one kernel on the same inputs, and its prediction. Microseconds."""

    measurements: tuple[Measurement, ...]
    estimates: Mapping[str, Estimate]
    """Metric -> its estimate; ``""`` for all other metrics."""

    @property
    def estimate(self) -> Estimate:
        return self.estimates.get(self.first.metric, self.estimates[""])

    @property
    def predicted(self) -> float:
        return self.estimate.total

    @property
    def judged(self) -> CheckedPrediction:
        """The median of the measurements, against the interval of the prediction."""
        kernel = self.first.counterpart
        return check_prediction(
            kernel, self.measured, self.predicted, self.estimate.interval
        )

    @property
    def first(self) -> Measurement:
        return self.measurements[0]

    @property
    def measured(self) -> float:
        """The median of the measurements."""
        return median(measurement.value_us for measurement in self.measurements)

    @property
    def error(self) -> float:
        """Relative error of the prediction; negative if the prediction is too low."""
        return self.predicted / self.measured - 1


def comparisons(rows: Iterable[Measurement]) -> list[tuple[Measurement, ...]]:
    """Return the rows with a counterpart, in order, grouped by run and metric."""
    groups: dict[tuple[Any, ...], list[Measurement]] = {}
    for row in rows:
        if row.counterpart:
            groups.setdefault((row.run, row.metric, row.kernel, row.source), []).append(
                row
            )
    return [tuple(group) for group in groups.values()]


UNITS = ("load", "tensor", "vector", "scalar", "store")
"""The compared units: the engines that compute, and DMAs by direction."""


class DeviceInstruction(NamedTuple):
    """An instruction of a device trace; microseconds from the profile's start."""

    unit: str
    opcode: str
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Comparison of one engine, device against prediction. Times in microseconds."""

    unit: str
    device_count: int
    predicted_count: int
    device_span: tuple[float, float]
    """Start of its first instruction and end of its last."""
    predicted_span: tuple[float, float]
    median_offset: float
    """Median delay of the prediction's n-th instruction after the device's n-th."""
    worst_offset: float


def device_trace(name: str) -> list[DeviceInstruction]:
    """Return the trace ``data/traces/<name>.csv``."""
    return [
        DeviceInstruction(
            row["unit"], row["opcode"], float(row["start_us"]), float(row["end_us"])
        )
        for row in rows_of(f"traces/{name}")
    ]


def align(device: list[DeviceInstruction], schedule: Schedule) -> list[Alignment]:
    """Compare each engine that the trace or the prediction uses."""
    zero = min(record.start for record in device if record.unit in ("load", "constant"))
    measured = defaultdict[str, list[tuple[float, float]]](list)
    predicted = defaultdict[str, list[tuple[float, float]]](list)
    for record in device:
        if record.opcode != "ACT_TABLE_LOAD":
            measured[record.unit].append((record.start - zero, record.end - zero))
    for span in schedule.spans:
        predicted[_unit(span)].append((span.start / 1e3, span.end / 1e3))
    used = [unit for unit in UNITS if unit in measured or unit in predicted]
    return [_alignment(u, sorted(measured[u]), sorted(predicted[u])) for u in used]


def _alignment(
    unit: str, measured: list[tuple[float, float]], predicted: list[tuple[float, float]]
) -> Alignment:
    """Return the comparison of one engine's (start, end) times, both sorted."""
    offsets = [
        mine[0] - theirs[0] for mine, theirs in zip(predicted, measured, strict=False)
    ]
    return Alignment(
        unit=unit,
        device_count=len(measured),
        predicted_count=len(predicted),
        device_span=_span(measured),
        predicted_span=_span(predicted),
        median_offset=median(offsets) if offsets else float("nan"),
        worst_offset=max(offsets, key=abs) if offsets else float("nan"),
    )


def _unit(span: Span) -> str:
    if span.instruction.implied:
        return "constant"
    if span.instruction.transfer is not None:
        return "store" if span.instruction.is_store else "load"
    return span.engine.value if span.engine is not Engine.DMA else "load"


def _span(times: list[tuple[float, float]]) -> tuple[float, float]:
    starts, ends = zip(*times or [(float("nan"), float("nan"))], strict=True)
    return starts[0], max(ends)


RING = 4
"""Number of tensors that the repeats write in rotation (PROBE)."""
FEW, MANY = 32, 96
"""Repeats of the two traces whose times give the slope."""
RESOLUTION = 10.0
"""Resolution of the published probes in nanoseconds."""
_DTYPES = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4)}
"""A dtype for each element size: only its size affects the cost."""
_SPACES = {"sbuf": Space.SBUF, "psum": Space.PSUM, "hbm": Space.SHARED_HBM}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A published time; ``writes`` and ``reads`` are (memory, bytes of an element, shape)."""

    instruction: str
    purpose: Purpose
    engine: Engine
    writes: tuple[tuple[Space, int, tuple[int, int]], ...]
    reads: tuple[tuple[Space, int, tuple[int, int]], ...]
    op: str | None
    repeats: int
    """Number of instructions in the time."""
    measured: float
    """Nanoseconds for all of them."""
    fitted: bool
    """True if a cost of the model is derived from this probe; such a probe judges nothing."""
    what: str


@cache
def probes() -> tuple[Probe, ...]:
    """Return every row of ``data/probes-trn1.csv``."""
    return tuple(
        Probe(
            instruction=row["instruction"],
            purpose=Purpose(row["purpose"]),
            engine=Engine(row["engine"]),
            writes=_operands(row["writes"]),
            reads=_operands(row["reads"]),
            op=row["op"] or None,
            repeats=int(row["repeats"]),
            measured=float(row["measured_ns"]),
            fitted=row["fitted"] == "yes",
            what=row["what"],
        )
        for row in rows_of("probes-trn1")
    )


def _operands(text: str) -> tuple[tuple[Space, int, tuple[int, int]], ...]:
    operands = []
    for operand in text.split("; "):
        space, size, shape = operand.split()
        rows, columns = shape.split("x")
        operands.append((_SPACES[space], int(size), (int(rows), int(columns))))
    return tuple(operands)


def predict_probe(probe: Probe) -> CheckedPrediction:
    """Predict a probe's time in ns: the slope between two traces, and its interval."""
    few, many = (
        predict(_trace(probe, count), TRN1, dge=False) for count in (FEW, MANY)
    )
    slope = (many.middle - few.middle) * 1e3 / (MANY - FEW) * probe.repeats

    def at(scale: float) -> Interval:
        return _around(many, slope, scale)

    name = f"probe of {probe.instruction} on {probe.engine.value}"
    return check_prediction(name, probe.measured, slope, at)


def _around(prediction: Prediction, slope: float, scale: float) -> Interval:
    """Return the interval of one instruction, scaled from the interval of the whole trace.

    The interval excludes work that another compiler would omit: the probes' instructions were
    counted.
    """
    own = prediction.middle
    whole = Estimate(prediction.error_budget, own, 0.0, 0.0, 0.0).interval(scale)
    return Interval(
        slope * whole.low / own - RESOLUTION / 2,
        slope * whole.high / own + RESOLUTION / 2,
    )


def _trace(probe: Probe, count: int) -> Trace:
    trace = Trace()

    def region_of(operand: tuple[Space, int, tuple[int, int]]) -> Region:
        space, size, shape = operand
        number = len(trace.allocations)
        tensor = Allocation(
            number, space, shape, _DTYPES[size], 0, None, "", reads=1, writes=1
        )
        trace.allocations.append(tensor)
        return Region(tensor, 0, shape, (shape[1], 1))

    reads = tuple(map(region_of, probe.reads))
    ring = [tuple(map(region_of, probe.writes)) for _ in range(RING)]
    attributes = Attributes(op=probe.op)
    kind = EventKind(probe.instruction, probe.engine, attributes, purpose=probe.purpose)
    for number in range(count):
        writes = ring[number % RING]
        trace.events.append(Event(number, kind, writes, reads))
    return trace
