"""Latencies: percentiles of one measurement, and whether several of them agree."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""Those that ``nki.benchmark`` gives (AWS Neuron documentation, nki.benchmark at v2.26.0)."""
QUIET_SPREAD = 0.01
ROUNDS, MOST_ROUNDS = 3, 9


@dataclass(frozen=True)
class MeasuredLatency:
    """One measurement on a device. Times in microseconds.

    Attributes
    ----------
    metric : what was measured and by what, for it is not the same everywhere.
    percentiles : percentile -> latency.
    warmup, iterations : executions before it, and in it.
    """

    metric: str
    percentiles: Mapping[int, float]
    warmup: int
    iterations: int

    @property
    def p99(self) -> float:
        return self.percentiles[99]


def latency_of(durations: Sequence[float], metric: str, *, warmup: int) -> MeasuredLatency:
    """The percentiles of durations, microseconds; each is one of them, the next higher one.

    Raises
    ------
    ValueError : there are none, or one is no positive number.
    """
    if not durations or not all(0 < one < float("inf") for one in durations):
        raise ValueError(f"durations: received {list(durations)}; accepted: positive numbers")
    values = np.percentile(np.asarray(durations), PERCENTILES, method="higher")
    return MeasuredLatency(
        metric,
        dict(zip(PERCENTILES, map(float, values), strict=True)),
        warmup,
        len(durations),
    )


@dataclass(frozen=True)
class Steady:
    """Several measurements of one kernel.

    Attributes
    ----------
    latency : the one whose p99 is the middle of the last rounds.
    spread : of the p99 of the last rounds: the largest less the smallest, over the middle.
    rounds : how many were made.
    """

    latency: MeasuredLatency
    spread: float
    rounds: int

    @property
    def quiet(self) -> bool:
        """Whether the spread is small enough to believe small differences."""
        return self.spread < QUIET_SPREAD


def measure_steadily(measure: Callable[[], MeasuredLatency]) -> Steady:
    """Measure until the p99 of three rounds in a row agree, at most nine times."""
    found: list[MeasuredLatency] = []
    while True:
        found.append(measure())
        last = sorted(found[-ROUNDS:], key=lambda one: one.p99)
        middle = statistics.median_low(one.p99 for one in last)
        spread = (last[-1].p99 - last[0].p99) / middle if middle else float("inf")
        if len(found) >= ROUNDS and (spread < QUIET_SPREAD or len(found) >= MOST_ROUNDS):
            latency = next(one for one in last if one.p99 == middle)
            return Steady(latency, spread, len(found))
