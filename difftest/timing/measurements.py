"""Latencies that were measured on devices, and how predictions compare with them.

The rows are data (``data/measurements-trn2.csv``): each names its source, and the kernel of this
repository that it is the latency of, if there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from difftest.timing.calibration import Judged, judge
from difftest.timing.data_files import rows_of
from difftest.timing.descriptors import Toolchain
from difftest.timing.interval import Estimate


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
