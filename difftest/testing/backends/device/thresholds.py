"""Latency thresholds of the hardware stage, as data.

Source of the counts and shares: the course assignment's public starter code
(stanford-cs149/asst4-trainium2, ``part2/test_harness.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

WARMUP = 5
"""Executions before each measurement of a performance test."""
ITERATIONS = 20
"""Executions in each measurement of a performance test."""
SHARES = {"full": 1.0, "relaxed": 0.95, "missed": 0.0}
"""Shares of a performance test's points, by the limit that is met."""


@dataclass(frozen=True, kw_only=True)
class PerformanceTest:
    """A performance test: p99 latency in microseconds on a NeuronCore against two limits."""

    name: str
    shapes: tuple[tuple[int, ...], ...]  # of the kernel's arrays
    dtype: str
    pool_size: int = 0  # the kernel takes none
    points: float = 0.0
    relaxed_us: float
    full_us: float
    extra_credit: bool = False

    def arguments(self) -> tuple[Array, ...]:
        """Return the kernel's arrays, equal at each call, drawn in the starter code's order."""
        random = np.random.RandomState(0)
        return tuple(random.rand(*shape).astype(self.dtype) for shape in self.shapes)

    def result(self, p99_us: float) -> str:
        """Return the limit that a latency meets: a key of SHARES."""
        met = "relaxed" if p99_us <= self.relaxed_us else "missed"
        return "full" if p99_us <= self.full_us else met

    def points_for(self, p99_us: float) -> float:
        """Return the points of a p99 latency."""
        return self.points * SHARES[self.result(p99_us)]
