"""A suite's tests, run by pytest in this process, and what came of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.outcomes import FAILED, PASSED, SKIPPED, Outcome


class Recorder:
    """A pytest plugin that keeps an :class:`Outcome` of each test and each file not collected."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's outcome is that of its call, or of the phase that kept it from its call."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self._keep(report, report.nodeid)
        elif report.when == "teardown" and report.failed:
            self.outcomes = [known for known in self.outcomes if known.name != report.nodeid]
            self._keep(report, report.nodeid)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._keep(report, report.nodeid)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport, nodeid: str) -> None:
        result = PASSED if report.passed else FAILED if report.failed else SKIPPED
        why = "" if report.passed else reason(report)
        self.outcomes.append(Outcome(nodeid.partition("::")[0], nodeid, result, why))


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The text of the error that a report carries: its message, not the traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
    return lines[-1].removeprefix("E ") if lines else str(report.longrepr)


def run(checkout: Path, options: Sequence[str], paths: Sequence[Path] = ()) -> list[Outcome]:
    """Run pytest in ``checkout``, as its own people do, and return what came of each test.

    ``paths`` go in front of ``sys.path`` meanwhile. The working folder is the checkout's, so that
    node ids and files among the options are its own. This project's plugin is left out: the
    suite's own hooks decide what is installed.

    Raises
    ------
    RuntimeError
        If pytest refused the options or found no test: then there is nothing to count.
    """
    recorder = Recorder()
    before = os.getcwd(), list(sys.path)
    os.chdir(checkout)
    sys.path[:0] = [str(path) for path in paths]
    try:
        code = pytest.main(["-p", "no:difftest", *options], plugins=[recorder])
    finally:
        os.chdir(before[0])
        sys.path[:] = before[1]
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
        raise RuntimeError(f"pytest ended with {pytest.ExitCode(code).name}: see its output")
    if not recorder.outcomes:
        raise RuntimeError("no test ran: there is nothing to count")
    return recorder.outcomes
