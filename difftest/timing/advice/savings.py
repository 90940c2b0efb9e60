"""What a piece of advice is, and what following it is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from difftest.analysis.finding import Finding, Severity, group_by
from difftest.simulator.trace import Engine, Location
from difftest.timing.schedule import Schedule, Span

DMA_ENGINES = "dma engines"
DMA_TRIGGER = "dma triggers"
"""Units beside the compute engines: what moves data, and what starts DMAs."""

LEAST = 0.05
"""Microseconds: a gain that would be shown as none."""


@dataclass(frozen=True, kw_only=True)
class Advice(Finding):
    """Work that the kernel does and need not do; a note if it only shows where time goes.

    Times in microseconds, predicted.
    """

    count: int
    """How often."""
    lost: float
    """At most so much the kernel would gain: the work's share of the critical path, or less where
    the schedule was tried again without it."""
    work: float
    """Time of all units that it takes, hidden behind others or not."""
    spared: Mapping[int, float] = field(default_factory=dict, repr=False)
    """Instruction -> the share of it that would not be there; empty if nobody can try."""

    def as_mapping(self) -> dict[str, object]:
        """All of it, in what JSON has."""
        times = {"count": self.count, "lost_us": self.lost, "work_us": self.work}
        return {**super().as_mapping(), **times}


class Savings(NamedTuple):
    """What some work is worth; microseconds. See :class:`Advice`."""

    lost: float
    work: float
    spared: Mapping[int, float] = {}


def advice_on(
    spans: list[Span], id: str, savings: Savings, *, happened: str, rule: str, remedy: str
) -> Advice:
    """A warning about some instructions; ``worth`` is what :meth:`Units.without` says of them."""
    lines = spans_by_line(spans)
    busiest = sorted(lines, key=lambda line: -sum(span.busy for span in lines[line]))
    return Advice(
        id=id,
        severity=Severity.WARNING,
        happened=happened,
        rule=rule,
        locations=tuple(line for line in busiest if line),
        remedy=remedy,
        evidence=event_numbers(spans),
        count=len(spans),
        **savings._asdict(),
    )


def event_numbers(spans: Iterable[Span]) -> tuple[int, ...]:
    """The numbers of the instructions in the trace, without those that the compiler added."""
    events = (span.instruction.event for span in spans if not span.instruction.implied)
    return tuple(sorted(event.number for event in events))


def ranked(findings: Iterable[Advice]) -> list[Advice]:
    """Those that gain something, the most first; notes last."""
    kept = [finding for finding in findings if finding.lost >= LEAST]
    return sorted(kept, key=lambda hint: (hint.severity is Severity.NOTE, -hint.lost, hint.id))


Unit = tuple[int, str]
"""A core's number, and what of it works."""


class Units:
    """How long each unit is busy; what taking work away from some of them is worth."""

    def __init__(self, schedule: Schedule) -> None:
        self.busy = RemovedWork(schedule.spans).times
        self.critical = schedule.critical

    def most(self, name: str) -> float:
        """How long a unit of this name is busy, on the core where it is so longest; ns."""
        return max((time for (_, unit), time in self.busy.items() if unit == name), default=0.0)

    def without(self, removed: RemovedWork) -> Savings:
        """No schedule gets shorter by more than what goes of its critical path."""
        shares = removed.shares
        most = sum(share * self.critical.get(index, 0.0) for index, share in shares.items())
        return Savings(most, sum(removed.times.values()) / 1e3, shares)


class RemovedWork:
    """Work that would not be there, by unit: a share of each of these spans, and what is added."""

    def __init__(self, spans: Iterable[Span] = (), share: float = 1.0) -> None:
        self.times: dict[Unit, float] = {}
        self.shares: dict[int, float] = {}
        """Of each instruction, the part of it."""
        for span in spans:
            self.add(span, share)

    def add(self, span: Span, share: float = 1.0) -> None:
        """Take away ``share`` of an instruction."""
        name = span.engine.value
        if span.instruction.transfer is not None:
            self.take(span, DMA_ENGINES, share * (span.transfer_end - span.transfer_start))
            name = DMA_TRIGGER if span.engine is Engine.DMA else f"{name} {DMA_TRIGGER}"
        self.take(span, name, share * span.busy)
        self.shares[span.instruction.index] = share

    def take(self, span: Span, name: str, time: float) -> None:
        """Take away ``time`` ns of the work of a unit of the core that an instruction is on."""
        unit = (span.instruction.core, name)
        index = span.instruction.index
        self.shares[index] = max(self.shares.get(index, 0.0), min(1.0, time / (span.busy or 1.0)))
        self.times[unit] = self.times.get(unit, 0.0) + time


def spans_by_line(spans: list[Span]) -> dict[Location | None, list[Span]]:
    """The spans by the kernel's source line."""
    return group_by(spans, lambda span: span.instruction.event.location)
