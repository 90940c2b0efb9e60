"""`difftest mutate`: plant bugs in a kernel, and report whether its spec finds them.

`pytest --difftest-mutate` does so for the kernels whose tests have just passed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from difftest.support.console import progress
from difftest.support.output import write_file
from difftest.testing.harness.tally import PROPERTY
from difftest.testing.host.collection import with_specs
from difftest.testing.host.options import OutputFile
from difftest.tools.mutants.campaign import (
    FOLDER,
    BaselineError,
    Campaign,
    CampaignLimits,
    ResultCache,
    Specs,
)
from difftest.tools.mutants.mutant import Mutant
from difftest.tools.mutants.mutant_runner import SUSPECTED, MutantResult
from difftest.tools.mutants.score import (
    ALIVE,
    DEAD,
    markdown,
    report_lines,
    stryker,
    total,
)


@click.command()
@click.argument("tests", nargs=-1, required=True, metavar="TESTS...")
@click.option(
    "--cases",
    type=click.IntRange(1),
    default=100,
    help="Drawn cases for each kernel test.",
)
@click.option(
    "-n",
    "workers",
    type=click.IntRange(0),
    default=os.cpu_count() or 1,
    help="Processes. 0 means this process, where nothing stops a mutant that loops.",
)
@click.option("--budget", type=click.FloatRange(0), help="Seconds for all mutants.")
@click.option(
    "--memory",
    type=click.FloatRange(0.1),
    default=8.0,
    help="GiB that a case may take (Linux).",
)
@click.option("--fresh", is_flag=True, help="Ignore the results of earlier runs.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Show the mutants that were found, too."
)
@click.option(
    "--json",
    "json_file",
    type=OutputFile(),
    help="Write the report in Stryker's schema.",
)
@click.option(
    "--table", "table_file", type=OutputFile(), help="Write the scores as Markdown."
)
def mutate(
    tests: tuple[str, ...],
    json_file: Path | None,
    table_file: Path | None,
    **options: Any,
) -> None:
    """Plant bugs in kernels, and report which of them tests find.

    TESTS are kernel tests as PATH::TEST, files and folders of them, or specs as PATH::NAME. Each
    mutant is a small change of a kernel's source. Results are kept in .difftest, and the next run
    continues from them. The exit code is 1 if a mutant survives and is not a suspected equivalent.
    It is also 1 if the budget ends before a mutant is judged.
    """
    memory = 1024 * options["memory"]
    settings = CampaignLimits(
        options["cases"], options["workers"], options["budget"], memory
    )
    cache = ResultCache(FOLDER, fresh=options["fresh"])
    try:
        campaign = campaign_on(
            tests, settings, cache, click.echo, every=options["verbose"]
        )
    except BaselineError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        told = (
            f"stopped: the results so far are in {FOLDER}; the same command continues, without "
            "--fresh"
        )
        raise KeyboardInterrupt(told) from None
    if json_file is not None:
        write_file(json_file, stryker(campaign))
    if table_file is not None:
        command = f"difftest mutate {' '.join(tests)} --cases {settings.cases} --table {table_file}"
        write_file(table_file, markdown(campaign, command))
    click.echo(ending(campaign))
    if not campaign.results or total(campaign.results.values()).of(ALIVE):
        click.get_current_context().exit(1)


def campaign_on(
    tests: Sequence[str],
    amount: CampaignLimits,
    cache: ResultCache,
    tell: Callable[[str], None],
    *,
    every: bool = False,
) -> Campaign:
    """Plant bugs in the kernels of tests; report mutants that survive, or ``every`` mutant."""
    shown = sys.stdout  # pytest replaces sys.stdout while it collects

    def run(specs: Specs) -> Campaign:
        campaign = Campaign(specs, amount, cache)
        if not campaign.mutants:
            raise click.ClickException(
                "no bug can be planted: the kernels run no code of your files, or no mutation "
                "operator fits that code"
            )
        bar = progress("mutants", len(campaign.mutants))
        with contextlib.redirect_stdout(shown), bar as advance:

            def say(mutant: Mutant, result: MutantResult) -> None:
                if every or result.status not in DEAD + SUSPECTED:
                    tell("\n".join(report_lines(mutant, result)) + "\n")
                advance()

            campaign.run(functools.partial(with_specs, tests), say)
        return campaign

    try:
        return with_specs(tests, run)
    finally:
        cache.close()


def ending(campaign: Campaign) -> str:
    """Return the score, and the number of mutants that the budget left."""
    left = len(campaign.mutants) - len(campaign.results)
    known = f", {campaign.kept} known from before" if campaign.kept else ""
    lines = [f"mutants: {len(campaign.mutants)}{known}"]
    lines.append(f"{total(campaign.results.values())}")
    if left:
        lines.append(f"left by the budget: {left}; the same command goes on with them")
    return "\n".join(lines)


PROCESSES = os.cpu_count() or 1


def _kernel_tests(reports: Iterable[Iterable[Any]], root: Path) -> dict[str, None]:
    """Return the kernel tests of a session as PATH::NAME, in order and without duplicates."""
    places = []
    for report in itertools.chain.from_iterable(reports):
        if PROPERTY in dict(getattr(report, "user_properties", ())):
            places.append(report.nodeid.partition("[")[0].partition("::"))
    return dict.fromkeys(
        f"{root / file}::{name.rpartition('::')[2]}" for file, _, name in places
    )


def mutate_session(session: pytest.Session, cases: int) -> None:
    """Report which mutants the session's kernel tests find; a survivor fails the session."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    assert terminal is not None
    root = session.config.rootpath
    tests = _kernel_tests(terminal.stats.values(), root)
    terminal.write_line("")
    terminal.section("planted bugs")
    if session.exitstatus != pytest.ExitCode.OK or not tests:
        terminal.write_line(
            "none: no kernel test ran" if not tests else "none: tests failed"
        )
        return
    amount = CampaignLimits(cases, PROCESSES)
    cache = ResultCache(root / FOLDER)
    try:
        campaign = campaign_on(tuple(tests), amount, cache, terminal.write_line)
    except (BaselineError, click.ClickException) as error:
        terminal.write_line(str(error))
    else:
        terminal.write_line(ending(campaign))
        if not total(campaign.results.values()).of(ALIVE):
            return
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
