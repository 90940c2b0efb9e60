"""What a piece of advice is, and what following it is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from difftest.analysis.finding import Finding, Severity
from difftest.simulator.trace import Engine, Location
from difftest.timing.schedule import Schedule, Span

DMA_ENGINES = "dma engines"
DMA_TRIGGER = "dma triggers"
"""Units beside the compute engines: what moves data, and what starts DMAs."""

NOTABLE = 0.02
"""Of the kernel's time: a smaller gain is not what limits it."""


@dataclass(frozen=True, kw_only=True)
class Advice(Finding):
    """Work that the kernel does and need not do; a note if it only shows where time goes.

    Times in microseconds, predicted.
    """

    count: int
    """How often."""
    lost: float
    """By how much the busiest unit would have less to do: what the kernel takes too long."""
    work: float
    """Time of all units that it takes, hidden behind others or not."""
    moves_data: bool = False
    """Whether the work is the DMA engines' alone, which run beside all others."""

    def as_mapping(self) -> dict[str, object]:
        """All of it, in what JSON has."""
        times = {"count": self.count, "lost_us": self.lost, "work_us": self.work}
        return {**super().as_mapping(), **times}


def advice_on(
    spans: list[Span],
    id: str,
    worth: tuple[float, float],
    *,
    happened: str,
    rule: str,
    remedy: str,
    moves_data: bool = False,
) -> Advice:
    """A warning about some instructions; ``worth`` is what :meth:`Units.without` says of them."""
    lost, work = worth
    lines = by_line(spans)
    busiest = sorted(lines, key=lambda line: -sum(span.busy for span in lines[line]))
    return Advice(
        id=id,
        severity=Severity.WARNING,
        happened=happened,
        rule=rule,
        locations=tuple(line for line in busiest if line),
        remedy=remedy,
        evidence=numbers(spans),
        count=len(spans),
        lost=lost,
        work=work,
        moves_data=moves_data,
    )


def numbers(spans: Iterable[Span]) -> tuple[int, ...]:
    """The numbers of the instructions in the trace, without those that the compiler added."""
    events = (span.instruction.event for span in spans if not span.instruction.implied)
    return tuple(sorted(event.number for event in events))


def ranked(findings: list[Advice], total: float) -> list[Advice]:
    """The findings by time lost, the largest first; then what others hide; notes last.

    What is hidden is ordered by its work, that of the compute engines before that of DMA.
    """

    def rank(one: Advice) -> tuple[object, ...]:
        lost = one.lost if one.lost >= NOTABLE * total else 0.0
        return (one.severity is Severity.NOTE, -lost, one.moves_data, -one.work, one.id)

    return sorted(findings, key=rank)


Unit = tuple[int, str]
"""A core's number, and what of it works."""


class Units:
    """How long each unit is busy; what taking work away from some of them is worth."""

    def __init__(self, schedule: Schedule) -> None:
        self.busy = Removed(schedule.spans).times

    def most(self, name: str) -> float:
        """How long a unit of this name is busy, on the core where it is so longest; ns."""
        return max((time for (_, unit), time in self.busy.items() if unit == name), default=0.0)

    def without(self, removed: Mapping[Unit, float]) -> tuple[float, float]:
        """(what the busiest unit gains, all work removed), microseconds; ``removed`` in ns."""
        before = max(self.busy.values(), default=0.0)
        after = max(
            (time - removed.get(unit, 0.0) for unit, time in self.busy.items()), default=0.0
        )
        return max(0.0, before - after) / 1e3, sum(removed.values()) / 1e3


class Removed:
    """Work that would not be there, by unit: a share of each of these spans, and what is added."""

    def __init__(self, spans: Iterable[Span] = (), share: float = 1.0) -> None:
        self.times: dict[Unit, float] = {}
        for span in spans:
            self.add(span, share)

    def add(self, span: Span, share: float = 1.0) -> None:
        """Take away ``share`` of an instruction."""
        name = span.engine.value
        if span.instruction.transfer is not None:
            self.take(span, DMA_ENGINES, share * (span.transfer_end - span.transfer_start))
            name = DMA_TRIGGER if span.engine is Engine.DMA else f"{name} {DMA_TRIGGER}"
        self.take(span, name, share * span.busy)

    def take(self, span: Span, name: str, time: float) -> None:
        """Take away ``time`` ns of the work of a unit of the core that an instruction is on."""
        unit = span.instruction.core, name
        self.times[unit] = self.times.get(unit, 0.0) + time


def by_line(spans: list[Span]) -> dict[Location | None, list[Span]]:
    """The spans by the kernel's source line."""
    groups: dict[Location | None, list[Span]] = {}
    for span in spans:
        groups.setdefault(span.instruction.event.location, []).append(span)
    return groups
