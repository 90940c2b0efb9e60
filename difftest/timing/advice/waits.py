"""Where the engine that works most waits, and for whom: the symptoms of other findings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from difftest.analysis.finding import Severity
from difftest.simulator.trace import Engine, Location
from difftest.timing.advice.worth import Advice, Units, numbers
from difftest.timing.report import unit
from difftest.timing.schedule import Schedule, Span

NOTABLE = 0.1
"""Of the kernel's time: shorter waits are not worth a line."""
COMPUTE = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


def waits(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """The waits of the busiest compute engine, by the line of what it waited for."""
    busiest = max(COMPUTE, key=lambda engine: units.busy.get(engine.value, 0.0))
    mine = [s for s in schedule.spans if s.engine is busiest and s.instruction.transfer is None]
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
            happened=f"the {busiest.value} engine, which works most, waits {len(gaps):,} times "
            f"for {who} ({what})",
            rule="a kernel takes as long as its busiest engine if that engine never waits",
            remedy="start what it waits for earlier, or let it take less; other findings say how",
        )


def _cause(span: Span, spans: list[Span]) -> tuple[str, str, Location | None]:
    other = spans[span.waited_for]
    what = (
        f"{other.instruction.opcode} to free a buffer" if span.buffer else other.instruction.opcode
    )
    return unit(other), what, other.instruction.event.location
