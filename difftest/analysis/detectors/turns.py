"""The turns of loops that claim to be independent, and who touches one tensor in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from difftest.analysis.detectors.survey import Touch
from difftest.simulator.trace import Loop, LoopKind


class Turn(NamedTuple):
    """A touch in one turn of a loop."""

    number: int
    """Of the iteration, from 0."""
    value: int
    """Of the loop variable."""
    touch: Touch


def affine_runs(accesses: Sequence[Touch]) -> Iterator[tuple[Loop, list[Turn]]]:
    """Each run of an ``affine_range`` in which several turns touch a tensor that one writes.

    ``accesses`` are all of them to one tensor; what a run has of them stays in program order.
    """
    first = accesses[0].event.loops
    if all(touch.event.loops is first for touch in accesses):
        return
    yield from _runs(accesses, 0)


def _runs(accesses: Sequence[Touch], depth: int) -> Iterator[tuple[Loop, list[Turn]]]:
    """The same of loops that have ``depth`` others around them."""
    runs: dict[int, list[Touch]] = {}
    for touch in accesses:
        loops = touch.event.loops
        if len(loops) > depth:
            runs.setdefault(loops[depth].loop.id, []).append(touch)
    for inside in runs.values():
        turns: dict[int, list[Touch]] = {}
        for touch in inside:
            turns.setdefault(touch.event.loops[depth].number, []).append(touch)
        loop = inside[0].event.loops[depth].loop
        if (
            len(turns) > 1
            and loop.kind is LoopKind.AFFINE
            and any(touch.writes for touch in inside)
        ):
            yield loop, [Turn(*touch.event.loops[depth][1:], touch) for touch in inside]
        for one in turns.values():
            if len(one) > 1:
                yield from _runs(one, depth + 1)
