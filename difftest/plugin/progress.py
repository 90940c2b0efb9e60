"""A line for each kernel test that is through, in place of dots: which it was, and how far we are.

Its drawn cases, its examples, its rejections and its edges are items of their own, which run on
several workers of pytest-xdist in any order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from difftest.harness.tally import PROPERTY
from difftest.plugin.session import tally_of


class Progress:
    """The reports of a session, in the process that has the terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.left: Counter[str] = Counter()
        self.total = 0
        self.reports: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """In one process, learn what will run."""
        self._expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """From workers: each has collected the same."""
        if not self.total:
            self._expect(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """An item of a kernel test that passed has no dot."""
        return ("passed", "", "PASSED") if report.passed and _is_of_a_kernel(report) else None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the line of a kernel test whose last item is through."""
        test = _test_of(report.nodeid)
        if report.when == "call":
            self.reports[test].append(report)
        elif report.when == "teardown":
            self.left[test] -= 1
            reports = [] if self.left[test] else self.reports.pop(test, [])
            if any(map(_is_of_a_kernel, reports)):
                self._write(test, reports)

    def _expect(self, ids: Iterable[str]) -> None:
        self.left = Counter(map(_test_of, ids))
        self.total = self.left.total()

    def _write(self, test: str, reports: list[pytest.TestReport]) -> None:
        rows = tally_of(reports).rows.values()
        cases, refusals = sum(row.cases for row in rows), sum(row.rejections for row in rows)
        failures = sum(report.failed for report in reports)
        text = f"{test}: {cases} cases, {refusals} refusals"
        text += f", {failures} FAILED" if failures else ""
        writer = self.config.get_terminal_writer()
        if writer.width_of_current_line:
            writer.line()
        writer.write(text, red=failures > 0)
        if left := self.left.total():  # pytest itself says 100%
            done = f" [{100 * (self.total - left) // self.total:3d}%]"
            writer.line(done.rjust(writer.fullwidth - len(text)))
        writer.flush()


def _test_of(nodeid: str) -> str:
    """The test's function, of which there are several items."""
    return nodeid.partition("[")[0]


def _is_of_a_kernel(report: Any) -> bool:
    """Whether it is of the call of a kernel test: those carry a tally."""
    properties = getattr(report, "user_properties", ())
    return getattr(report, "when", "") == "call" and any(name == PROPERTY for name, _ in properties)
