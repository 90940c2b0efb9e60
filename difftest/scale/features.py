"""What a case did, in words that a fuzzer counts: new ones lead it on.

They are coarse: a campaign keeps the cases that differ in what the kernel did, and not all it drew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from difftest.analysis.finding import Finding
from difftest.harness.coverage import Coverage
from difftest.harness.verdict import BothRejected, Verdict
from difftest.scale.findings import class_of_size
from difftest.simulator.trace import Location, Region, Trace

_TURNS = ("ran", "a second turn", "a third turn")
_BRANCHES = ("true", "false")
_TIMES = 3
"""Times that are told apart: a first tile, a second one, and the others."""


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
        yield from (f"{_at(Location(file, line))} {words[what]}" for what in done)


def _of_trace(trace: Trace) -> Iterator[str]:
    """Which instruction, at which line, on which sizes, for the how manieth time; what it saw."""
    times: Counter[tuple[Location | None, str]] = Counter()
    for event in trace.events:
        at, which = _at(event.location), (event.location, event.opcode)
        times[which] += 1
        for region in event.writes:
            yield f"{at} {event.opcode} {_sizes(region)} time {min(times[which], _TIMES)}"
        yield from (f"{at} {sight.what.value}" for sight in event.seen)


def _sizes(region: Region) -> str:
    free = math.prod(size for size, _ in region.free_axes)
    partitions = 1 if region.allocation.space.is_hbm else region.partitions
    partly = "" if region.whole else " partly"
    return f"{class_of_size(partitions)} x {class_of_size(free)}{partly}"


def _of_verdict(verdict: Verdict) -> str:
    error = verdict.kernel_error if isinstance(verdict, BothRejected) else None
    place = "" if error is None else f" {_at(getattr(error, 'location', None))}"
    return f"{type(verdict).__name__}{place}"


def _at(location: Location | None) -> str:
    return "" if location is None else f"{PurePath(location.file).name}:{location.line}"
