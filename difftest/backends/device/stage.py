"""The hardware stage: latency thresholds, and what was measured against them.

The limits are data (``difftest/course/assignment.py``) and the decision is a comparison. What the
timing model predicts is no result: `difftest grade` and `difftest profile` show it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from difftest.backends.base import KernelCall
from difftest.backends.device.timers import Timer
from difftest.course.assignment import ITERATIONS, WARMUP, PerformanceTest

QUIET_SPREAD = 0.01
ROUNDS, MOST_ROUNDS = 3, 9


@dataclass(frozen=True)
class StageResult:
    """Several measurements of one test's kernel: ``metric`` says what was measured, by what.

    ``p99_us`` is the middle of the last rounds, microseconds; ``spread``, their largest less their
    smallest, over the middle.
    """

    test: PerformanceTest
    p99_us: float
    metric: str
    spread: float
    rounds: int

    @property
    def result(self) -> str:
        """One of "full", "relaxed" and "missed"."""
        return self.test.result(self.p99_us)

    def lines(self) -> list[str]:
        """The result for people.

        The numbers of this example show the form; they were not measured.

        >>> from difftest.course.assignment import PERFORMANCE
        >>> result = StageResult(PERFORMANCE[1], 930.0, "nc_latency of nki.benchmark", 0.002, 3)
        >>> for line in result.lines():
        ...     print(line)
        224x224, float16, no pool: full
          measured: p99 930.0 us (nc_latency of nki.benchmark)
          limits:   1365 us relaxed, 1002 us full (the course's assignment)
          noise:    spread 0.2% over 3 rounds
        """
        test = self.test
        loud = ": NOT under 1 %, so that small differences mean nothing"
        return [
            f"{test.name}: {self.result}",
            f"  measured: p99 {self.p99_us:,.1f} us ({self.metric})",
            f"  limits:   {test.relaxed_us:g} us relaxed, {test.full_us:g} us full "
            "(the course's assignment)",
            f"  noise:    spread {self.spread:.1%} over {self.rounds} rounds"
            f"{loud if self.spread >= QUIET_SPREAD else ''}",
        ]

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        limits = {"relaxed_us": self.test.relaxed_us, "full_us": self.test.full_us}
        return {**vars(self), "test": self.test.name, "result": self.result, **limits}


def measured(test: PerformanceTest, kernel: Callable[..., Any], timer: Timer) -> StageResult:
    """Measure until the p99 of three rounds in a row agree, at most nine times."""
    parameters = {"pool_size": test.pool_size} if test.pool_size else {}
    call = KernelCall(kernel=kernel, inputs=test.arguments(), parameters=parameters)
    rounds: list[float] = []
    while True:
        rounds.append(timer.p99(call, warmup=WARMUP, iterations=ITERATIONS))
        last = sorted(rounds[-ROUNDS:])
        middle = statistics.median_low(last)
        spread = (last[-1] - last[0]) / middle
        if len(rounds) >= ROUNDS and (spread < QUIET_SPREAD or len(rounds) >= MOST_ROUNDS):
            return StageResult(test, middle, timer.metric, spread, len(rounds))
