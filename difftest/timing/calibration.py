"""Whether the intervals hold what they promise: published latencies, inside or outside.

Published latencies are data (``data/measurements-trn2.csv``): each row names its source, and the
kernel of this repository that it is the latency of, if there is one.

For each one asks which scale (:data:`~difftest.timing.interval.SCALE`) would just reach it. So that
this is no tautology, each kernel is judged with the scale that the others give: leave one out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple

from difftest.timing.compiler import Toolchain
from difftest.timing.evidence import rows_of
from difftest.timing.interval import COVERAGE, SCALE, Estimate, Interval

NEAR = 0.2
"""An error that is small."""
WIDEST = 64.0
"""The largest scale that is tried: what even this does not reach, no interval holds."""
STEPS = 40
"""Halvings of the scale's range: enough for double precision."""


class Judged(NamedTuple):
    """One published latency and the interval of its prediction."""

    kernel: str
    """What is left out together."""
    measured: float
    predicted: float
    interval: Interval
    needed: float
    """The smallest scale whose interval holds it; infinite if none does."""

    @property
    def inside(self) -> bool:
        return self.interval.low <= self.measured <= self.interval.high

    @property
    def width(self) -> float:
        """From end to end, as a part of the prediction."""
        return (self.interval.high - self.interval.low) / self.predicted


def judge(
    kernel: str, measured: float, predicted: float, interval_at: Callable[[float], Interval]
) -> Judged:
    """The smallest scale that reaches ``measured``, and the interval at the model's own.

    Parameters
    ----------
    interval_at : scale -> interval; a larger scale is never narrower.
    """
    return Judged(
        kernel, measured, predicted, interval_at(SCALE), needed_scale(measured, interval_at)
    )


def needed_scale(measured: float, interval_at: Callable[[float], Interval]) -> float:
    """The smallest scale whose interval holds ``measured``; infinite if none does."""

    def holds(scale: float) -> bool:
        low, high = interval_at(scale)
        return low <= measured <= high

    if holds(0.0):
        return 0.0
    if not holds(WIDEST):
        return math.inf
    low, high = 0.0, WIDEST
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def scale_for(needed: Sequence[float], coverage: float = COVERAGE) -> float:
    """The scale that holds ``coverage`` of what needs these."""
    if not needed:
        raise ValueError("no published latency: there is nothing to calibrate with")
    return sorted(needed)[math.ceil(coverage * len(needed)) - 1]


class Calibration(NamedTuple):
    """How well the intervals of published latencies hold."""

    rows: int
    inside: int
    left_out: int
    """Those inside with the scale that the other kernels give."""
    scale: float
    """That holds nine of ten."""
    median_width: float
    """Of the intervals, from end to end, as a part of the prediction."""
    median_error: float
    near: int
    """Those whose error is ``NEAR`` at most."""
    in_order: int
    """Pairs that are predicted in the order in which they were measured."""
    pairs: int

    @property
    def rank(self) -> float:
        """Kendall's rank correlation: 1 if all pairs are in order, -1 if none is."""
        return 2 * self.in_order / self.pairs - 1


def calibration(judged: Sequence[Judged]) -> Calibration:
    """The intervals of all; leave-one-kernel-out beside it."""
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
        in_order=sum((a.measured < b.measured) == (a.predicted < b.predicted) for a, b in pairs),
        pairs=len(pairs),
    )


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One published latency, or a threshold to stay below. Times in microseconds."""

    kernel: str
    """As its source names it."""
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
    """Whether to run its counterpart takes more than three seconds."""
    source: str
    notes: str

    @property
    def is_launched(self) -> bool:
        """Whether the whole launch is in it."""
        return self.metric == "launched latency"

    @property
    def run(self) -> tuple[Any, ...]:
        """What is launched: equal for the measurements of one kernel on the same inputs."""
        what = self.counterpart, self.inputs, self.keywords, self.dtype
        return (*what, self.machine, self.toolchain)


@cache
def measurements() -> tuple[Measurement, ...]:
    """Every row of ``data/measurements-trn2.csv``."""
    return tuple(map(_measurement, rows_of("measurements-trn2")))


def _measurement(row: dict[str, str]) -> Measurement:
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
    """The measurements of one kernel on the same inputs, and the prediction. Microseconds."""

    measurements: tuple[Measurement, ...]
    estimates: Mapping[str, Estimate]
    """Metric -> what is predicted of it; ``""`` for all others."""

    @property
    def estimate(self) -> Estimate:
        return self.estimates.get(self.first.metric, self.estimates[""])

    @property
    def predicted(self) -> float:
        return self.estimate.total

    @property
    def judged(self) -> Judged:
        """The measurements' median against the interval of the prediction."""
        kernel = self.first.counterpart
        return judge(kernel, self.measured, self.predicted, self.estimate.interval)

    @property
    def first(self) -> Measurement:
        return self.measurements[0]

    @property
    def measured(self) -> float:
        """The median of the measurements."""
        return median(measurement.value_us for measurement in self.measurements)

    @property
    def error(self) -> float:
        """Relative error of the prediction; negative if it is too low."""
        return self.predicted / self.measured - 1


def grouped(rows: Iterable[Measurement]) -> list[tuple[Measurement, ...]]:
    """The rows with a counterpart, those of one run and metric together, in their order."""
    groups: dict[tuple[Any, ...], list[Measurement]] = {}
    for row in rows:
        if row.counterpart:
            groups.setdefault((row.run, row.metric, row.kernel, row.source), []).append(row)
    return [tuple(group) for group in groups.values()]
