"""The parts of pytest that have no public name. No other module imports ``_pytest``.

``tests/unit/testing/session/test_pytest_internals.py`` names the part that a new pytest changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import pytest
from _pytest import terminal
from _pytest._code import code
from _pytest._io import TerminalWriter
from _pytest.junitxml import LogXML, xml_key

__all__ = [
    "ReportLines",
    "TerminalWriter",
    "junit_report",
    "renew_fixture_requests",
    "set_failure_text",
    "untrimmed_messages",
]

_LABEL = re.compile(r"^  [\w ]+:(?= )")


class ReportLines(code.ReprEntryNative):
    """The lines of a report: coloured on a terminal, and plain text in an HTML report.

    Parameters
    ----------
    lines : the lines, each with its line break.
    title : the line that is printed in red.
    hidden_on : a terminal that does not show the lines; None for no such terminal.
    """

    def __init__(
        self, lines: Sequence[str], title: str, hidden_on: TerminalWriter | None
    ) -> None:
        self.lines = lines
        self.title = title
        self.hidden_on = hidden_on

    def toterminal(self, tw: TerminalWriter) -> None:
        if tw is self.hidden_on:
            return
        for line in self.lines:
            if line.strip() == self.title:
                line = tw.markup(self.title, red=True, bold=True)
            # One at a time: pytest escapes characters that a terminal lacks.
            tw.line(
                _LABEL.sub(
                    lambda label: tw.markup(label[0], blue=True), line.rstrip("\n")
                )
            )


def set_failure_text(
    report: pytest.TestReport, item: pytest.Item, lines: Sequence[str], message: str
) -> None:
    """Replace the text of a failed test's report, and its message in the short summary."""
    number = (item.location[1] or 0) + 1
    report.longrepr = code.ReprExceptionInfo(
        reprtraceback=code.ReprTracebackNative([f"{line}\n" for line in lines]),
        reprcrash=code.ReprFileLocation(str(item.path), number, message),
    )


@contextmanager
def untrimmed_messages(messages: Collection[str]) -> Iterator[None]:
    """Print these messages whole in the short summary, where pytest cuts them, within the block."""
    trim: Callable[[str, str, int], str | None] = terminal._format_trimmed

    def trim_others(format: str, msg: str, available_width: int) -> str | None:
        if msg in messages:
            return format.format(msg)
        return trim(format, msg, available_width)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "_format_trimmed", trim_others)
        yield


def renew_fixture_requests(test: pytest.Function) -> None:
    """Let a test set up its fixtures again after they were torn down."""
    test._initrequest()


def junit_report(config: pytest.Config) -> LogXML | None:
    """Return the JUnit report that the session writes; None without one."""
    return config.stash.get(xml_key, None)
