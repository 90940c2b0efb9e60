"""Reads the trace of a launch with every rule of traces that holds for its machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path

from difftest.lint.check import Diagnostic, rules
from difftest.lint.sdk import LAST_CLASSIC, NEWEST, SDKS, Release
from difftest.lint.silence import Ignored, ignored_in
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Location, Trace


def sdk_of(trace: Trace, level: str | None = None) -> Release:
    """The SDK of a level of NKI; else the newest of the kernel's dialect."""
    asked = [one for one in SDKS.values() if level is not None and one.level == level]
    return (asked or [LAST_CLASSIC if trace.dialect == "classic" else NEWEST])[0]


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
        if (id, at) not in diagnostics and not _is_ignored(id, at):
            called = "".join(f", called at {one.file}:{one.line}" for one in at.calls)
            diagnostics[id, at] = Diagnostic(
                at.file, at.line, 1, id, happened + called, at.line, 1 + len(at.text)
            )
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


def _is_ignored(id: str, at: Location) -> bool:
    """Whether a comment silences a rule at a line, or at a line that called it."""
    return any(
        comment.silences(id, one.line) for one in (at, *at.calls) for comment in _comments(one.file)
    )


@lru_cache(maxsize=64)
def _comments(file: str) -> tuple[Ignored, ...]:
    try:
        return tuple(ignored_in(Path(file).read_text(encoding="utf-8")))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ()  # a kernel of a REPL has no file that could hold comments
