"""Replay findings in a pytest session: each finding is a test before its test's drawn cases.

A finding is closed if it passes, and opened again if it fails. Only a session with the finding's
setting changes its state.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator
from functools import partialmethod
from typing import Any

import pytest
from hypothesis import database, settings

from difftest.support.internal_errors import internal_error_scope, print_internal_errors
from difftest.testing.drawing.explicit import CaseError, case_from_json
from difftest.testing.harness.decorated import KernelTest, kernel_test_of
from difftest.testing.harness.runner import Runner
from difftest.testing.session.collection import checks_of
from difftest.testing.session.options import Request, is_campaign
from difftest.tools.scale.findings import (
    CLOSED,
    OPEN,
    CampaignFinding,
    FindingStore,
    commit_of,
)

_LABEL = "finding-"
_NAMED = re.compile(rf"\[.*\b{_LABEL}([0-9a-f]+)\b")


class FindingWarning(UserWarning):
    """A finding cannot be replayed."""


def with_findings(config: pytest.Config, request: Request, runner: Runner) -> Runner:
    """Return the runner of a session, and replay findings unless the session is a campaign."""
    findings = FindingStore()
    level = f"level {request.level}" if request.level else None
    names = (backend.name for backend in runner.backends)
    config.pluginmanager.register(_WithRemoteDatabase())
    # Two sessions with equal settings give equal results for a case.
    setting = ", ".join(filter(None, (*names, level, request.strictness)))
    if is_campaign():
        from difftest.tools.scale.campaign import CampaignRunner

        return CampaignRunner(
            runner, findings, config.rootpath, setting, request.options
        )
    config.pluginmanager.register(_RegressionPlugin(config, request, setting, findings))
    return runner


class _RemoteDatabase(database.ExampleDatabase):
    """A database on another machine, such as Redis. After its first error it is not used again."""

    def __init__(self, remote: database.ExampleDatabase) -> None:
        super().__init__()
        self.database = remote

    def _call(self, method: str, *arguments: Any) -> tuple[bytes, ...]:
        """Call a method of the remote database; use an empty one in memory after an error."""
        try:
            return tuple(getattr(self.database, method)(*arguments) or ())
        except Exception as error:  # each kind of database raises its own errors
            with internal_error_scope("Hypothesis's database"):
                text = f"{str(error).rstrip('.')}; it is left alone from now on"
                raise ConnectionError(text) from None
        if is_campaign():  # its session has ended
            print_internal_errors()
        self.database = database.InMemoryExampleDatabase()
        return ()

    fetch = partialmethod(_call, "fetch")
    save = partialmethod(_call, "save")
    delete = partialmethod(_call, "delete")
    add_listener = partialmethod(_call, "add_listener")


class _WithRemoteDatabase:
    """The plugin of a session that survives the loss of its database."""

    def pytest_sessionstart(self) -> None:
        kept = FindingStore().database
        is_local = isinstance(kept, database.DirectoryBasedExampleDatabase)
        if kept is not None and not is_local:
            remote = _RemoteDatabase(kept)
            settings.register_profile("remote", settings.default, database=remote)
            settings.load_profile("remote")


class _RegressionPlugin:
    """The plugin of a session that replays findings."""

    def __init__(
        self,
        config: pytest.Config,
        request: Request,
        setting: str,
        findings: FindingStore,
    ) -> None:
        self.config = config
        self.request = request
        self.setting = setting
        self.findings = findings
        self.known: dict[str, CampaignFinding] = {}
        self.failed: set[str] = set()
        self.messages: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Read the findings. By now Hypothesis's profile, and so the database, is final."""
        self.findings.exchange()
        self.known = {finding.id: finding for finding in self.findings}

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(
        self, collector: pytest.Module | pytest.Class, name: str, obj: object
    ) -> Generator[None, Any, Any]:
        """Put the findings of a kernel test before its drawn cases."""
        items = yield
        test = kernel_test_of(obj)
        if not items or test is None:
            return items
        node = f"{collector.nodeid}::{name}"
        cases = []
        labels = []
        for finding in self.known.values():
            if finding.test == node and self._is_fit(finding, test):
                cases.append(case_from_json(finding.case_text, test.spec))
                labels.append(f"{_LABEL}{finding.id}")
        if not cases:
            return items
        check = checks_of(
            test.check_case, getattr(obj, "pytestmark", ()), "case", cases, labels
        )
        added = collector.ihook.pytest_pycollect_makeitem(
            collector=collector, name=name, obj=check
        )
        for item in added:
            item.obj = check  # pytest looked the function up by the name of the test
        return added + items

    def _is_fit(self, finding: CampaignFinding, test: KernelTest) -> bool:
        """Return whether a finding's case still fits the test, and ends in this session."""
        if finding.limits and self.request.timeout is self.request.memory is None:
            limits = " ".join(finding.limits)
            text = f"finding {finding.id} not replayed: it may not end without {limits}"
            self.messages.append(text)
            return False
        try:
            case_from_json(finding.case_text, test.spec)
        except CaseError as error:
            if finding.state == OPEN:
                warning = FindingWarning(
                    f"finding {finding.id} is no case of {finding.test} any more: {error}. "
                    f"If its bug is gone: difftest findings close {finding.id}"
                )
                warnings.warn(warning, stacklevel=1)
            return False
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Close or open a finding by the result of its test, in the process with all reports."""
        named = _NAMED.search(report.nodeid)
        finding = self.known.get(named[1]) if named else None
        if finding is None or finding.setting != self.setting:
            return
        if report.when != "call" or hasattr(self.config, "workerinput"):
            return
        if report.failed:
            self.failed.add(finding.id)
        if finding.id in self.failed:
            self._change(finding, OPEN, "back, and open again")
        elif report.passed:
            self._change(finding, CLOSED, "clean, and closed")

    def _change(self, finding: CampaignFinding, state: str, change: str) -> None:
        """Store a finding in another state, and report the change."""
        if finding.state != state:
            self.messages.append(f"{change}: {finding}")
            changed = finding.now(state, commit_of(self.config.rootpath))
            self.known[finding.id] = changed
            self.findings.put(changed)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Print the changes of findings, and the number of open findings."""
        open_count = sum(finding.state == OPEN for finding in self.known.values())
        if self.messages or open_count:
            terminalreporter.section("findings of campaigns")
            total = f"{open_count} open of {len(self.known)}: difftest findings"
            terminalreporter.write_line(
                "\n".join([*dict.fromkeys(self.messages), total])
            )
