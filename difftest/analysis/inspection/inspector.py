"""The inspector: runs the detectors on launches and records their findings."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from difftest.analysis.detectors import DETECTORS, DetectionResult, detect
from difftest.analysis.detectors.access_index import is_accumulating_dma
from difftest.analysis.finding import Finding, Severity
from difftest.simulator import NkiError
from difftest.simulator.launch_listeners import LaunchRecord
from difftest.simulator.program_scheduler import FORWARD, ExecutionOrder
from difftest.simulator.trace import Event, Location, Purpose, Trace
from difftest.support.internal_errors import internal_error_scope

if TYPE_CHECKING:
    from difftest.simulator.exact.run import ExactOutput

REVERSED = ExecutionOrder(reversed=True)
"""The last program first, to its end."""

SERIAL = ExecutionOrder(serial=True)
"""The first program first, to its end; programs of the current dialect otherwise alternate."""

SHUFFLED = ExecutionOrder(seed=0)
"""Programs in a random order that is the same each time."""

_FLOAT64 = 2.0**-20
"""The error that float64 may add, relative to a bound of float32's or a narrower dtype's rounding
errors. The units of the two are 2**-29 apart; long sums may be counted with the root of their
length."""


def depends_on_order(
    record: LaunchRecord, held: Iterable[Location | None], loop: Location | None = None
) -> bool:
    """Return whether another order gives other outputs, bit for bit, or does not end.

    The kernel runs once more for each order, and its printed output is hidden. Random numbers
    repeat those of the launch: each program draws the same numbers in each iteration.

    Parameters
    ----------
    held : lines where a program waits that may be late.
    loop : the line of the loop whose iterations are reordered; None for the programs.
    """
    trace = record.trace
    if loop is None:
        orders = informative_orders(trace, held)
    else:
        orders = [ExecutionOrder(loop, reversed=True), ExecutionOrder(loop, seed=0)]
    sums = any(_adds_up(event, loop) for event in trace.events)
    return any(_differs(record, order, sums=sums) for order in orders)


def informative_orders(
    trace: Trace, held: Iterable[Location | None]
) -> list[ExecutionOrder]:
    """Return the orders of programs worth a run; each costs as much as the launch itself."""
    late = frozenset(held)
    programs = {event.program for event in trace.events}
    latest_writes = [
        ExecutionOrder(held=late),
        ExecutionOrder(held=late, reversed=True),
        ExecutionOrder(held=late, serial=True),
    ]
    plain = (
        [REVERSED]
        + [SHUFFLED] * (len(programs) > 2)
        + [SERIAL] * (trace.dialect == "nki")
    )
    if late:
        return latest_writes + plain
    return plain


def _adds_up(event: Event, loop: Location | None) -> bool:
    """Return whether an instruction adds to data of other iterations of the loop, or programs."""
    if loop is not None and all(
        iteration.loop.location != loop for iteration in event.loops
    ):
        return False
    return is_accumulating_dma(event) or (
        loop is not None and event.attributes.accumulate
    )


def _differs(record: LaunchRecord, order: ExecutionOrder, *, sums: bool) -> bool:
    """Return whether another order changes the outputs. Roundings of ``sums`` do not count."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            outputs = record.again(order)
        except (NkiError, AssertionError):  # it ran in the simulator's order
            return True
    made, before = (
        [(array.shape, array.tobytes()) for array in arrays]
        for arrays in (outputs, record.outputs)
    )
    if made == before:
        return False
    return not (sums and len(made) == len(before) and _is_rounding(record, order))


def _is_rounding(record: LaunchRecord, order: ExecutionOrder) -> bool:
    """Return whether exact runs agree, so that only the order of additions differs."""
    if record.exactly is None:
        return False
    with contextlib.redirect_stdout(io.StringIO()):
        first = record.exactly(FORWARD)
        other = record.exactly(order)
    # without exact runs, such as with random numbers, the answer is unknown
    if not first:
        random = Purpose.BITS, Purpose.DRAW
        return any(event.purpose in random for event in record.trace.events)
    return len(first) == len(other) and all(map(_agree, first, other))


