"""Advice on SBUF: what fills it while loads wait."""

from __future__ import annotations

from collections.abc import Iterator

from difftest.simulator.trace import Space
from difftest.timing.advice.worth import Advice, Units, advice_on
from difftest.timing.critical_path import critical_path
from difftest.timing.memory_usage import memory_usage
from difftest.timing.schedule import Schedule, Span

NOTABLE = 0.1
"""Of the kernel's time: less is not worth a line."""
SOON = 1000.0
"""Nanoseconds: what waits longer for its turn once it has a place waits for that."""


def full_sbuf(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Loads for which SBUF has no place, so that they do not run ahead of those who need them."""
    late = [(one.span, one.time) for one in critical_path(schedule) if _waited_for_room(one.span)]
    time = sum(time for _, time in late)
    if time < NOTABLE * schedule.end / 1e3:
        return
    usage = memory_usage(schedule, Space.SBUF)
    largest = usage.holders[0]
    share = usage.peak / usage.capacity
    waiting = [span for span in schedule.spans if _waited_for_room(span)]
    yield advice_on(
        waiting,
        "full-sbuf",
        (time, time),
        happened=f"{len(waiting):,} loads wait until SBUF has a place for them ({share:.0%} of it "
        f"is taken, most by {largest.tensors} x {largest.name} of {largest.line}), so that they "
        "begin when their data are needed and not before",
        rule="a load runs beside the computation before it only if SBUF has a place for both",
        remedy="make the tiles of that line smaller, or load what each turn needs instead of all "
        "of it at once: twice what a turn uses is enough",
        moves_data=True,
    )


def _waited_for_room(span: Span) -> bool:
    one = span.instruction
    return (
        one.transfer is not None
        and one.transfer.reads_hbm
        and span.buffer
        and span.start - span.ready < SOON
        and any(tensor.space is Space.SBUF for tensor in one.opens)
    )
