"""Findings in a pytest session: each is a test, before the drawn cases of its own.

Where it passes it is closed, and where it fails it is open again; only by a run on what showed it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from hypothesis import settings

from difftest.backends.base import Backend
from difftest.harness.decorator import KernelTest, kernel_test_of
from difftest.harness.explicit import CaseError, case_from_json
from difftest.harness.runner import Runner
from difftest.plugin.collection import case_check
from difftest.plugin.options import Request, is_campaign
from difftest.scale.findings import Findings
from difftest.scale.found import CLOSED, OPEN, Found, commit_of

_LABEL = "finding-"
_NAMED = re.compile(rf"\[(?:.*-)?{_LABEL}([0-9a-f]+)\]$")


class FindingWarning(UserWarning):
    """A finding cannot be replayed as it stands."""


def setting_of(request: Request, backends: Iterable[Backend]) -> str:
    """What decides whether a case does the same in two sessions, in words."""
    parts = [one.name for one in backends]
    parts += [f"level {request.level}"] if request.level else []
    return ", ".join(parts + ([request.strictness] if request.strictness else []))


def with_findings(config: pytest.Config, request: Request, runner: Runner) -> Runner:
    """The runner of a session: a campaign's, or its own beside the findings that it replays."""
    profile = settings.default
    assert profile is not None
    findings, setting = Findings(profile.database), setting_of(request, runner.backends)
    if is_campaign():
        from difftest.scale.campaign import CampaignRunner

        return CampaignRunner(runner, findings, config.rootpath, setting, request.options)
    findings.exchange()
    if known := list(findings):
        plugin = _Replayed(config, request, setting, findings, known)
        config.pluginmanager.register(plugin, "difftest findings")
    return runner


class _Replayed:
    """The plugin of a session that replays findings."""

    def __init__(
        self,
        config: pytest.Config,
        request: Request,
        setting: str,
        findings: Findings,
        known: list[Found],
    ) -> None:
        self.config, self.request, self.setting = config, request, setting
        self.findings = findings
        self.known = {one.id: one for one in known}
        self.told: list[str] = []

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
        found = [one for one in self.known.values() if one.test == node and self._is_fit(one, test)]
        if not found:
            return items
        cases = [case_from_json(one.case_text, test.spec) for one in found]
        labels = [f"{_LABEL}{one.id}" for one in found]
        check = case_check(test, list(getattr(obj, "pytestmark", ())), cases, labels)
        added = collector.ihook.pytest_pycollect_makeitem(collector=collector, name=name, obj=check)
        for item in added:
            item.obj = check  # pytest looks the function up by its name, which is the test's
        return added + items

    def _is_fit(self, found: Found, test: KernelTest) -> bool:
        """Whether its case is one of the test still, and ends in this session."""
        if found.needs_limits and self.request.timeout is self.request.memory is None:
            self.told.append(
                f"finding {found.id} not replayed: without its limit it may not end; "
                f"add {' '.join(found.limits)}"
            )
            return False
        try:
            case_from_json(found.case_text, test.spec)
        except CaseError as error:
            warnings.warn(
                FindingWarning(
                    f"finding {found.id} is no case of {found.test} any more: {error}. If its bug "
                    f"is gone: difftest findings close {found.id}"
                ),
                stacklevel=1,
            )
            return False
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Close or open a finding by what came of it, where all reports come together."""
        named = _NAMED.search(report.nodeid)
        found = self.known.get(named[1]) if named else None
        is_worker = hasattr(self.config, "workerinput")
        if found is None or report.when != "call" or is_worker or found.setting != self.setting:
            return
        state = {"passed": CLOSED, "failed": OPEN}.get(report.outcome, found.state)
        if state == found.state:
            return
        said = "replays clean and is closed" if state == CLOSED else "is back, and open again"
        self.told.append(f"finding {found.id} {said}: {found.kind} at {found.place}")
        self.known[found.id] = found.now(state, commit_of(self.config.rootpath))
        self.findings.put(self.known[found.id])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what became of findings, and how many are open."""
        still = sum(one.state == OPEN for one in self.known.values())
        if self.told or still:
            terminalreporter.section("findings of campaigns")
            for line in dict.fromkeys(self.told):
                terminalreporter.write_line(line)
            terminalreporter.write_line(f"{still} open of {len(self.known)}: difftest findings")
