"""Spans of time laid over one another."""

from __future__ import annotations

from collections.abc import Iterable


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The time that at least one of the intervals covers."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
