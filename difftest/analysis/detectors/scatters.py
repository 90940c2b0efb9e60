"""Writes through indices, whose order on a device nothing defines.

The descriptors of one DMA run on several queues at once, and those of two DMAs that add to one row
are not ordered by what the compiler knows of them. Which rows meet is in the data; the simulator
notes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from difftest.analysis.detectors.detector import Found
from difftest.analysis.detectors.programs import MEETINGS
from difftest.analysis.detectors.survey import Touch, survey_of
from difftest.analysis.finding import Finding, Severity
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Location, Region, Seen, Sight, Trace

ADDED_TWICE = "scatter-added-twice"
TWICE = "scatter-twice"
AFTER_WRITE = "scatter-after-write"
SKIPPED = "scatter-skipped"

_REMEDY = "add up what goes to one row before (as a product with a matrix of zeros and ones does), "
_REMEDY += "or give each its own row and sum the rows afterwards"


def scatters(trace: Trace, machine: Machine) -> Found:
    """Rows that several indices name, and scatters that add to what was just written."""
    said: set[tuple[object, ...]] = set()
    for finding in (*_seen(trace, machine), *_after_writes(trace)):
        if (finding.id, finding.locations) not in said:
            said.add((finding.id, finding.locations))
            yield finding


def _seen(trace: Trace, machine: Machine) -> Iterator[Finding]:
    for event in survey_of(trace).seen:
        for sight in event.seen:
            if sight.what is Seen.PLACE_ADDED_TWICE:
                yield _finding(
                    ADDED_TWICE,
                    Severity.ERROR,
                    f"{_named(event)} adds to one place more than once: {_counted(sight)}",
                    "additions of one DMA to one place are not ordered, and some are lost",
                    _REMEDY,
                    event,
                )
            elif sight.what is Seen.PLACE_ADDED_AGAIN:
                yield _finding(
                    ADDED_TWICE,
                    Severity.WARNING,
                    f"{_named(event)} adds to places to which another DMA has added: "
                    f"{_counted(sight)}",
                    "additions of two DMAs to one row are not ordered, and some can be lost",
                    _REMEDY,
                    event,
                )
            elif sight.what is Seen.PLACE_TWICE:
                yield _finding(
                    TWICE,
                    Severity.WARNING,
                    f"{_named(event)} writes values that differ to one place: {_counted(sight)} "
                    "are lost",
                    "of values that one DMA writes to one place any may stay",
                    "let the indices differ, also those of padded rows whose place is read",
                    event,
                )
            elif sight.what is Seen.INDEX_SKIPPED and machine.nc_version >= 3:
                yield _finding(
                    SKIPPED,
                    Severity.WARNING,
                    f"{event.opcode} skips indices out of bounds: {sight.elements} of {sight.of} "
                    "elements",
                    "a scatter that adds and skips, and a transpose of rows by indices that skips, "
                    "were seen to abort the DMA (trn2, trn3), and the device to hang",
                    "let each row that is not wanted go to a row of its own that nobody reads",
                    event,
                )


def _after_writes(trace: Trace) -> Iterator[Finding]:
    """A scatter that adds to a tensor in HBM that was written plainly, with no barrier between."""
    survey = survey_of(trace)
    if not survey.has_scatter:
        return
    for touches in survey.accesses.values():
        if not touches[0].region.allocation.space.is_hbm:
            continue
        plain: Touch | None = None
        for touch in touches:
            event = touch.event
            if event.opcode in MEETINGS:
                plain = None
            elif not touch.writes:
                continue
            elif not _adds(event, touch.region):
                if touch.region.whole:
                    plain = touch
            elif plain is not None:
                yield _finding(
                    AFTER_WRITE,
                    Severity.WARNING,
                    f"{_named(event)} adds to what {plain.event.opcode} wrote just before",
                    "a plain write and a scatter that adds run on other queues: of 128 or 510 rows "
                    "one was seen to be lost (trn1, trn2)",
                    "clear the tensor in another kernel, or let the first scatter overwrite",
                    event,
                    plain.event,
                )
                break


def _adds(event: Event, region: Region) -> bool:
    """Whether a DMA adds to the places that its indices name."""
    return event.opcode == "dma_scatter" and any(
        other.allocation is region.allocation and other.role == "dst" for other in event.reads
    )


def _named(event: Event) -> str:
    return f"a scatter to {event.writes[0].allocation}"


def _counted(sight: Sight) -> str:
    first = list(sight.first)
    return f"{sight.elements} of {sight.of} elements, the first at {first} of the source"


def _finding(
    id: str, severity: Severity, happened: str, rule: str, remedy: str, *events: Event
) -> Finding:
    lines: list[Location | None] = [event.location for event in events]
    return Finding(
        id=id,
        severity=severity,
        happened=happened,
        rule=rule,
        locations=tuple(dict.fromkeys(line for line in lines if line is not None)),
        remedy=remedy,
        evidence=tuple(sorted(event.number for event in events)),
    )
