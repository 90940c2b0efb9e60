"""Findings in a pytest session: each is a test, before the drawn cases of its own.

Where it passes it is closed, and where it fails it is open again; only by a run on what showed it.
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
from difftest.testing.harness.decorator import KernelTest, kernel_test_of
from difftest.testing.harness.explicit import CaseError, case_from_json
from difftest.testing.harness.runner import Runner
from difftest.testing.session.collection import checks_of
from difftest.testing.session.options import Request, is_campaign
from difftest.tools.scale.findings import CLOSED, OPEN, CampaignFinding, FindingStore, commit_of

_LABEL = "finding-"
_NAMED = re.compile(rf"\[.*\b{_LABEL}([0-9a-f]+)\b")


class FindingWarning(UserWarning):
    """A finding cannot be replayed as it stands."""


def with_findings(config: pytest.Config, request: Request, runner: Runner) -> Runner:
    """The runner of a session: a campaign's, or its own beside the findings that it replays."""
    findings = FindingStore()
    level = f"level {request.level}" if request.level else None
    names = (backend.name for backend in runner.backends)
    config.pluginmanager.register(_WithRemoteDatabase())
    # What decides whether a case does the same in two sessions.
    setting = ", ".join(filter(None, (*names, level, request.strictness)))
    if is_campaign():
        from difftest.tools.scale.campaign import CampaignRunner

        return CampaignRunner(runner, findings, config.rootpath, setting, request.options)
    config.pluginmanager.register(_RegressionPlugin(config, request, setting, findings))
    return runner


class _RemoteDatabase(database.ExampleDatabase):
    """A database on another machine, such as one in Redis, until it fails: a line tells that."""

    def __init__(self, remote: database.ExampleDatabase) -> None:
        super().__init__()
        self.database = remote

    def _ask(self, method: str, *arguments: Any) -> tuple[bytes, ...]:
        try:
            return tuple(getattr(self.database, method)(*arguments) or ())
        except Exception as error:  # each kind of database has errors of its own
            with internal_error_scope("Hypothesis's database"):
                told = f"{str(error).rstrip('.')}; it is left alone from now on"
                raise ConnectionError(told) from None
        if is_campaign():  # its session has ended
            print_internal_errors()
        self.database = database.InMemoryExampleDatabase()
        return ()

    fetch = partialmethod(_ask, "fetch")
    save = partialmethod(_ask, "save")
    delete = partialmethod(_ask, "delete")
    add_listener = partialmethod(_ask, "add_listener")


class _WithRemoteDatabase:
    """The plugin of a session whose database may be gone before it ends."""

    def pytest_sessionstart(self) -> None:
        kept = FindingStore().database
        if kept is not None and not isinstance(kept, database.DirectoryBasedExampleDatabase):
            settings.register_profile("remote", settings.default, database=_RemoteDatabase(kept))
            settings.load_profile("remote")


class _RegressionPlugin:
    """The plugin of a session that replays findings."""

    def __init__(
        self, config: pytest.Config, request: Request, setting: str, findings: FindingStore
    ) -> None:
        self.config = config
        self.request = request
        self.setting = setting
        self.findings = findings
        self.known: dict[str, CampaignFinding] = {}
        self.failed: set[str] = set()
        self.told: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Read what is known, now that it is sure which profile of Hypothesis counts."""
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
        own = [f for f in self.known.values() if f.test == node and self._is_fit(f, test)]
        if not own:
            return items
        cases = [case_from_json(finding.case_text, test.spec) for finding in own]
        labels = [f"{_LABEL}{finding.id}" for finding in own]
        check = checks_of(test.check_case, getattr(obj, "pytestmark", ()), "case", cases, labels)
        added = collector.ihook.pytest_pycollect_makeitem(collector=collector, name=name, obj=check)
        for item in added:
            item.obj = check  # pytest looks the function up by its name, which is the test's
        return added + items

    def _is_fit(self, finding: CampaignFinding, test: KernelTest) -> bool:
        """Whether its case is one of the test still, and ends in this session."""
        if finding.limits and self.request.timeout is self.request.memory is None:
            limits = " ".join(finding.limits)
            self.told.append(f"finding {finding.id} not replayed: it may not end without {limits}")
            return False
        try:
            case_from_json(finding.case_text, test.spec)
        except CaseError as error:
            what = f"finding {finding.id} is no case of {finding.test} any more: {error}"
            if finding.state == OPEN:
                told = FindingWarning(
                    f"{what}. If its bug is gone: difftest findings close {finding.id}"
                )
                warnings.warn(told, stacklevel=1)
            return False
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Close or open a finding by what came of it, where all reports come together."""
        named = _NAMED.search(report.nodeid)
        finding = self.known.get(named[1]) if named else None
        is_worker = hasattr(self.config, "workerinput")
        if finding is None or report.when != "call" or is_worker or finding.setting != self.setting:
            return
        self.failed |= {finding.id} if report.failed else set()
        if finding.id in self.failed:
            state = OPEN
        elif report.passed:
            state = CLOSED
        else:
            state = finding.state
        if state == finding.state:
            return
        said = "clean, and closed" if state == CLOSED else "back, and open again"
        self.told.append(f"{said}: {finding}")
        self.known[finding.id] = finding.now(state, commit_of(self.config.rootpath))
        self.findings.put(self.known[finding.id])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what became of findings, and how many are open."""
        still = sum(finding.state == OPEN for finding in self.known.values())
        if self.told or still:
            terminalreporter.section("findings of campaigns")
            total = f"{still} open of {len(self.known)}: difftest findings"
            terminalreporter.write_line("\n".join([*dict.fromkeys(self.told), total]))
