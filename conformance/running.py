"""Run a suite's tests with pytest in this process, and collect their outcomes."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.limits import limited
from conformance.outcomes import FAILED, PASSED, SKIPPED, Outcome


class Recorder:
    """A pytest plugin that keeps an :class:`Outcome` of each test and each file not collected."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test's call, or of another phase that failed or skipped it."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self._keep(report, report.nodeid)
        elif report.when == "teardown" and report.failed:
            self.outcomes = [
                known for known in self.outcomes if known.name != report.nodeid
            ]
            self._keep(report, report.nodeid)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._keep(report, report.nodeid)

    def _keep(
        self, report: pytest.TestReport | pytest.CollectReport, nodeid: str
    ) -> None:
        if report.passed:
            result = PASSED
        elif report.failed:
            result = FAILED
        else:
            result = SKIPPED
        why = "" if report.passed else reason(report)
        self.outcomes.append(Outcome(nodeid.partition("::")[0], nodeid, result, why))


class Limit:
    """A pytest plugin that ends a test by an error after ``seconds`` of processor time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        with limited(self.seconds, "the test"):
            return (yield)


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the message of a report's error, without the traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    lines = [
        line for line in str(report.longrepr).splitlines() if line.startswith("E ")
    ]
    return lines[-1].removeprefix("E ") if lines else str(report.longrepr)


@contextmanager
def in_front_of_path(*paths: Path) -> Iterator[None]:
    """Hold folders in front of ``sys.path`` within the block."""
    before = list(sys.path)
    sys.path[:0] = [str(path) for path in paths]
    try:
        yield
    finally:
        sys.path[:] = before


def run(
    checkout: Path,
    options: Sequence[str],
    paths: Sequence[Path] = (),
    plugins: Sequence[object] = (),
) -> list[Outcome]:
    """Run pytest in ``checkout``, as its developers do, and return the outcome of each test.

    ``paths`` are in front of ``sys.path``, and ``plugins`` are plugins of pytest for this run. The
    working folder is the checkout, so that node ids and files in the options are relative to it.
    This project's plugin is left out, because the suite's own hooks decide what is installed.

    Raises
    ------
    RuntimeError
        If pytest rejected the options, found no test or was interrupted.
    """
    recorder = Recorder()
    before = os.getcwd()
    os.chdir(checkout)
    try:
        with in_front_of_path(*paths):
            code = pytest.main(
                ["-p", "no:difftest", *options], plugins=[recorder, *plugins]
            )
    finally:
        os.chdir(before)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(
            f"pytest ended with {pytest.ExitCode(code).name}: see its output"
        )
    return recorder.outcomes
