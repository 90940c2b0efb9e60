"""Where the engine that works most waits, and for whom: the symptoms of other findings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from difftest.analysis.finding import Severity
from difftest.simulator.trace import Location
from difftest.timing.advice.worth import Advice, Units, Worth, advice_on, by_line, numbers
from difftest.timing.report import ENGINES, unit
from difftest.timing.schedule import Schedule, Span

NOTABLE = 0.1
"""Of the kernel's time: shorter waits are not worth a line."""
LIMIT = 0.8
"""Of the kernel's time: who is as busy is the limit, whoever waits for it."""
TURNS = 4
"""Fewer barriers are not worth a line."""
COMPUTE = ENGINES[:-1]
_COMPUTE = frozenset(engine.value for engine in COMPUTE)


def waits(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """The waits of the busiest compute engine, by the line of what it waited for.

    None if DMA is the limit: a kernel cannot have that wait less.
    """
    limits = (time for (_, name), time in units.busy.items() if name not in _COMPUTE)
    if max(limits, default=0.0) >= LIMIT * schedule.end:
        return
    most = max(COMPUTE, key=lambda engine: units.most(engine.value))
    core = max(range(schedule.program.cores), key=lambda n: units.busy.get((n, most.value), 0.0))
    mine = [
        span
        for span in schedule.spans
        if span.engine is most and span.instruction.core == core and not span.instruction.transfer
    ]
    mine.sort(key=lambda span: span.start)
    idle: dict[tuple[str, str, Location | None], list[tuple[float, Span]]] = {}
    for before, after in pairwise(mine):
        gap = after.start - before.start - before.busy
        if gap > 0 and after.waited_for >= 0:
            idle.setdefault(_cause(after, schedule.spans), []).append((gap, after))
    for (who, what, location), gaps in idle.items():
        time = sum(gap for gap, _ in gaps)
        if time < NOTABLE * schedule.end:
            continue
        yield Advice(
            id="waiting",
            severity=Severity.NOTE,
            locations=(location,) if location else (),
            evidence=numbers(span for _, span in gaps),
            count=len(gaps),
            lost=time / 1e3,
            work=time / 1e3,
            happened=f"the {most.value} engine, the busiest that computes, waits "
            f"{len(gaps):,} times for {who} ({what})",
            rule="a kernel takes as long as its busiest engine if that engine never waits",
            remedy="start what it waits for earlier, or let it take less; other findings say how",
        )


def device_loops(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Loops on the device, whose turns do not overlap.

    Without them the busiest unit would be the limit.
    """
    barriers = [s for s in schedule.spans if s.instruction.implied and not s.instruction.transfer]
    busiest = max(units.busy.values(), default=0.0)
    for spans in by_line(barriers).values():
        share = len(spans) / len(barriers)
        lost = share * max(0.0, schedule.end - busiest) / 1e3
        if len(spans) < TURNS or lost < NOTABLE * schedule.end / 1e3:
            continue
        yield advice_on(
            spans,
            "device-loop",
            Worth(lost, lost),
            happened=f"all engines wait for each other {len(spans):,} times, before and after each "
            "turn of a loop that runs on the device",
            rule="such a loop is not unrolled: no turn begins before the last one's DMAs are over",
            remedy="do the work of several turns in each, loads first; or loop with Python's "
            "range, which is unrolled",
        )


def _cause(span: Span, spans: list[Span]) -> tuple[str, str, Location | None]:
    other = spans[span.waited_for]
    what = other.instruction.opcode + " to free a buffer" * span.buffer
    return unit(other), what, other.instruction.event.location
