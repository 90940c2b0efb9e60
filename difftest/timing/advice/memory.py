"""Advice on memory: what fills SBUF while loads wait, and tensors filled again too soon."""

from __future__ import annotations

from collections.abc import Iterator

from difftest.simulator.trace import Allocation, Space
from difftest.timing.advice.worth import Advice, Units, Worth, advice_on
from difftest.timing.memory_usage import memory_usage
from difftest.timing.schedule import Schedule, Span

NOTABLE = 0.1
"""Of the kernel's time: less is not worth a line."""
FULL = 0.75
"""The part of SBUF that is taken at its peak, from which on it is full."""
SOON = 1000.0
"""Nanoseconds: what waits longer for its turn once it has a place waits for that."""


def full_sbuf(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Loads for which SBUF has no place, so that they do not run ahead of those who need them."""
    time = sum(stretch.time for stretch in schedule.path if _waited_for_room(stretch.span))
    if time < NOTABLE * schedule.end / 1e3:
        return
    usage = memory_usage(schedule, Space.SBUF)
    largest = usage.holders[0]
    share = usage.peak / usage.capacity
    if share < FULL:
        return  # places are given in program order: what waits is far ahead of its turn
    waiting = [span for span in schedule.spans if _waited_for_room(span)]
    yield advice_on(
        waiting,
        "full-sbuf",
        Worth(time, time),
        happened=f"{len(waiting):,} loads wait until SBUF has a place for them ({share:.0%} of it "
        f"is taken, most by {largest.tensors} x {largest.name} of {largest.line}), so that they "
        "begin when their data are needed and not before",
        rule="a load runs beside the computation before it only if SBUF has a place for both",
        remedy="make the tiles of that line smaller, or load what each turn needs instead of all "
        "of it at once: twice what a turn uses is enough",
    )


def reused_tensors(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Tensors that are filled again while others still use them."""
    tensors: dict[int, Allocation] = {}
    users: dict[int, list[Span]] = {}
    for span in schedule.spans:
        if (tensor := _shared(span, schedule.spans)) is not None:
            tensors[tensor.id] = tensor
            users.setdefault(tensor.id, []).append(span)
    for number, waiting in users.items():
        time = sum(units.critical.get(span.instruction.index, 0.0) for span in waiting)
        if time < NOTABLE * schedule.end / 1e3:
            continue
        tensor = tensors[number]
        line = f" of line {tensor.location.line}" if tensor.location else ""
        yield advice_on(
            waiting,
            "reused-tensor",
            Worth(time, time),
            happened=f"{len(waiting):,} instructions fill {tensor.name or 'a tensor'}{line} again, "
            "and wait until all who use what it held are done",
            rule="the users of one tensor wait for each other; two tensors have two places",
            remedy="make the tensor inside the loop, or two or more that are used in turn: what "
            "fills the next one runs beside who reads the last one",
        )


def _shared(span: Span, spans: list[Span]) -> Allocation | None:
    """The on-chip tensor that ``span`` waited for others to be done with; None if it is none."""
    step, by = span.instruction, span.waited_for
    if by < 0 or span.buffer or span.start - span.ready >= SOON or by in step.data:
        return None
    if by not in step.order and all(number >= 0 for number in step.order):  # nor in a join of them
        return None
    other = spans[by].instruction.event
    users = {region.allocation.id for region in (*other.reads, *other.writes)}
    return next(
        (
            region.allocation
            for region in step.event.writes
            if region.allocation.id in users and not region.allocation.space.is_hbm
        ),
        None,
    )


def _waited_for_room(span: Span) -> bool:
    step = span.instruction
    return (
        step.transfer is not None
        and step.transfer.reads_hbm
        and span.buffer
        and span.start - span.ready < SOON
        and any(tensor.space is Space.SBUF for tensor in step.opens)
    )
