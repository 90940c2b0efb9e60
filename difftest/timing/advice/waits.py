"""Waits of the busiest engine: for other engines, for room, or for a tensor's users."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from difftest.analysis.finding import Severity, group_by
from difftest.simulator.trace import Allocation, Event, Location, Space
from difftest.timing.advice.savings import (
    Advice,
    Savings,
    Units,
    advice_on,
    event_numbers,
    spans_by_line,
)
from difftest.timing.report import ENGINES, memory_usage, unit
from difftest.timing.schedule import Schedule, Span

NOTABLE = 0.1
"""The least share of the kernel's time for a finding."""
FULL = 0.75
"""The least share of SBUF in use at its peak that counts as full."""
SOON = 1000.0
"""Nanoseconds: a longer wait after the place is free counts as a wait for the engine."""
LIMIT = 0.8
"""The least share of the kernel's time that makes a busy unit the limit."""
TURNS = 4
"""The least number of barriers for a finding."""
COMPUTE = ENGINES[:-1]
_COMPUTE = frozenset(engine.value for engine in COMPUTE)


def full_sbuf(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on loads that wait for room in SBUF and cannot run ahead."""
    time = sum(
        segment.time for segment in schedule.path if _waited_for_room(segment.span)
    )
    if time < NOTABLE * schedule.end / 1e3:
        return
    usage = memory_usage(schedule, Space.SBUF)
    largest = usage.holders[0]
    share = usage.peak / usage.capacity
    if share < FULL:
        return  # places are assigned in program order: the waiting load is far ahead
    waiting = [span for span in schedule.spans if _waited_for_room(span)]
    yield advice_on(
        waiting,
        "full-sbuf",
        Savings(time, time),
        happened=f"{len(waiting):,} loads wait until SBUF has a place for them ({share:.0%} of it "
        f"is taken, most by {largest.tensors} x {largest.name} of {largest.line}), so that they "
        "begin when their data are needed and not before",
        rule="a load overlaps the computation before it only if SBUF has a place for both",
        remedy="make the tiles of that line smaller, or load the data of each iteration in place "
        "of all data at once: room for two iterations is enough",
    )


def reused_tensors(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on tensors that are filled again while other instructions still use them."""
    shared = [(_shared(span, schedule.spans), span) for span in schedule.spans]
    pairs = [(tensor, span) for tensor, span in shared if tensor is not None]
    for group in group_by(pairs, lambda pair: pair[0].id).values():
        tensor = group[0][0]
        waiting = [span for _, span in group]
        time = sum(units.critical.get(span.instruction.index, 0.0) for span in waiting)
        if time < NOTABLE * schedule.end / 1e3:
            continue
        line = f" of line {tensor.location.line}" if tensor.location else ""
        yield advice_on(
            waiting,
            "reused-tensor",
            Savings(time, time),
            happened=f"{len(waiting):,} instructions fill {tensor.name or 'a tensor'}{line} again, "
            "and wait for all users of its earlier data",
            rule="the users of one tensor wait for each other; two tensors have two places",
            remedy="make the tensor inside the loop, or use two or more tensors in turn: then one "
            "is filled while the other is read",
        )


def _shared(span: Span, spans: list[Span]) -> Allocation | None:
    """Return the on-chip tensor whose other users ``span`` waited for; None if there is none."""
    step = span.instruction
    by = span.waited_for
    if by < 0 or span.buffer or span.start - span.ready >= SOON or by in step.data:
        return None
    joined = min(step.order, default=0) < 0
    if by not in step.order and not joined:
        return None
    return _common_tensor(step.event, spans[by].instruction.event)


def _common_tensor(event: Event, other: Event) -> Allocation | None:
    """Return the on-chip tensor that an event writes and another one uses."""
    users = {region.allocation.id for region in other.reads + other.writes}
    for region in event.writes:
        tensor = region.allocation
        if tensor.id in users and not tensor.space.is_hbm:
            return tensor
    return None


def _waited_for_room(span: Span) -> bool:
    step = span.instruction
    return (
        step.transfer is not None
        and step.transfer.reads_hbm
        and span.buffer
        and span.start - span.ready < SOON
        and any(tensor.space is Space.SBUF for tensor in step.opens)
    )


def waits(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on the waits of the busiest compute engine, by the line that it waited for.

    If DMA is the limit nothing is yielded: the kernel cannot reduce that wait.
    """
    busiest = _busiest_engine(schedule, units)
    if busiest is None:
        return
    core, most = busiest
    for cause, waiting in _waits_of(schedule, core, most).items():
        waited_unit, waited_work, location = cause
        time = sum(gap for gap, _ in waiting)
        if time < NOTABLE * schedule.end:
            continue
        yield Advice(
            id="waiting",
            severity=Severity.NOTE,
            locations=(location,) if location else (),
            evidence=event_numbers(span for _, span in waiting),
            count=len(waiting),
            lost=time / 1e3,
            work=time / 1e3,
            happened=f"the {most} engine, the busiest that computes, waits "
            f"{len(waiting):,} times for {waited_unit} ({waited_work})",
            rule="if the busiest engine never waits, the kernel takes the time of that engine",
            remedy="start the awaited work earlier, or make it shorter; other findings say how",
        )


def _busiest_engine(schedule: Schedule, units: Units) -> tuple[int, str] | None:
    """Return the core and the name of the busiest compute engine; None if DMA is the limit."""
    busy = sorted((time, name, core) for (core, name), time in units.busy.items())
    computing = [unit for unit in busy if unit[1] in _COMPUTE]
    others = [unit for unit in busy if unit[1] not in _COMPUTE]
    if not computing or (others and others[-1][0] >= LIMIT * schedule.end):
        return None
    _, name, core = computing[-1]
    return core, name


Cause = tuple[str, str, Location | None]
"""The unit that an engine waited for, its work, and the line of the work."""


def _waits_of(
    schedule: Schedule, core: int, engine: str
) -> dict[Cause, list[tuple[float, Span]]]:
    """Return cause -> the idle time of an engine before each instruction, in ns."""
    spans = [
        span
        for span in schedule.spans
        if (span.instruction.core, unit(span)) == (core, engine)
    ]
    spans.sort(key=lambda span: span.start)
    idle: dict[Cause, list[tuple[float, Span]]] = {}
    for before, after in pairwise(spans):
        gap = after.start - before.start - before.busy
        if gap > 0 and after.waited_for >= 0:
            other = schedule.spans[after.waited_for]
            work = other.instruction.opcode + " to free a buffer" * after.buffer
            cause = unit(other), work, other.instruction.event.location
            idle.setdefault(cause, []).append((gap, after))
    return idle


def device_loops(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on loops on the device, whose iterations do not overlap.

    Without such loops the busiest unit would be the limit.
    """
    barriers = [
        s
        for s in schedule.spans
        if s.instruction.implied and not s.instruction.transfer
    ]
    busiest = max(units.busy.values(), default=0.0)
    for spans in spans_by_line(barriers).values():
        share = len(spans) / len(barriers)
        lost = share * max(0.0, schedule.end - busiest) / 1e3
        if len(spans) < TURNS or lost < NOTABLE * schedule.end / 1e3:
            continue
        yield advice_on(
            spans,
            "device-loop",
            Savings(lost, lost),
            happened=f"all engines wait for each other {len(spans):,} times, before and after each "
            "iteration of a loop that runs on the device",
            rule="such a loop is not unrolled: no iteration begins before the DMAs of the "
            "last one are over",
            remedy="do the work of several iterations in each, loads first; or loop with Python's "
            "range, which is unrolled",
        )
