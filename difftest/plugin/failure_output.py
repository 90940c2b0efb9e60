"""The output of failing kernel tests: one report for each bug, without the package's own frames.

A failing case also runs once more, in a new process, to verify its "run again" line. A kernel, a
reference or a test may keep state from one call to the next. Such a case may fail among others and
pass alone, or the other way round. A process takes seconds to start, so only the first failing test
of a session gets one.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from difftest.plugin.session import reproduction_of
from difftest.simulator.errors import relative_path
from difftest.support.github import in_github_actions, workflow_command
from difftest.support.tracebacks import inner_frames, without_files
from difftest.testing.harness.decorated import kernel_test_of
from difftest.testing.harness.failures import (
    CaseFailure,
    NotRejectedError,
    ReportedFailure,
    quote_command,
)
from difftest.testing.harness.runner import Runner
from difftest.testing.report.document import BUG, also_wrong, bugs_of
from difftest.testing.report.failure import failing_line
from difftest.testing.session.options import SESSION
from difftest.testing.session.pytest_internals import (
    ReportLines,
    TerminalWriter,
    set_failure_text,
    untrimmed_messages,
)

_AGAIN = re.compile("  (run again|replay):")
_HYPOTHESIS = re.compile(r"\s*(Failing test case|Falsifying example|You can repr)")
PLACE = "difftest_place"
"""The attribute of a report with the file, the line and the text of a failure, for GitHub."""
_CALLS = {"rejection": "a call to reject", "calls": "at the edges"}
"""Labels of tests without a case, by the name of their argument."""


def set_report(
    item: pytest.Function, failure: ReportedFailure, report: pytest.TestReport
) -> None:
    """Replace a report's text by the failure's own, and its message by the headline."""
    text = str(failure)
    lines = _report_lines(item, failure, text)
    message = failure.headline
    if failure.beside:
        message += f" (and {len(failure.beside)} more)"
    set_failure_text(report, item, lines, message)
    file = report.nodeid.partition("::")[0]
    bug = f"{file} {_bug_key(item, failure, text)}"
    setattr(report, BUG, [bug, _case_label(item), text.split("\n")[0]])
    at = failing_line(failure)
    if at is not None and in_github_actions():
        setattr(report, PLACE, [at.file, at.line, text])


def annotation_lines(reports: Iterable[Any]) -> list[str]:
    """Return a workflow command of GitHub for each bug, at its line of the kernel."""
    root = os.environ.get("GITHUB_WORKSPACE", os.getcwd())
    commands = []
    for lead, *_ in bugs_of(report for report in reports if hasattr(report, PLACE)):
        file, line, text = getattr(lead, PLACE)
        title, _, rest = text.partition("\n")
        place = os.path.relpath(file, root)
        commands.append(
            workflow_command("error", rest, file=place, line=line, title=title)
        )
    return commands


def _report_lines(
    item: pytest.Function, failure: ReportedFailure, text: str
) -> list[str]:
    """Return the lines of a report: the frames of the cause, the text, and how to run it again."""
    whole = "\n\n".join([text, *failure.beside])
    lines = _cause_lines(failure, text) + whole.split("\n")
    if type(failure) is NotRejectedError:
        # --case takes no such case: run the test again.
        again = reproduction_of(item, item.config.stash[SESSION].request)
        node = again.node + item.name.removeprefix(item.originalname)
        command = quote_command(["pytest", *again.options, node])
        lines.append(f"  run again:   {command}")
    if item.config.get_verbosity() > 0:  # the notes of Hypothesis
        lines += ["", *getattr(failure, "__notes__", ())]
    return lines


def _cause_lines(failure: ReportedFailure, text: str) -> list[str]:
    """Return the frames of the error that a failure reports; none if the text names all lines."""
    if failure.raised is None:
        return []
    frames = {
        f"{relative_path(frame.filename)}:{frame.lineno}": frame
        for frame in traceback.extract_tb(without_files(failure.raised))
    }
    if all(place in text for place in frames):
        return []
    lines = []
    for place, frame in frames.items():
        lines += f"{place}: in {frame.name}\n    {frame.line}".split("\n")
    return lines


def _bug_key(item: pytest.Function, failure: ReportedFailure, text: str) -> str:
    """Return a key that failures of one bug share: the same words, whatever their numbers."""
    first = failure.rows()[:1] if isinstance(failure, CaseFailure) else text
    words = f"{failure.headline.partition(' at ')[0]} {first}"
    return item.originalname + re.sub(r"\d", "", words)


def _case_label(item: pytest.Function) -> str:
    """Return the dtype of a test's case, or the label of a test without a case."""
    own: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    if "case" in own:
        return str(own["case"].dtype)
    return next((_CALLS[name] for name in own if name in _CALLS), "")


