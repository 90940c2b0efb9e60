"""Where the engine that works most waits, and for whom: the symptoms of other findings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from difftest.simulator.trace import Engine, Location
from difftest.timing.advice.finding import Finding, Units
from difftest.timing.report import unit
from difftest.timing.schedule import Schedule, Span

NOTABLE = 0.1
"""Of the kernel's time: shorter waits are not worth a line."""
COMPUTE = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


def waits(schedule: Schedule, units: Units) -> Iterator[Finding]:
    """The waits of the busiest compute engine, by the line of what it waited for."""
    busiest = max(COMPUTE, key=lambda engine: units.busy.get(engine.value, 0.0))
    mine = [s for s in schedule.spans if s.engine is busiest and s.instruction.transfer is None]
    mine.sort(key=lambda span: span.start)
    idle: dict[tuple[str, str, Location | None], list[float]] = {}
    for before, after in pairwise(mine):
        gap = after.start - before.start - before.busy
        if gap > 0 and after.waited_for >= 0:
            idle.setdefault(_cause(after, schedule.spans), []).append(gap)
    for (who, what, location), gaps in idle.items():
        if sum(gaps) < NOTABLE * schedule.end:
            continue
        yield Finding(
            kind="waiting",
            location=location,
            count=len(gaps),
            lost=sum(gaps) / 1e3,
            work=sum(gaps) / 1e3,
            text=f"the {busiest.value} engine, which works most, waits {len(gaps):,} times for "
            f"{who} ({what})",
            remedy="start what it waits for earlier, or let it take less; other findings say how",
            symptom=True,
        )


def _cause(span: Span, spans: list[Span]) -> tuple[str, str, Location | None]:
    other = spans[span.waited_for]
    what = (
        f"{other.instruction.opcode} to free a buffer" if span.buffer else other.instruction.opcode
    )
    return unit(other), what, other.instruction.event.location
