"""What programs' meetings order beyond the tensors that they are about, by chains of dependences.

A ``core_barrier`` blocks one engine, and orders what touches its own tensor (``nisa.core_barrier``
at v2.32.0). What comes before such an access by a dependence is over by then, too, and what depends
on one afterwards has not begun: a program that adds what it has read to a tile, stores the tile,
and meets the other at a barrier on that store has done its read. So two accesses are ordered if
dependences lead from the one to a meeting, and from that meeting, or a later one that it leads to,
to the other.

Dependences are those of tensors: the compiler was seen to track them so (trn1, SDK 2.32, public
record).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from difftest.analysis.finding import group_by
from difftest.simulator.trace import Event, Purpose, Trace


def is_synchronization(event: Event) -> bool:
    """Whether programs wait for each other at an event."""
    return event.purpose in (Purpose.BARRIER, Purpose.SEND)


def collective_calls(trace: Trace) -> Iterator[tuple[Event, ...]]:
    """The calls in which two cores send each other something: both wait, so they are pairs."""
    calls = (event for event in trace.events if event.purpose is Purpose.SEND)
    return zip(*group_by(calls, lambda event: event.program).values(), strict=False)


class HappensBefore:
    """The chains of dependences between the events of a trace and the meetings of its programs."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def _connections(self) -> tuple[dict[int, int], dict[int, int]]:
        """The meetings before each event, and those after it; found when they are first asked."""
        steps = _steps(self._trace)
        return _connected(steps), _connected(steps[::-1])

    def precedes(self, event: Event, other: Event) -> bool:
        """Whether a chain leads from one event to another one of another program, or back."""
        before, after = self._connections
        forth = after[event.number] & before[other.number]
        back = after[other.number] & before[event.number]
        return bool(forth | back)


class _ProgramPoint(NamedTuple):
    """An event, or a meeting: the events of it that all programs have, at once."""

    events: list[Event]
    bit: int = 0
    """Of a meeting: one of its own."""


def _steps(trace: Trace) -> list[_ProgramPoint]:
    """The events so that a meeting comes after what led to it in any program."""
    met: dict[tuple[int, ...], int] = {}
    meetings: list[list[Event]] = [[]]
    between: list[list[Event]] = [[]]
    for event in trace.events:
        if is_synchronization(event):
            met[event.program] = met.get(event.program, 0) + 1
        count = met.get(event.program, 0)
        if count == len(between):
            meetings.append([])
            between.append([])
        (meetings if is_synchronization(event) else between)[count].append(event)
    steps: list[_ProgramPoint] = []
    for count, (meeting, others) in enumerate(zip(meetings, between, strict=True)):
        if meeting:
            steps.append(_ProgramPoint(meeting, 1 << count))
        steps.extend(_ProgramPoint([event]) for event in others)
    return steps


def _connected(steps: Iterable[_ProgramPoint]) -> dict[int, int]:
    """By the number of an event, the bits of the meetings from which dependences lead to it.

    A write depends on all that touched its tensor, a read on what wrote it; the other way round it
    is the same, so that of the steps in reverse order these are the meetings to which they lead.
    Each program has dependences of its own; what leads to a meeting leads to what follows it in
    every program.
    """
    connected: dict[int, int] = {}
    written: defaultdict[tuple[object, ...], int] = defaultdict(int)
    touched: defaultdict[tuple[object, ...], int] = defaultdict(int)
    for step in steps:
        bits = step.bit
        for event in step.events:
            for region in event.reads:
                bits |= written[event.program, region.allocation.id]
            for region in event.writes:
                bits |= touched[event.program, region.allocation.id]
        for event in step.events:
            connected[event.number] = bits
            for region in event.reads:
                touched[event.program, region.allocation.id] |= bits
            for region in event.writes:
                touched[event.program, region.allocation.id] |= bits
                written[event.program, region.allocation.id] |= bits
    return connected