def _agree(first: ExactOutput, other: ExactOutput) -> bool:
    """Return whether two exact runs differ only by the roundings of float64."""
    if first.value.shape != other.value.shape:
        return False
    errors = [output.error for output in (first, other) if output.error is not None]
    limit = _FLOAT64 * np.maximum.reduce(errors) if errors else 0.0
    with np.errstate(invalid="ignore"):
        near = np.abs(first.value - other.value) <= limit
    same = (first.value == other.value) | (
        np.isnan(first.value) & np.isnan(other.value)
    )
    return bool(np.all(near | same))


_PAGES = {detector.id: detector.page for detector in DETECTORS}


def finding_text(finding: Finding) -> str:
    """Return a finding as text: the event, the rule, the lines, the remedy, the documentation."""
    first, *others = finding.locations or (None,)
    more = f"difftest lint --explain {finding.id}, or # difftest: ignore[{finding.id}] on the line"
    if finding.id in _PAGES:
        more = f"{_PAGES[finding.id]}, or # difftest: allow[{finding.id}] on the line"
    rows = [
        ("rule", finding.rule),
        ("where", str(first) if first else None),
        *(("and", str(location)) for location in others),
        ("remedy", finding.remedy),
        ("more", more),
    ]
    head = f"{finding.severity.value} {finding.id}: {finding.happened}"
    return "\n".join(
        [head, *(f"  {name + ':':<10}{text}" for name, text in rows if text)]
    )


@dataclass
class Inspector:
    """A listener to launches (``with listening(inspector)``) that keeps each new finding.

    A later launch adds no finding that an earlier launch has shown at the same line, even if other
    lines take part with other shapes.

    Attributes
    ----------
    strict : whether a warning counts as a failure.
    findings : the findings on all launches so far, in order of detection.
    suppressed : the number of findings that a comment allows.
    """

    strict: bool = False
    findings: list[Finding] = field(default_factory=list)
    suppressed: int = 0
    _reported: set[tuple[object, ...]] = field(default_factory=set)

    def __call__(self, record: LaunchRecord) -> None:
        """Inspect one launch; each rank is one launch."""
        with internal_error_scope("the search for hazards"):
            self._inspect(record)

    def _inspect(self, record: LaunchRecord) -> None:
        """Add the new findings on a launch."""
        detected = inspect(record)
        self.suppressed += len(detected.suppressed)
        before = {
            (finding.id, finding.severity, finding.location)
            for finding in self.findings
        }
        for finding in detected.findings:
            key = finding.id, finding.severity, finding.locations
            if key not in self._reported and (*key[:2], finding.location) not in before:
                self._reported.add(key)
                if record.rank is not None:  # other ranks may do the same
                    happened = f"on rank {record.rank}, {finding.happened}"
                    finding = replace(finding, happened=happened)
                self.findings.append(finding)

    @property
    def failures(self) -> list[Finding]:
        """The findings that fail a test."""
        return [
            finding for finding in self.findings if fails(finding, strict=self.strict)
        ]


def inspect(record: LaunchRecord) -> DetectionResult:
    """Return the detectors' findings on a launch; runs in other orders settle doubtful cases."""
    detected = detect(record.trace, record.machine)
    if not detected.inconclusive:
        return detected
    held = {
        case.differs.location for case in detected.inconclusive if case.loop is None
    } - {None}
    return detected.resolved(
        functools.cache(functools.partial(depends_on_order, record, held))
    )


def fails(finding: Finding, *, strict: bool) -> bool:
    """Return whether a finding fails a test: an error, or with ``strict`` a warning."""
    if finding.severity is Severity.ERROR:
        return True
    return strict and finding.severity is Severity.WARNING
