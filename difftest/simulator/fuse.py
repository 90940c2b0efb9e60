"""From the classic API's two steps to the hardware's one.

In the classic API an instruction returns a tile and ``dst[...] = instruction(...)`` puts it where
it belongs; the hardware's instruction writes to ``dst`` directly. The kernel runs in two steps here
too; this pass joins them in the trace.
"""

from __future__ import annotations

from collections.abc import Mapping

from difftest.simulator.trace import Allocation, Event, Places, Sight


def fuse_moves(events: list[Event], moved: Mapping[int, Allocation]) -> list[Event]:
    """Join each result that was only moved to its destination with the instruction that made it.

    The two must be adjacent in program order, and an instruction is joined with one move at most.
    A product that was only accumulated elsewhere is left out: the matmul that accumulates has an
    event of its own.

    Parameters
    ----------
    events : in program order; those that are joined are changed.
    moved : number of an event -> the result that it only takes to its destination.
    """
    fused: list[Event] = []
    joined = False
    """Whether the last of them has been joined with its move."""
    seen: tuple[Sight, ...] = ()
    """By a product that is left out: the matmul that accumulates saw the same."""
    for event in events:
        source = moved.get(event.number)
        if source is not None and fused and not joined and _made(fused[-1], source):
            _join(fused[-1], event)
            joined = True
        elif event.writes and event.writes[0].allocation.is_absorbed:
            seen += event.seen
        else:
            event.seen, seen = seen + event.seen, ()
            fused.append(event)
            joined = False
    return fused


def _made(producer: Event, source: Allocation) -> bool:
    return source.is_temporary and producer.writes[0].allocation is source


def _join(producer: Event, move: Event) -> None:
    made, target = producer.writes[0], move.writes[0]
    places = target.places
    if made.places is not None and target.whole:
        places = Places(target.pattern.elements().reshape(-1)[made.places.elements])
    whole = made.whole and target.whole
    written = target._replace(role=made.role, whole=whole, places=places)
    producer.writes = (written, *producer.writes[1:])
    producer.seen += move.seen
