"""How one dimension of a tensor is walked by an index, and whether the walk leaves it."""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.index import Shape


class Axis(NamedTuple):
    """How one dimension of the indexed tile is walked: a start, a step for each result axis."""

    size: int
    start: int
    steps: Shape


def span(axis: Axis, shape: Shape) -> tuple[int, int]:
    """The lowest and the highest index that the walk of one dimension reaches."""
    reach = [step * (n - 1) for step, n in zip(axis.steps, shape, strict=True)]
    return axis.start + sum(min(0, r) for r in reach), axis.start + sum(max(0, r) for r in reach)


def leaves(axis: Axis, shape: Shape) -> bool:
    """Whether the walk of one dimension goes below 0 or beyond its size."""
    low, high = span(axis, shape)
    return low < 0 or high >= axis.size
