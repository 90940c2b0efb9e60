"""Orders between programs that follow from their synchronization and from dependences.

A ``core_barrier`` blocks one engine, and orders accesses to its own tensor (``nisa.core_barrier``
at v2.32.0). Work that such an access depends on is also finished then, and work that depends on a
later access has not begun. Take a program that adds data it has read to a tile and stores the tile.
If it synchronizes at a barrier on that store, its read is finished.

So two accesses are ordered if dependences lead from the first to a synchronization point, and from
this or a later connected point to the second. Dependences are between tensors: the compiler tracks
them so (trn1, SDK 2.32, public record).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from difftest.analysis.finding import group_by
from difftest.simulator.trace import Event, Purpose, Trace


def is_synchronization(event: Event) -> bool:
    """Return whether programs wait for each other at an event."""
    return event.purpose in (Purpose.BARRIER, Purpose.SEND)


def collective_calls(trace: Trace) -> Iterator[tuple[Event, ...]]:
    """Return pairs of calls that exchange data between two cores; both cores wait."""
    calls = (event for event in trace.events if event.purpose is Purpose.SEND)
    return zip(*group_by(calls, lambda event: event.program).values(), strict=False)


class HappensBefore:
    """Chains of dependences between a trace's events and the synchronization of its programs."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @cached_property
    def _connections(self) -> tuple[dict[int, int], dict[int, int]]:
        """The synchronization points before each event, and those after it; computed lazily."""
        steps = _steps(self._trace)
        return _connected(steps), _connected(steps[::-1])

    def precedes(self, event: Event, other: Event) -> bool:
        """Return whether a chain leads from one event to another program's event, or back."""
        before, after = self._connections
        forth = after[event.number] & before[other.number]
        back = after[other.number] & before[event.number]
        return bool(forth | back)


class _ProgramPoint(NamedTuple):
    """An event, or a synchronization point with the simultaneous events of all programs."""

    events: list[Event]
    bit: int = 0
    """The bit of a synchronization point; 0 for other events."""


def _steps(trace: Trace) -> list[_ProgramPoint]:
    """Return the events, with each synchronization point after its predecessors."""
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
        if is_synchronization(event):
            meetings[count].append(event)
        else:
            between[count].append(event)
    steps: list[_ProgramPoint] = []
    for count, (meeting, others) in enumerate(zip(meetings, between, strict=True)):
        if meeting:
            steps.append(_ProgramPoint(meeting, 1 << count))
        steps.extend(_ProgramPoint([event]) for event in others)
    return steps


def _connected(steps: Iterable[_ProgramPoint]) -> dict[int, int]:
    """Return event number -> bits of the synchronization points with a chain to the event.

    A write depends on all accesses to its tensor, a read on its writes. The relation is
    symmetric: with the steps reversed, the result is the points to which the event leads. Each
    program has its own dependences. A chain to a synchronization point continues in every
    program.
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
