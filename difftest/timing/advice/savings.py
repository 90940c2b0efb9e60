"""Advice, and its estimated savings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from difftest.analysis.finding import Finding, Severity, group_by
from difftest.simulator.trace import Engine, Location
from difftest.timing.cost_table import free_elements
from difftest.timing.schedule import Schedule, Span

_NAMES = {engine: engine.value for engine in Engine}
"""The names of engines: an enumeration's ``value`` takes several times as long."""
DMA_ENGINES = "dma engines"
DMA_TRIGGER = "dma triggers"
"""Units other than the compute engines: the DMA engines, and the triggers of DMAs."""

LEAST = 1.0
"""Microseconds: the least gain of a finding."""
LEAST_SHARE = 0.02
"""The least gain of a finding, relative to the kernel's own part."""


@dataclass(frozen=True, kw_only=True)
class Advice(Finding):
    """Unnecessary work of a kernel; a note if it only shows where time goes.

    Times in microseconds, predicted.
    """

    count: int
    """The number of instructions."""
    lost: float
    """The most that the kernel would gain: the work's share of the critical path, or less if a new
    schedule without the work shows less."""
    work: float
    """Time of all units for this work, hidden behind other work or not."""
    spared: Mapping[int, float] = field(default_factory=dict, repr=False)
    """Instruction -> its unnecessary share; empty if a new schedule is impossible."""

    def as_mapping(self) -> dict[str, object]:
        """Return all fields in JSON's types."""
        times = {"count": self.count, "lost_us": self.lost, "work_us": self.work}
        return {**super().as_mapping(), **times}


class Savings(NamedTuple):
    """Estimated savings of some work, in microseconds. See :class:`Advice`."""

    lost: float
    work: float
    spared: Mapping[int, float] = {}


def advice_on(
    spans: list[Span],
    id: str,
    savings: Savings,
    *,
    happened: str,
    rule: str,
    remedy: str,
) -> Advice:
    """Return a warning about some instructions; :meth:`Units.without` gives its ``savings``."""
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
    """Return the trace numbers of the instructions, except those that the compiler added."""
    events = (span.instruction.event for span in spans if not span.instruction.implied)
    return tuple(sorted(event.number for event in events))


def ranked(findings: Iterable[Advice], least: float) -> list[Advice]:
    """Return the findings that gain at least ``least`` us, the most first; notes last."""
    kept = [finding for finding in findings if finding.lost >= least]
    return sorted(
        kept, key=lambda hint: (hint.severity is Severity.NOTE, -hint.lost, hint.id)
    )


Unit = tuple[int, str]
"""A core's number, and the name of a unit on it."""


class Units:
    """The busy time of each unit, and the savings from less work."""

    def __init__(self, schedule: Schedule) -> None:
        self.busy = RemovedWork(schedule.spans).times
        self.critical = schedule.critical
        self._elements: dict[int, int] = {}

    def elements(self, span: Span) -> int:
        """Return the elements per partition of an instruction's largest on-chip operand."""
        index = span.instruction.index
        count = self._elements.get(index)
        if count is None:
            count = self._elements[index] = free_elements(span.instruction.event)
        return count

    def longest_busy(self, name: str) -> float:
        """Return the longest busy time of a unit of this name on any core; ns."""
        return max(
            (time for (_, unit), time in self.busy.items() if unit == name), default=0.0
        )

    def without(self, removed: RemovedWork) -> Savings:
        """Return the savings from removed work: at most its share of the critical path."""
        shares = removed.shares
        most = sum(
            share * self.critical.get(index, 0.0) for index, share in shares.items()
        )
        return Savings(most, sum(removed.times.values()) / 1e3, shares)


class RemovedWork:
    """Work to remove, by unit: a share of each of these spans, and further additions."""

    def __init__(self, spans: Iterable[Span] = (), share: float = 1.0) -> None:
        self.times: dict[Unit, float] = {}
        self.shares: dict[int, float] = {}
        """For each instruction, the removed share."""
        for span in spans:
            self.add(span, share)

    def add(self, span: Span, share: float = 1.0) -> None:
        """Remove ``share`` of an instruction."""
        step = span.instruction
        name = _NAMES[span.engine]
        if step.transfer is not None:
            time = share * (span.transfer_end - span.transfer_start)
            self._count((step.core, DMA_ENGINES), time)
            name = DMA_TRIGGER if span.engine is Engine.DMA else f"{name} {DMA_TRIGGER}"
        self._count((step.core, name), share * span.busy)
        self.shares[step.index] = share

    def take(self, span: Span, name: str, time: float) -> None:
        """Remove ``time`` ns of the work of a unit on the instruction's core."""
        index = span.instruction.index
        self.shares[index] = max(
            self.shares.get(index, 0.0), min(1.0, time / (span.busy or 1.0))
        )
        self._count((span.instruction.core, name), time)

    def _count(self, unit: Unit, time: float) -> None:
        self.times[unit] = self.times.get(unit, 0.0) + time


def spans_by_line(spans: list[Span]) -> dict[Location | None, list[Span]]:
    """Group the spans by the kernel's source line."""
    return group_by(spans, lambda span: span.instruction.event.location)