def trim_traceback(error: BaseException, item: pytest.Item, runner: Runner) -> None:
    """Remove the frames of the callers from an error that the test's own lines raised.

    Unless pytest is verbose, Hypothesis's notes are replaced by the command that runs the case
    again.
    """
    test = kernel_test_of(getattr(item, "obj", None))
    if test is not None:
        code = inspect.unwrap(test.check_case).__code__
        for entry in inner_frames(error):
            if entry.tb_frame.f_code is code:
                error.__traceback__ = entry
    notes = getattr(error, "__notes__", [])
    if runner.now and runner.reproduction and item.config.get_verbosity() < 1:
        notes = [note for note in notes if not _HYPOTHESIS.match(note)]
        notes.append(f"run again: {runner.reproduction.command(runner.now[1])}")
    error.__notes__ = [*notes, *getattr(error, "beside", ())]


def encodable(data: Any) -> Any:
    """Return the data of a report, with a lone surrogate in a text as an escape."""
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(data, dict):
        return {encodable(name): encodable(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(map(encodable, data))
    return data


@contextmanager
def group_failures(
    stats: dict[str, list[Any]], hidden_on: TerminalWriter | None = None
) -> Iterator[None]:
    """Show one failure for each bug while pytest reports failures, in colour where possible.

    Its message is printed whole in the last lines, where pytest would cut it at the terminal's
    width.

    Parameters
    ----------
    stats : reports of pytest's terminal reporter; changed within the block.
    hidden_on : terminal that shows the messages alone (``--tb=line``); files have the full report.
    """
    failed = stats["failed"]
    ignored = stats.get("", [])
    shown: list[Any] = []
    hidden: list[Any] = []
    messages = set()
    for lead, *others in bugs_of(failed):
        shown.append(lead)
        hidden += others
        if hasattr(lead, BUG):
            messages.add(lead.longrepr.reprcrash.message)
            entries = lead.longrepr.reprtraceback.reprentries
            lines = _with_others(entries[0].lines, others)
            entries[0] = ReportLines(lines, getattr(lead, BUG)[2], hidden_on)
    stats.update({"failed": shown, "": ignored + hidden})
    try:
        with untrimmed_messages(messages):
            yield
    finally:
        stats.update({"failed": failed, "": ignored})


def _with_others(lines: list[str], others: list[Any]) -> list[str]:
    """Return the lines of a report with the other cases of its bug, above the commands."""
    if not others:
        return list(lines)
    place = len(lines)
    for number, line in enumerate(lines):
        if _AGAIN.match(line):
            place = number
            break
    return lines[:place] + [f"  also wrong:  {also_wrong(others)}\n"] + lines[place:]


_START = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # as the script `pytest` has it
import pytest
sys.exit(pytest.main())
"""
_PATIENCE = 600.0
"""Seconds after which the process is stopped."""


def rerun_alone(config: pytest.Config, failure: CaseFailure) -> str:
    """Run a failing case alone in a new process; return how the result differs, or empty text.

    Only the first failure of a session is run again; for others the text is empty.
    """
    again = failure.again
    session = config.stash[SESSION]
    if again is None or session.ran_again:
        return ""
    session.ran_again = True
    python = [sys.executable, "-c", _START]
    try:
        done = subprocess.run(
            python + again.arguments(failure.case) + ["-pno:cacheprovider"],
            cwd=config.invocation_params.dir,
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"not over after {_PATIENCE:g} s in a process of its own"
    except OSError as error:  # such as a command line that arrays make too long
        return (
            f"the line above does not start in a process of its own: {error.strerror}"
        )
    if done.returncode == pytest.ExitCode.TESTS_FAILED:
        return ""
    if done.returncode == pytest.ExitCode.OK:
        return (
            "passes in a process of its own: the kernel, its reference or the test keeps "
            "something from one call to the next, and the case needs the calls before it"
        )
    return (
        f"the line above ends with exit code {done.returncode} in a process of its own"
    )
