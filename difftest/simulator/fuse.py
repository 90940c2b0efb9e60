"""From the classic API's two steps to the hardware's one.

In the classic API an instruction returns a tile and ``dst[...] = instruction(...)`` puts it where
it belongs; the hardware's instruction writes to ``dst`` directly, and ``psum += nc_matmul(...)``
accumulates in PSUM. The kernel runs in two steps here too; this pass joins them in the trace.
"""

from __future__ import annotations

from dataclasses import replace

from difftest.simulator.trace import Allocation, Event, Trace


def fuse_moves(trace: Trace) -> None:
    """Join each result that was only moved to its destination with the instruction that made it.

    The two must be adjacent in program order. A joined accumulation has the attribute
    ``accumulate`` and reads its destination.
    """
    events: list[Event] = []
    for event in trace.events:
        if _absorbed(event):
            continue
        source = event.attributes.get("moved")
        if source is not None and events and _joins(events[-1], source):
            events[-1] = _join(events[-1], event, source)
            continue
        if source is not None:
            rest = {key: value for key, value in event.attributes.items() if key != "moved"}
            event = replace(event, attributes=rest)
        events.append(event)
    trace.events = events


def _absorbed(event: Event) -> bool:
    """Whether it is a product that only a later matmul, the same with a destination, added up."""
    made = event.writes[0].allocation
    return made.absorbed > 0 and made.reads == 0 and made.writes == 1


def _joins(producer: Event, source: Allocation) -> bool:
    return (
        source.is_temporary
        and producer.writes[0].allocation is source
        and "joined" not in producer.attributes
    )


def _join(producer: Event, move: Event, source: Allocation) -> Event:
    accumulates = bool(move.attributes.get("accumulate"))
    attributes = {**producer.attributes, "joined": True}
    if accumulates:
        attributes["accumulate"] = True
    kept = tuple(region for region in move.reads if region.allocation is not source)
    return replace(
        producer,
        writes=move.writes + producer.writes[1:],
        reads=producer.reads + kept,
        attributes=attributes,
    )
