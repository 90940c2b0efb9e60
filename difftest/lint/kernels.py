"""What the linter says of one kernel that is about to run, as findings beside the hazards."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from difftest.analysis.finding import Finding, Severity
from difftest.lint.check import Diagnostic, lint
from difftest.lint.hazards import HAZARDS
from difftest.lint.rule import Group
from difftest.lint.sdk import of_level
from difftest.lint.source import Source, called_by
from difftest.lint.traced import lint_trace, sdk_of
from difftest.simulator.trace import Location, Trace

_DETECTED = ("NKI521", "NKI544")
"""Rules of traces that the detectors partition-start and program-trip-counts have, too."""


def findings_of(
    kernel: Callable[..., Any], level: str | None = None, trace: Trace | None = None
) -> tuple[Finding, ...]:
    """The rules that a kernel, and the functions of its file that it calls, break.

    It has run here, so all are warnings, those about time notes. Hazards are left to who looks for
    them in its trace. A kernel whose source cannot be read breaks no rule of sources.

    Parameters
    ----------
    level : of NKI; None for the newest of its dialect.
    trace : of the kernel's run, for the rules of traces.
    """
    function = inspect.unwrap(kernel)
    code = getattr(function, "__code__", None)
    read = lint_trace(trace, sdk_of(trace, level)) if trace is not None else []
    findings: tuple[Finding, ...] = ()
    if code is not None:
        text = "".join(linecache.getlines(code.co_filename))
        findings = _findings(code.co_filename, text, function.__name__, level)
    return (*findings, *(_finding(one) for one in read if one.id not in _DETECTED))


@lru_cache(maxsize=256)
def _findings(file: str, text: str, name: str, level: str | None) -> tuple[Finding, ...]:
    try:
        source = Source(Path(file), text, (name,))
    except SyntaxError:
        return ()
    functions = [source.functions[one] for one in called_by(source, name)]
    lines = {line for one in functions for line in range(one.lineno, (one.end_lineno or 0) + 1)}
    diagnostics = lint(source, of_level(level) or source.sdk)
    return tuple(
        _finding(one) for one in diagnostics if one.line in lines and one.id not in HAZARDS
    )


def _finding(one: Diagnostic) -> Finding:
    return Finding(
        id=one.id,
        severity=Severity.NOTE if one.rule.group is Group.PERFORMANCE else Severity.WARNING,
        happened=one.happened,
        rule=one.rule.rule,
        locations=(Location(one.path, one.line),),
        remedy=one.rule.remedy,
    )
