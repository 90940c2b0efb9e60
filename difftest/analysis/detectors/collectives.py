"""Collectives between ranks whose buffers meet.

What a rank sends lands in its peers' receive buffers when it enters an all-to-all, whether they
have come there or not: a buffer that two exchanges share gets the second one's data while the first
is still read.
"""

from __future__ import annotations

from difftest.analysis.finding import WARNING, Finding, Found, Hazard, once
from difftest.analysis.footprint import footprint
from difftest.analysis.purpose import Purpose, purpose
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Region, Trace

SHARED = Hazard("exchange-buffer-shared", WARNING, "two exchanges of ranks share a buffer")


@once
def collectives(trace: Trace, machine: Machine) -> Found:
    """Exchanges that write to a buffer of an earlier one."""
    earlier: dict[tuple[int, ...], list[Event]] = {}
    for event in trace.events:
        if purpose(event) is not Purpose.EXCHANGE:
            continue
        before = earlier.setdefault(event.program, [])
        other, region = _shared(event, before)
        if other is not None and region is not None:
            yield _finding(event, other, region)
        before.append(event)


def _shared(event: Event, before: list[Event]) -> tuple[Event | None, Region | None]:
    """The first earlier exchange of which ``event`` writes a buffer, and what it writes of it."""
    for mine in event.writes:
        for other in before:
            for theirs in (*other.writes, *other.reads):
                same = theirs.allocation is mine.allocation
                if same and footprint(theirs).overlaps(footprint(mine)):
                    return other, mine
    return None, None


def _finding(event: Event, other: Event, region: Region) -> Finding:
    return SHARED.found(
        f"two exchanges share a buffer: {event.opcode} receives into {region.allocation}, "
        f"which an earlier {other.opcode} sent from or received into",
        "what a rank sends lands in its peers' buffers before they have come to the "
        "collective: of two exchanges through one pair of buffers, 8 ranks got wrong data, and "
        "none with a pair each (inf2, SDK 2.32)",
        "give each exchange of a kernel buffers of its own",
        event,
        other,
    )
