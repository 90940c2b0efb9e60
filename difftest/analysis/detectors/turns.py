"""The turns of loops that claim to be independent, and who touches one tensor in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from difftest.analysis.detectors.canvas import are_apart
from difftest.analysis.detectors.survey import Touch, adds
from difftest.analysis.purpose import Purpose, purpose
from difftest.simulator.trace import Allocation, Event, Iteration, Loop, LoopKind, Region


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
    loops = accesses[0].event.loops
    if all(touch.event.loops is loops for touch in accesses):
        return
    tensor, last = accesses[0].region.allocation, accesses[-1].event
    # What ends in the turn that made it has nothing to do with the other turns of those loops.
    yield from _runs(accesses, len(tensor.loops) if is_inside(tensor, last) else 0)


def _runs(accesses: Sequence[Touch], depth: int) -> Iterator[AffineRun]:
    """The same of loops that have ``depth`` others around them."""
    runs: dict[int, list[Touch]] = {}
    for touch in accesses:
        loops = touch.event.loops
        if len(loops) > depth:
            runs.setdefault(loops[depth].loop.id, []).append(touch)
    for inside in runs.values():
        if all(map(accumulates, inside)) or not any(touch.writes for touch in inside):
            continue
        turns: dict[int, list[Touch]] = {}
        for touch in inside:
            turns.setdefault(touch.event.loops[depth].number, []).append(touch)
        if len(turns) > 1:
            if _are_apart(inside):
                continue
            run = AffineRun(depth, inside)
            if run.loop.kind is LoopKind.AFFINE:
                yield run
        for group in turns.values():
            if len(group) > 1:
                yield from _runs(group, depth + 1)


def _are_apart(touches: list[Touch]) -> bool:
    """Whether it is plain that turns share no element, of this loop and of those inside."""
    owned = ((id(touch.event.loops), touch.region) for touch in touches)
    return are_apart(touches[0].region.allocation, owned)


def accumulates(touch: Touch) -> bool:
    """Whether a touch is of what a matmul adds to in PSUM, a scatter in HBM, or nl.loop_reduce."""
    event = touch.event
    if event.attributes.loop_indices:
        return True
    into = event.attributes.accumulate or (purpose(event) is Purpose.SCATTER and adds(event))
    return into and (touch.writes or touch.region.role == "dst")


def is_inside(tensor: Allocation, event: Event) -> bool:
    """Whether an event belongs to the turn of the loops in which a tensor was made."""
    return is_within(tensor.loops, event)


def is_within(loops: tuple[Iteration, ...], event: Event) -> bool:
    """Whether an event belongs to a turn of loops."""
    if event.loops is loops:
        return True
    if len(event.loops) < len(loops):
        return False
    return all(
        mine.loop.id == other.loop.id and mine.number == other.number
        for mine, other in zip(loops, event.loops, strict=False)
    )
