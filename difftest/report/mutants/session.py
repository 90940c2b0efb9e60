"""`pytest --difftest-mutate`: bugs planted in the kernels whose tests have just passed."""

from __future__ import annotations

import os

import click
import pytest

from difftest.harness.tally import PROPERTY
from difftest.report.mutants.campaign import Amount, BaselineError
from difftest.report.mutants.command import campaign_on, ending
from difftest.report.mutants.ledger import FOLDER, Ledger
from difftest.report.mutants.score import ALIVE, total

PROCESSES = os.cpu_count() or 1


def mutate_session(session: pytest.Session, cases: int) -> None:
    """Tell which planted bugs the session's kernel tests find; a survivor fails the session."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    assert terminal is not None
    root, places = session.config.rootpath, []
    for report in (report for several in terminal.stats.values() for report in several):
        if PROPERTY in dict(getattr(report, "user_properties", ())):
            places.append(report.nodeid.partition("[")[0].partition("::"))
    tests = dict.fromkeys(f"{root / file}::{name.rpartition('::')[2]}" for file, _, name in places)
    terminal.write_line("")
    terminal.section("planted bugs")
    if session.exitstatus != pytest.ExitCode.OK or not tests:
        terminal.write_line("none: no kernel test ran" if not tests else "none: tests failed")
        return
    amount, ledger = Amount(cases, PROCESSES), Ledger(root / FOLDER)
    try:
        campaign = campaign_on(tuple(tests), amount, ledger, terminal.write_line)
    except (BaselineError, click.ClickException) as error:
        terminal.write_line(str(error))
    else:
        terminal.write_line(ending(campaign))
        if not total(campaign.results.values()).of(ALIVE):
            return
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
