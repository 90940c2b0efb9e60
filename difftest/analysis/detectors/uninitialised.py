"""What nothing wrote, where it matters: in an output, or as an index.

The simulator follows what masks left out, element by element
(:mod:`difftest.simulator.instructions.definedness`), and notes where it goes.
"""

from __future__ import annotations

from collections.abc import Iterator

from difftest.analysis.detectors.numbers import Noted, by_line, is_output, lines_of, share
from difftest.analysis.detectors.survey import survey_of
from difftest.analysis.finding import Finding, Severity
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Location, Seen, Sight, Trace

OUTPUT = "uninitialised-output"
INDEX = "uninitialised-index"


def uninitialised(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Outputs and indices that depend on what a mask left unwritten."""
    stored: Noted = []
    indices: Noted = []
    for event in survey_of(trace).seen:
        for sight in event.seen:
            if sight.what is Seen.UNDEFINED_STORED and is_output(event):
                stored.append((event, sight))
            elif sight.what is Seen.UNDEFINED_INDEX:
                indices.append((event, sight))
    for noted in by_line(stored):
        event, sight = next((one for one in noted if one[1].value is not None), noted[0])
        hidden = "" if sight.value is None else f"; as {sight.value:g} it looks like a result"
        yield Finding(
            id=OUTPUT,
            severity=Severity.WARNING if sight.value is None else Severity.ERROR,
            happened=f"an output depends on elements that nothing wrote: {share(sight)}, of what "
            f"{event.opcode} stored to {event.writes[0].allocation}{hidden}{_whence(sight)}",
            rule="what a mask leaves out of a tile is whatever lay in the memory: a reduction over "
            "it, a product or a comparison with it can be anything",
            locations=_lines(event, sight),
            remedy="mask the instruction that reads it too, fill the tile first (nl.zeros), or "
            "select the valid part before it is reduced",
            evidence=tuple(one.number for one, _ in noted),
        )
    for noted in by_line(indices):
        event, sight = noted[0]
        yield Finding(
            id=INDEX,
            severity=Severity.ERROR,
            happened=f"{event.opcode} takes indices that depend on what nothing wrote: "
            f"{share(sight)}{_whence(sight)}",
            rule="an index that nothing wrote names any element, or none: a device then reads or "
            "writes elsewhere, or faults",
            locations=_lines(event, sight),
            remedy="mask the access as the load of the indices was masked, or fill them first",
            evidence=tuple(one.number for one, _ in noted),
        )


def _whence(sight: Sight) -> str:
    """The tensor of which something was never written, and who read it first."""
    return "" if sight.origin is None else f"; it comes from {sight.origin}"


def _lines(event: Event, sight: Sight) -> tuple[Location, ...]:
    """Where it is used, where the tensor was made, and where it was read first."""
    lines = [*lines_of(event)]
    if sight.origin is not None:
        lines += (
            line
            for line in (sight.origin.allocation.location, sight.origin.location)
            if line is not None
        )
    return tuple(dict.fromkeys(lines))
