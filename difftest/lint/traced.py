"""Reads the trace of a launch with every rule of traces that holds for its machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from difftest.analysis.silence import is_silenced
from difftest.lint.check import Diagnostic, rules
from difftest.lint.fix import TextRange
from difftest.lint.sdk import LAST_CLASSIC, NEWEST, Release, of_level
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Location, Trace


def sdk_of(trace: Trace, level: str | None = None) -> Release:
    """The SDK of a level of NKI; else the newest of the kernel's dialect."""
    return of_level(level) or (LAST_CLASSIC if trace.dialect == "classic" else NEWEST)


def lint_trace(
    trace: Trace, sdk: Release | None = None, ids: Collection[str] = ()
) -> list[Diagnostic]:
    """What a launch did that the compiler of its machine refuses: each line once for each rule.

    Parameters
    ----------
    sdk : None for the newest that the kernel's dialect was written for.
    ids : of rules, if not all are meant.
    """
    diagnostics: dict[tuple[str, Location], Diagnostic] = {}
    for id, at, happened in _breaches(trace, sdk or sdk_of(trace), ids):
        if (id, at) not in diagnostics and not is_silenced(id, at):
            called = "".join(f", called at {one.file}:{one.line}" for one in at.calls)
            region = TextRange(at.line, 1, at.line, 1 + len(at.text))
            diagnostics[id, at] = Diagnostic(at.file, region, id, happened + called)
    return sorted(diagnostics.values())


def _breaches(
    trace: Trace, sdk: Release, ids: Collection[str]
) -> Iterator[tuple[str, Location, str]]:
    machine = MACHINES[trace.machine]
    for one in rules().values():
        is_asked = one.reads_traces and (not ids or one.id in ids)
        if is_asked and one.holds(sdk, machine.name):
            for at, happened in one.reader(trace, machine):
                if at.location is not None:
                    yield one.id, at.location, happened
