"""How a failing kernel test is told: its report and no traceback of ours, once for one bug.

And a failing case once more, in a process of its own, so that its "run again" is true. A kernel, a
reference or a test that keeps something from one call to the next fails among other cases and
passes alone, or the other way round. A process takes seconds, most of them to start: the first
failing test of a session has one, the others go without.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from _pytest import _io, terminal
from _pytest._code import code as shapes

from difftest.plugin.session import reproduction_of
from difftest.simulator.errors import relative_path
from difftest.support.tracebacks import without_files
from difftest.testing.harness.decorator import kernel_test_of
from difftest.testing.harness.failures import (
    CaseFailure,
    NotRejectedError,
    ReportedFailure,
    quote_command,
)
from difftest.testing.harness.runner import Runner
from difftest.testing.report.document import BUG, also_wrong, bugs_of
from difftest.testing.session.options import SESSION

_AGAIN = re.compile("  (run again|replay):")
_HYPOTHESIS = re.compile(r"\s*(Failing test case|Falsifying example|You can repr)")
_LABEL = re.compile(r"^  [\w ]+:(?= )")
_CALLS = {"rejection": "a call to be refused", "calls": "at the edges"}
"""What stands for a case that is none, by the argument that has it."""


def set_report(item: pytest.Function, failure: ReportedFailure, report: pytest.TestReport) -> None:
    """Make a report's text the failure's own, and its message the headline."""
    raised = without_files(failure.raised) if failure.raised else None
    text = str(failure)
    frames = {
        f"{relative_path(at.filename)}:{at.lineno}": at for at in traceback.extract_tb(raised)
    }
    if all(place in text for place in frames):  # the report names these lines
        frames = {}
    raising = [f"{place}: in {at.name}\n    {at.line}" for place, at in frames.items()]
    lines = "\n".join([*raising, "\n\n".join([text, *failure.beside])]).split("\n")
    if type(failure) is NotRejectedError:  # no case that --case takes: the test runs again
        again = reproduction_of(item, item.config.stash[SESSION].request)
        node = again.node + item.name.removeprefix(item.originalname)
        lines.append(f"  run again:   {quote_command(['pytest', *again.options, node])}")
    if item.config.get_verbosity() > 0:  # what Hypothesis has to say
        lines += ["", *getattr(failure, "__notes__", ())]
    message = failure.headline + f" (and {len(failure.beside)} more)" * bool(failure.beside)
    crash = shapes.ReprFileLocation(str(item.path), (item.location[1] or 0) + 1, message)
    shown = shapes.ReprTracebackNative([f"{line}\n" for line in lines])
    report.longrepr = shapes.ReprExceptionInfo(reprtraceback=shown, reprcrash=crash)
    # Of one bug, as far as anybody can tell: the same words, with other numbers.
    said = failure.rows()[:1] if isinstance(failure, CaseFailure) else text
    bug = item.originalname + re.sub(r"\d", "", f"{failure.headline.partition(' at ')[0]} {said}")
    # Beside what fixtures have, and the test's own arguments.
    own: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    case = own["case"].dtype if "case" in own else next((_CALLS[n] for n in own if n in _CALLS), "")
    setattr(report, BUG, [f"{report.nodeid.partition('::')[0]} {bug}", case, text.split("\n")[0]])


def trim_traceback(error: BaseException, item: pytest.Item, runner: Runner) -> None:
    """Of an error of the test's own lines leave out the frames of those who call it.

    What Hypothesis says is for who wants to know more; in its place is how to run the case again.
    """
    test = kernel_test_of(getattr(item, "obj", None))
    entry = error.__traceback__
    code = None if test is None else inspect.unwrap(test.check_case).__code__
    while entry is not None and entry.tb_frame.f_code is not code:
        entry = entry.tb_next
    error.__traceback__ = entry or error.__traceback__
    notes = getattr(error, "__notes__", [])
    if runner.now and runner.reproduction and item.config.get_verbosity() < 1:
        notes = [note for note in notes if not _HYPOTHESIS.match(note)]
        notes += [f"run again: {runner.reproduction.command(runner.now[1])}"]
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


class ColoredReport(shapes.ReprEntryNative):
    """The lines of a report, in colour where a terminal shows them: a page takes them as text."""

    def __init__(
        self, lines: list[str], title: str, hidden: _io.TerminalWriter | None = None
    ) -> None:
        self.lines = lines
        self.title = title
        self.hidden = hidden

    def toterminal(self, tw: _io.TerminalWriter) -> None:
        if tw is self.hidden:
            return
        for line in self.lines:
            if line.strip() == self.title:
                line = tw.markup(self.title, red=True, bold=True)
            # Each with an end of its own: pytest writes what a terminal lacks as an escape.
            tw.line(_LABEL.sub(lambda label: tw.markup(label[0], blue=True), line.rstrip("\n")))


OWN_WARNINGS = frozenset(
    {
        "AccumulationWarning",
        "BarrierWarning",
        "FindingWarning",
        "HazardWarning",
        "IndirectionWarning",
        "LevelWarning",
        "LostAdditionWarning",
        "RuleWarning",
        "SharedArgumentWarning",
        "TopKWarning",
        "TruthWarning",
    }
)
"""The names of the package's own warnings: pytest keeps no more of a warning than its text."""
_DETECTED = (
    ("AccumulationWarning", "", "psum-foreign"),
    ("LostAdditionWarning", "", "scatter-added-twice"),
    ("RuleWarning", "in a limited range", "activation-range"),
)
"""Simulator warnings of hazards: the class, a piece of the rule, and the detector's id."""
_OF_CASE = re.compile(r"\[[\d, :]*\]|\b(?:b?float|u?int|bool)\w*|\d+")
"""What differs between cases of one warning: shapes and indices, dtypes, counts."""
_RULE = re.compile(r"^\s*rule:\s*(.*)$", re.MULTILINE)
_WARNING = re.compile(r"^.*?:\d+: (\w+): (.*)", re.DOTALL)


