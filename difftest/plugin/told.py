"""How a failing kernel test is told: its report and no traceback of ours, once for one bug."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative

from difftest.harness.case import Case
from difftest.harness.decorator import kernel_test_of
from difftest.harness.failures import CaseFailure, ToldFailure
from difftest.harness.frames import without_files
from difftest.report.document import BUG, also_wrong, bugs_of

_AGAIN = re.compile("  (run again|replay):")
_LABEL = re.compile(r"^  [\w ]+:(?= )")


def tell(item: pytest.Function, failure: ToldFailure, report: pytest.TestReport) -> None:
    """Make a report's text the failure's own, and its message the headline."""
    start, text = item.config.invocation_params.dir, str(failure)
    raised = without_files(failure.raised) if failure.raised else None
    lines = [
        f"{os.path.relpath(at.filename, start)}:{at.lineno}: in {at.name}\n    {at.line}"
        for at in traceback.extract_tb(raised)
    ]
    lines += text.splitlines()
    if item.config.get_verbosity() > 0:  # what Hypothesis has to say
        lines += ["", *getattr(failure, "__notes__", ())]
    crash = ReprFileLocation(str(item.path), (item.location[1] or 0) + 1, failure.headline)
    shown = ReprTracebackNative([f"{line}\n" for line in lines])
    report.longrepr = ReprExceptionInfo(reprtraceback=shown, reprcrash=crash)
    # Of one bug, as far as anybody can tell: the same words, with other numbers.
    said = failure.rows()[:1] if isinstance(failure, CaseFailure) else text
    bug = re.sub(r"\d", "", f"{item.originalname} {failure.headline.partition(' at ')[0]} {said}")
    parameters = item.callspec.params if hasattr(item, "callspec") else {"": ""}
    (case,) = parameters.values()
    case = case.dtype if isinstance(case, Case) else case and "at the edges"
    setattr(report, BUG, [f"{report.nodeid.partition('::')[0]} {bug}", case, text.split("\n")[0]])


def shorten(error: BaseException, item: pytest.Item) -> None:
    """Of an error of the test's own lines leave out the frames of those who call it."""
    test, entry = kernel_test_of(getattr(item, "obj", None)), error.__traceback__
    code = None if test is None else inspect.unwrap(test.check_case).__code__
    while entry is not None and entry.tb_frame.f_code is not code:
        entry = entry.tb_next
    error.__traceback__ = entry or error.__traceback__


@contextmanager
def one_report_a_bug(stats: dict[str, list[Any]], writer: Any) -> Iterator[None]:
    """While pytest tells of failures, let one speak for all of one bug, in colour if it may."""
    failed, ignored = stats["failed"], stats.get("", [])
    bugs = bugs_of(failed)
    for lead, *others in bugs:
        if hasattr(lead, BUG):
            entry = lead.longrepr.reprtraceback.reprentries[0]
            lines = [*entry.lines]
            if others:
                again = next((n for n, line in enumerate(lines) if _AGAIN.match(line)), len(lines))
                lines.insert(again, f"  also wrong:  {also_wrong(others)}\n")
            entry.lines = [_painted(line, getattr(lead, BUG)[2], writer) for line in lines]
    left = [report for reports in bugs for report in reports[1:]]
    stats.update({"failed": [lead for lead, *_ in bugs], "": [*ignored, *left]})
    try:
        yield
    finally:
        stats.update({"failed": failed, "": ignored})


def _painted(line: str, title: str, writer: Any) -> str:
    if line.strip() == title:
        return f"{writer.markup(title, red=True, bold=True)}\n"
    return _LABEL.sub(lambda label: str(writer.markup(label[0], blue=True)), line)
