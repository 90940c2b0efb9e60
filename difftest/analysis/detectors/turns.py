"""The turns of loops that claim to be independent, and who touches one tensor in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from difftest.analysis.detectors.survey import Touch
from difftest.simulator.trace import Loop, LoopKind, Region


class Turn(NamedTuple):
    """A touch in one turn of a loop."""

    number: int
    """Of the iteration, from 0."""
    value: int
    """Of the loop variable."""
    touch: Touch


class AffineRun(NamedTuple):
    """A run of an ``affine_range`` in which several turns touch a tensor that one writes."""

    depth: int
    """How many loops are around it."""
    touches: list[Touch]
    """In program order."""

    @property
    def loop(self) -> Loop:
        """The loop."""
        return self.touches[0].event.loops[self.depth].loop

    @property
    def turns(self) -> list[Turn]:
        """Each touch with its iteration."""
        depth = self.depth
        return [Turn(*touch.event.loops[depth][1:], touch) for touch in self.touches]

    @property
    def regions(self) -> Iterator[tuple[int, Region]]:
        """What each touch has of the tensor, behind its iteration's number."""
        depth = self.depth
        return ((touch.event.loops[depth].number, touch.region) for touch in self.touches)


def affine_runs(accesses: Sequence[Touch]) -> Iterator[AffineRun]:
    """The runs of each ``affine_range`` that are worth a look.

    ``accesses`` are all of them to one tensor.
    """
    first = accesses[0].event.loops
    if all(touch.event.loops is first for touch in accesses):
        return
    yield from _runs(accesses, 0)


def _runs(accesses: Sequence[Touch], depth: int) -> Iterator[AffineRun]:
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
        if len(turns) > 1:
            run = AffineRun(depth, inside)
            if run.loop.kind is LoopKind.AFFINE and any(touch.writes for touch in inside):
                yield run
        for one in turns.values():
            if len(one) > 1:
                yield from _runs(one, depth + 1)
