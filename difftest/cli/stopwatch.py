"""Time and memory of a function, run again and again in this process."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from dataclasses import dataclass

from difftest.harness.reference_cost import peak_of


@dataclass(frozen=True)
class Reading:
    """What one run of a function costs on this computer."""

    seconds: float  # mean over the runs
    peak_bytes: int  # most memory held at once beyond what was held before the run
    runs: int


def measure(function: Callable[[], object]) -> Reading:
    """Run `function` until 0.2 s have passed, at least once, and once more for its memory.

    The run for memory comes first and also warms up. It is not timed: tracing slows it down.
    """
    peak = peak_of(function)
    runs, seconds = timeit.Timer(function).autorange()
    return Reading(seconds / runs, peak, runs)
