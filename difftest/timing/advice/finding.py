"""What a piece of advice is, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from difftest.simulator.trace import Engine, Location
from difftest.timing.schedule import Schedule, Span

DMA_ENGINES = "dma engines"
DMA_TRIGGER = "dma triggers"
"""Units beside the compute engines: what moves data, and what starts DMAs."""

NOTABLE = 0.02
"""Of the kernel's time: a smaller gain is not what limits it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that the kernel does and need not do. Times in microseconds, predicted."""

    kind: str
    location: Location | None
    """Where the kernel does it; None if nowhere in particular."""
    count: int
    """How often."""
    lost: float
    """By how much the busiest unit would have less to do: what the kernel takes too long."""
    work: float
    """Time of all units that it takes, hidden behind others or not."""
    text: str
    remedy: str
    moves_data: bool = False
    """Whether the work is the DMA engines' alone, which run beside all others."""
    symptom: bool = False
    """Whether it shows where time goes, and its cause is another finding."""


def ranked(findings: list[Finding], total: float) -> list[Finding]:
    """The findings by time lost, the largest first; then what others hide; symptoms last.

    What is hidden is ordered by its work, that of the compute engines before that of DMA.
    """

    def rank(one: Finding) -> tuple[object, ...]:
        lost = one.lost if one.lost >= NOTABLE * total else 0.0
        return (one.symptom, -lost, one.moves_data, -one.work, one.kind)

    return sorted(findings, key=rank)


class Units:
    """How long each unit is busy; what taking work away from some of them is worth."""

    def __init__(self, schedule: Schedule) -> None:
        self.busy: dict[str, float] = {}
        for span in schedule.spans:
            for unit, time in work_of(span).items():
                self.busy[unit] = self.busy.get(unit, 0.0) + time

    def without(self, removed: Mapping[str, float]) -> tuple[float, float]:
        """(what the busiest unit gains, all work removed), microseconds; ``removed`` in ns."""
        before = max(self.busy.values(), default=0.0)
        after = max(
            (time - removed.get(unit, 0.0) for unit, time in self.busy.items()), default=0.0
        )
        return max(0.0, before - after) / 1e3, sum(removed.values()) / 1e3


def work_of(span: Span) -> dict[str, float]:
    """Unit -> ns that an instruction keeps it busy."""
    if span.instruction.transfer is None:
        return {span.engine.value: span.busy}
    trigger = DMA_TRIGGER if span.engine is Engine.DMA else f"{span.engine.value} {DMA_TRIGGER}"
    return {trigger: span.busy, DMA_ENGINES: span.transfer_end - span.transfer_start}


@dataclass
class Removed:
    """Work that would not be there, by unit."""

    times: dict[str, float] = field(default_factory=dict)

    def add(self, span: Span, share: float = 1.0) -> None:
        """Take away ``share`` of an instruction."""
        for unit, time in work_of(span).items():
            self.times[unit] = self.times.get(unit, 0.0) + share * time

    def take(self, unit: str, time: float) -> None:
        """Take away ``time`` ns of a unit's work."""
        self.times[unit] = self.times.get(unit, 0.0) + time


def by_line(spans: list[Span]) -> dict[Location | None, list[Span]]:
    """The spans by the kernel's source line."""
    groups: dict[Location | None, list[Span]] = {}
    for span in spans:
        groups.setdefault(span.instruction.event.location, []).append(span)
    return groups