def unique_warnings(warnings: list[Any]) -> list[Any]:
    """Return a session's warnings, each of this package's own once for a line of a kernel.

    Warnings of one line are the same if they name one rule, or differ by numbers alone. The
    simulator's warning of an ended name is left out where the linter's rule reports it, and its
    warning of a hazard where the detector does.
    """

    def ended(one: Any) -> tuple[Any, str]:
        name = one.message.partition(" ended with NKI")[0].rpartition(": ")[2]
        return one.fslocation, name.replace("=", "")  # of an argument lint writes nl.f(x=)

    linted = {ended(one) for one in warnings if "HazardWarning" in one.message}
    kinds = [_kind(one.message) for one in warnings]
    detected = {
        (one.fslocation, kind[1])
        for one, kind in zip(warnings, kinds, strict=True)
        if kind is not None and kind[0] == "HazardWarning"
    }
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for one, kind in zip(warnings, kinds, strict=True):
        if "LevelWarning" in one.message and ended(one) in linted:
            continue
        if kind is None:
            kept.append(one)
            continue
        is_told = (one.fslocation, kind) in seen or (one.fslocation, _hazard(kind)) in detected
        seen.add((one.fslocation, kind))
        if not is_told:
            kept.append(one)
    return kept


def _hazard(kind: tuple[str, str]) -> str:
    """Return the id of the hazard that a simulator's warning is about; empty if it is of none."""
    name, rule = kind
    ids = (id for warning, piece, id in _DETECTED if warning == name and piece in rule)
    return next(ids, "")


def _kind(message: str) -> tuple[str, str] | None:
    """Return the class and the rule of one of the package's own warnings; None for another's."""
    found = _WARNING.match(message)
    if found is None or found[1] not in OWN_WARNINGS:
        return None
    name, text = found.groups()
    rule = _RULE.search(text)
    if name == "HazardWarning":  # "warning psum-foreign: nc_matmul adds to ..."
        return name, text.partition(":")[0].rpartition(" ")[2]
    return name, rule[1] if rule else _OF_CASE.sub("#", text.partition("\n")[0])


@contextmanager
def group_failures(
    stats: dict[str, list[Any]], hidden: _io.TerminalWriter | None = None
) -> Iterator[None]:
    """While pytest tells of failures, let one speak for all of one bug, in colour if it may.

    Its message is the last line, whole: pytest would cut it at the terminal's width. With
    ``--tb=line`` the terminal, ``hidden``, has the message alone, and files have the report.
    """
    failed = stats["failed"]
    ignored = stats.get("", [])
    cut = terminal._format_trimmed
    bugs = bugs_of(failed)
    messages = set()
    for lead, *others in bugs:
        if hasattr(lead, BUG):
            messages.add(lead.longrepr.reprcrash.message)
            entries = lead.longrepr.reprtraceback.reprentries
            lines = list(entries[0].lines)
            if others:
                again = next((n for n, line in enumerate(lines) if _AGAIN.match(line)), len(lines))
                lines.insert(again, f"  also wrong:  {also_wrong(others)}\n")
            entries[0] = ColoredReport(lines, getattr(lead, BUG)[2], hidden)
    left = [report for reports in bugs for report in reports[1:]]
    stats.update({"failed": [lead for lead, *_ in bugs], "": [*ignored, *left]})
    terminal._format_trimmed = lambda format, msg, available_width: (
        format.format(msg) if msg in messages else cut(format, msg, available_width)
    )
    try:
        yield
    finally:
        terminal._format_trimmed = cut
        stats.update({"failed": failed, "": ignored})


_START = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # as the script `pytest` has it
import pytest
sys.exit(pytest.main())
"""
_PATIENCE = 600.0
"""Seconds after which nobody waits any longer."""


def rerun_alone(config: pytest.Config, failure: CaseFailure) -> str:
    """What came of the case alone where that is not the same; empty, too, of a second failure."""
    again = failure.again
    session = config.stash[SESSION]
    if again is None or session.ran_again:
        return ""
    session.ran_again = True
    quiet: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _START, *again.arguments(failure.case), "-pno:cacheprovider"],
            cwd=config.invocation_params.dir,
            timeout=_PATIENCE,
            **quiet,
        )
    except subprocess.TimeoutExpired:
        return f"not over after {_PATIENCE:g} s in a process of its own"
    except OSError as error:  # such as data drawn as arrays, which make a long line
        return f"the line above does not start in a process of its own: {error.strerror}"
    said = {
        int(pytest.ExitCode.TESTS_FAILED): "",
        int(pytest.ExitCode.OK): "passes in a process of its own: the kernel, its reference or the "
        "test keeps something from one call to the next, and the case needs the calls before it",
    }
    other = f"the line above ends with exit code {done.returncode} in a process of its own"
    return said.get(done.returncode, other)
