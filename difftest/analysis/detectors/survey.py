"""Who touches what: the accesses of a trace by the tensor that they touch, for several readers."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from difftest.simulator.trace import Allocation, Event, Region, Trace


class Touch(NamedTuple):
    """One operand of one instruction."""

    event: Event
    region: Region
    writes: bool


class Survey:
    """The accesses to each tensor that a kernel writes, in program order.

    An instruction's reads stand before its writes. Tensors that nothing writes, a kernel's inputs,
    are left out.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.allocations: dict[int, Allocation] = {}
        self.accesses: dict[int, list[Touch]] = {}
        """By the id of the allocation."""
        accesses, make = self.accesses, Touch
        for event in trace.events:
            for region in event.reads:
                allocation = region.allocation
                if allocation.writes:
                    accesses.setdefault(allocation.id, []).append(make(event, region, False))
            for region in event.writes:
                accesses.setdefault(region.allocation.id, []).append(make(event, region, True))
        for one in trace.allocations:
            self.allocations[one.id] = one


_SURVEYS: WeakKeyDictionary[Trace, Survey] = WeakKeyDictionary()


def survey_of(trace: Trace) -> Survey:
    """The survey of a trace that is over; made once."""
    survey = _SURVEYS.get(trace)
    if survey is None:
        survey = _SURVEYS[trace] = Survey(trace)
    return survey
