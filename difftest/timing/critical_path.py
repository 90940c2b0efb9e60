"""The chain of instructions that a kernel's time is made of."""

from __future__ import annotations

from typing import NamedTuple

from difftest.timing.schedule import Schedule, Span


class Stretch(NamedTuple):
    """The part of the time that the chain spends in one instruction."""

    span: Span
    time: float
    """Microseconds, from its start to that of the next one in the chain, or to its own end."""
    next: Span | None
    """The instruction that began when this stretch was over; None for the last one."""


def critical_path(schedule: Schedule) -> list[Stretch]:
    """From the first to the last instruction of the chain that ends last.

    Each instruction waited for the one before it: for its result, its buffer, or its turn on the
    engine. Their times add up to the time of the last one's end.
    """
    ends = schedule.timeline.end
    until = max(ends)
    span: Span | None = schedule.span(len(ends) - 1 - ends[::-1].index(until))
    chain: list[Stretch] = []
    following: Span | None = None
    while span is not None:
        before = began_after(span)
        previous = None if before < 0 else schedule.span(before)
        since = min(span.start, until) if previous is not None else 0.0
        chain.append(Stretch(span, (until - since) / 1e3, following))
        until, following, span = since, span, previous
    return chain[::-1]


def began_after(span: Span) -> int:
    """The instruction that ``span`` began after: its engine's previous one, or its operands'.

    -1 if it began at once.
    """
    return span.released_by if waited_for_engine(span) else span.waited_for


def waited_for_engine(span: Span) -> bool:
    """Whether its operands were ready before its engine was."""
    return span.start > span.ready and span.released_by >= 0


def waited_for_place(span: Span) -> bool:
    """Whether it waited for a place to write to, and not for an operand.

    Which tensors share a place, and when a tensor that is written again gets a new one, is the
    compiler's decision.
    """
    if waited_for_engine(span) or span.waited_for < 0:
        return False
    one = span.instruction
    return span.buffer or (span.waited_for in one.order and span.waited_for not in one.data)
