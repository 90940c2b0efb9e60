"""The errors of a test that Hypothesis groups: one of them, and descriptions of the others."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from difftest.simulator.errors import Location, relative_path
from difftest.support.tracebacks import format_error, inner_frames, is_own
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.failures import (
    CaseFailure,
    ReportedFailure,
    format_report,
)
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.writers import locate_writers

_SEVERAL = "Hypothesis found "
"""The first words of Hypothesis's group of errors, for a test with several failures."""


@contextmanager
def one_of_several(runner: Runner) -> Iterator[None]:
    """Replace a group of Hypothesis's errors within the block by one of them.

    It is the simplest error, and errors of this package come before the test's own. Its ``beside``
    describes the other errors.
    """
    try:
        yield
    except BaseException as group:
        if not (hasattr(group, "exceptions") and str(group).startswith(_SEVERAL)):
            raise
        errors = group.exceptions[::-1]  # the simplest is Hypothesis's last
        ours = [error for error in errors if isinstance(error, ReportedFailure)]
        theirs = [error for error in errors if not isinstance(error, ReportedFailure)]
        lead, *others = ours + theirs
        lead.__dict__["beside"] = [_describe_other(runner, error) for error in others]
        before = lead.__context__
        try:
            raise lead
        finally:
            lead.__context__ = before  # not the group


def _describe_other(runner: Runner, error: BaseException) -> str:
    """Return the report of a failure; for the test's own errors one line, and how to run it."""
    if isinstance(error, CaseFailure):
        locate_writers(error, runner.backends)
        return str(error)
    text = format_error(error)
    at = raised_at(error, runner.now[0]) if runner.now else None
    if at is not None:
        text = f"{relative_path(at.file)}:{at.line}: {text}"
    rows = []
    case = _case_of(error)
    if runner.reproduction is not None and case is not None:
        rows.append(("run again", runner.reproduction.command(case)))
    return format_report(text, rows)


def _case_of(error: BaseException) -> Case | None:
    """Return the case of an error: a variable of a function that the error has passed."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        case = frame.f_locals.get("case")
        if isinstance(case, Case):
            return case
    return None


def raised_at(error: BaseException, spec: KernelSpec) -> Location | None:
    """Return the line of the kernel, or of the reference, that raised an error; else None."""
    at = getattr(error, "location", None)
    if isinstance(at, Location):
        return at
    for function in (spec.kernel, spec.reference):
        for entry in inner_frames(error):
            if is_own(entry, function):
                return Location(entry.tb_frame.f_code.co_filename, entry.tb_lineno)
    return None
