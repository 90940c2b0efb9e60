"""The hardware stage: latency thresholds, and what was measured against them.

The limits are data (``difftest/course/assignment.py``) and the decision is a comparison. What the
timing model predicts is no result: `difftest grade` and `difftest profile` show it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from difftest.backends.base import Array, KernelCall
from difftest.backends.device.timers import Timer
from difftest.course.assignment import (
    ITERATIONS,
    PERFORMANCE,
    TRANSPOSE_SIDE,
    TRANSPOSE_US,
    WARMUP,
    PerformanceTest,
)

FULL, RELAXED, MISSED = "full", "relaxed", "missed"
QUIET_SPREAD = 0.01
ROUNDS, MOST_ROUNDS = 3, 9


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Limits of a kernel's p99 latency on one NeuronCore, in microseconds, and who says so.

    ``inputs`` makes the kernel's arrays, the same each time. A latency at a ``strict`` limit
    misses it.
    """

    name: str
    kernel: str
    inputs: Callable[[], tuple[Array, ...]]
    parameters: Mapping[str, Any]
    relaxed_us: float
    full_us: float
    source: str
    strict: bool = False

    def result(self, p99_us: float) -> str:
        """Which limit a latency meets: "full", "relaxed" or "missed"."""
        for name, limit in ((FULL, self.full_us), (RELAXED, self.relaxed_us)):
            if p99_us < limit or (p99_us == limit and not self.strict):
                return name
        return MISSED


def _convolution(test: PerformanceTest) -> Threshold:
    return Threshold(
        name=test.name,
        kernel="fused_conv2d_maxpool",
        inputs=lambda: test.arguments(np.random.RandomState(0)),
        parameters={"pool_size": test.pool_size},
        relaxed_us=test.relaxed_us,
        full_us=test.full_us,
        source="the course's assignment, Part 2",
    )


CONVOLUTIONS = tuple(map(_convolution, PERFORMANCE))
TRANSPOSE = Threshold(
    name=f"{TRANSPOSE_SIDE}x{TRANSPOSE_SIDE}, float32, transpose",
    kernel="matrix_transpose",
    inputs=lambda: (
        np.random.RandomState(0).rand(TRANSPOSE_SIDE, TRANSPOSE_SIDE).astype(np.float32),
    ),
    parameters={},
    relaxed_us=TRANSPOSE_US,
    full_us=TRANSPOSE_US,
    source="the course's assignment, Part 1",
    strict=True,
)


@dataclass(frozen=True)
class StageResult:
    """Several measurements of one threshold's kernel: ``metric`` says what was measured, by what.

    ``p99_us`` is the middle of the last rounds, microseconds; ``spread``, their largest less their
    smallest, over the middle.
    """

    threshold: Threshold
    p99_us: float
    metric: str
    spread: float
    rounds: int

    @property
    def result(self) -> str:
        """One of "full", "relaxed" and "missed"."""
        return self.threshold.result(self.p99_us)

    def lines(self) -> list[str]:
        """The result for people.

        The numbers of this example show the form; they were not measured.

        >>> limit = next(one for one in CONVOLUTIONS if one.name == "224x224, float16, no pool")
        >>> result = StageResult(limit, 930.0, "nc_latency of nki.benchmark", 0.002, 3)
        >>> for line in result.lines():
        ...     print(line)
        224x224, float16, no pool: full
          measured: p99 930.0 us (nc_latency of nki.benchmark)
          limits:   1365 us relaxed, 1002 us full (the course's assignment, Part 2)
          noise:    spread 0.2% over 3 rounds
        """
        limit = self.threshold
        loud = ": NOT under 1 %, so that small differences mean nothing"
        return [
            f"{limit.name}: {self.result}",
            f"  measured: p99 {self.p99_us:,.1f} us ({self.metric})",
            f"  limits:   {limit.relaxed_us:g} us relaxed, {limit.full_us:g} us full "
            f"({limit.source})",
            f"  noise:    spread {self.spread:.1%} over {self.rounds} rounds"
            f"{loud if self.spread >= QUIET_SPREAD else ''}",
        ]

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        limits = {"relaxed_us": self.threshold.relaxed_us, "full_us": self.threshold.full_us}
        own = {name: value for name, value in vars(self).items() if name != "threshold"}
        return {"test": self.threshold.name, "result": self.result, **limits, **own}


def measure_threshold(
    threshold: Threshold, kernel: Callable[..., Any], timer: Timer
) -> StageResult:
    """Measure until the p99 of three rounds in a row agree, at most nine times."""
    inputs, rounds = threshold.inputs(), list[float]()
    call = KernelCall(kernel=kernel, inputs=inputs, parameters=threshold.parameters)
    while True:
        rounds.append(timer.p99(call, warmup=WARMUP, iterations=ITERATIONS))
        last = sorted(rounds[-ROUNDS:])
        middle = statistics.median_low(last)
        spread = (last[-1] - last[0]) / middle
        if len(rounds) >= ROUNDS and (spread < QUIET_SPREAD or len(rounds) >= MOST_ROUNDS):
            return StageResult(threshold, middle, timer.metric, spread, len(rounds))
