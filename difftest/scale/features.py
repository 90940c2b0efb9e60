"""What a case did, in words that a fuzzer can count: new ones lead it to what it has not seen.

They are coarse on purpose. A size is one of six classes and a loop has three kinds of turns, so
that a campaign keeps a few hundred cases that differ in what the kernel did, and not each case that
it drew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from difftest.analysis.finding import Finding
from difftest.harness.coverage import BRANCHES, TURNS, Coverage
from difftest.harness.verdict import BothRejected, Inconclusive, Verdict
from difftest.scale.found import class_of_size
from difftest.simulator.trace import Location, Region, Trace

_TURNS = ("ran", "a second turn", "a third turn")
_BRANCHES = ("true", "false")


def features(
    coverage: Coverage,
    traces: Iterable[Trace],
    findings: Iterable[Finding],
    verdicts: Mapping[str, Verdict],
) -> set[str]:
    """All that a case did: at branches and loops, by instructions, to detectors, to the judge."""
    return {
        *_of_forks(coverage),
        *(one for trace in traces for one in _of_trace(trace)),
        *(f"{_at(one.location)} {one.id}" for one in findings),
        *(_of_verdict(one) for one in verdicts.values()),
    }


def _of_forks(coverage: Coverage) -> Iterator[str]:
    for (file, line), done in coverage.done.items():
        words = _TURNS if coverage.forks[file, line] else _BRANCHES
        assert len(words) == len(TURNS if coverage.forks[file, line] else BRANCHES)
        yield from (f"{_at(Location(file, line))} {words[what]}" for what in done)


def _of_trace(trace: Trace) -> Iterator[str]:
    """Which instruction, at which line, on operands of which sizes; and what values it saw."""
    for event in trace.events:
        at = _at(event.location)
        for region in event.writes:
            yield f"{at} {event.opcode} {_sizes(region)}"
        for sight in event.seen:
            yield f"{at} {sight.what.value}"


def _sizes(region: Region) -> str:
    free = 1
    for size, _ in region.free_axes:
        free *= size
    partly = "" if region.whole else " partly"
    if region.allocation.space.is_hbm:
        return f"{class_of_size(region.elements)}{partly}"
    return f"{class_of_size(region.partitions)} x {class_of_size(free)}{partly}"


def _of_verdict(verdict: Verdict) -> str:
    if isinstance(verdict, BothRejected):
        error = verdict.kernel_error
        return f"{_at(getattr(error, 'location', None))} refused: {type(error).__name__}"
    if isinstance(verdict, Inconclusive):
        return "inconclusive"
    return type(verdict).__name__


def _at(location: object) -> str:
    if not isinstance(location, Location):
        return "somewhere"
    return f"{PurePath(location.file).name}:{location.line}"
