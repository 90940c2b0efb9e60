"""`difftest fuzz` and `difftest findings`: campaigns of HypoFuzz, and their findings."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, MutableSequence, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from difftest.support.choices import LEVELS
from difftest.support.console import print_table, table_console, titled_table
from difftest.support.pool import PoolWorker
from difftest.testing.harness.failures import quote_command
from difftest.tools.scale.findings import (
    CLOSED,
    OPEN,
    CampaignFinding,
    FindingStore,
    commit_of,
    utc_now,
)
from difftest.tools.scale.store import require_extra

if TYPE_CHECKING:
    from hypofuzz.hypofuzz import FuzzWorker


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-n", "processes", type=click.IntRange(1), default=1, help="Processes. Default: 1."
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, 1e6),
    default=10.0,
    help="Minutes to run. Default: 10.",
)
@click.pass_context
def fuzz(
    context: click.Context, pytest_args: tuple[str, ...], processes: int, minutes: float
) -> None:
    """Look for bugs with kernel tests, for minutes or all night.

    Example: `difftest fuzz -- --simulate tests`. HypoFuzz draws cases and is guided by the kernels'
    behaviour. `difftest findings` lists the findings. The exit code is 1 if this campaign has a
    finding.
    """
    require_extra("hypofuzz", "a campaign")
    start = utc_now()
    spawn = multiprocessing.get_context("spawn")
    cases: Any = spawn.Array("q", processes)
    workers = [
        PoolWorker(partial(_run_worker, pytest_args, number, cases))
        for number in range(processes)
    ]
    begun = time.monotonic()
    _wait(workers, cases, 60 * minutes)
    took = (time.monotonic() - begun) / 60
    broken = _stop(workers)
    fresh = [finding for finding in FindingStore() if finding.changed >= start]
    if not any(cases) and (broken or not fresh):
        fault = "no case has run, see above: a campaign takes a backend, kernel tests, and time"
        raise click.ClickException(f"{fault}, as in difftest fuzz -- --simulate tests")
    if broken:
        raise click.ClickException(
            "a process of the campaign crashed; it says why above"
        )
    count = sum(cases)
    ran = f"{count:,} case{'' if count == 1 else 's'}"
    click.echo(f"{len(fresh)} found in {ran}, {took:.1f} minutes: difftest findings")
    context.exit(int(bool(fresh)))


def _wait(
    workers: Sequence[PoolWorker], cases: MutableSequence[int], seconds: float
) -> None:
    """Wait until the time is over or no worker is left; show the number of cases."""
    begun = time.monotonic()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        bar = progress.add_task("collecting", total=seconds)
        while any(worker.process.is_alive() for worker in workers):
            done = time.monotonic() - begun
            if done >= seconds:
                return
            count = f"{sum(cases):,} cases" if any(cases) else None
            progress.update(bar, completed=done, description=count)
            time.sleep(0.1)


def _stop(workers: Sequence[PoolWorker]) -> bool:
    """End the workers; return whether one of them broke down before."""
    is_broken = any(worker.process.exitcode for worker in workers)
    for worker in workers:
        worker.process.terminate()
        worker.end()
    return is_broken


class _WorkerShare(dict[str, Any]):
    """The tests that a worker fuzzes: its share of the tests, or all tests if that is empty."""

    worker: FuzzWorker
    part: slice
    cases: MutableSequence[int]
    """The number of cases that each worker has run."""

    def __getitem__(self, key: str) -> Any:
        self.cases[self.part.start] = sum(
            target.provider.ninputs for target in self.worker.targets.values()
        )
        if self.worker.targets and not self.worker.valid_targets:
            sys.exit()  # each of its tests has failed, so no work is left
        tests = list(self.worker.collected_targets)
        return tests[self.part] or tests


def _run_worker(
    pytest_args: Sequence[str],
    number: int,
    cases: MutableSequence[int],
    connection: Connection,
) -> None:
    """Fuzz a share of the tests in this process until all have failed or the worker is stopped."""
    from hypofuzz import detection
    from hypofuzz.hypofuzz import FuzzWorker

    detection._in_hypofuzz_run = True
    share = _WorkerShare()
    state: dict[str, Any] = {"hub_state": share, "worker_state": {"nodeids": {}}}
    share.worker = FuzzWorker(pytest_args=pytest_args, shared_state=state)
    share.part = slice(number, None, len(cases))
    share.cases = cases
    share.worker.start()


_STEP = """
import subprocess, sys
code = subprocess.call([sys.executable, "-m", "pytest", *sys.argv[2:]], cwd=sys.argv[1])
sys.exit(code if code in (0, 1) else 125)
"""
"""The script that tries a commit: it passes, fails, or cannot be tried, as before the test."""
_OUTCOMES = {0: "passes", 1: "fails"}
"""The outcome of a test by pytest's exit code."""


def bisect_commits(finding: CampaignFinding, good: str, bad: str = "HEAD") -> str:
    """Return the report of ``git bisect`` on the first commit that fails a finding's case."""
    places = _git(".", "rev-parse", "--show-toplevel", "--show-prefix")
    top, prefix = places.splitlines()
    with tempfile.TemporaryDirectory(prefix="difftest-bisect-") as folder:
        tree = os.path.join(os.path.realpath(folder), "tree")
        _git(top, "worktree", "add", "--detach", tree, bad)
        try:
            _git(tree, "bisect", "start", bad, good)
            step = (sys.executable, "-c", _STEP, os.path.join(tree, prefix))
            case = (*finding.arguments, "-p", "no:cacheprovider")
            output = _git(tree, "bisect", "run", *step, *case)
        finally:
            _git(top, "worktree", "remove", "--force", tree)
    end = output.find(" is the first bad commit")
    return output[output.rfind("\n", 0, end) + 1 :] if end >= 0 else output


def by_level(finding: CampaignFinding) -> Iterator[tuple[str, str]]:
    """Yield each level of NKI, and whether the case passes at that level."""
    options = [
        argument
        for argument in finding.arguments
        if not argument.startswith("--nki-level")
    ]
    for level in LEVELS:
        words = [sys.executable, "-m", "pytest", f"--nki-level={level}", *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        yield level, _OUTCOMES.get(done.returncode, "cannot be tried")


def _git(folder: str, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        output = f"{done.stdout}{done.stderr}".strip()[-2000:]
        raise click.ClickException(f"git {' '.join(words[:2])}: {output}")
    return done.stdout


@click.group(invoke_without_command=True)
@click.pass_context
def findings(context: click.Context) -> None:
    """List, show, close or bisect the findings of campaigns."""
    if context.invoked_subcommand is not None:
        return
    rows = sorted(FindingStore(), key=lambda finding: finding.state, reverse=True)
    if not rows:
        click.echo("no findings: difftest fuzz looks for some")
        return
    table = titled_table(
        "Findings", ("Id", "State", "Since", "Kind", "Line", "Shapes", "Test"), ()
    )
    for row in rows:
        table.add_row(
            row.id,
            row.state,
            row.changed[:10],
            row.kind,
            row.place,
            row.shapes,
            row.test,
        )
    print_table(table_console(), table)


@findings.command()
@click.argument("id")
def show(id: str) -> None:
    """Show a finding: its line, its case, and how to run it."""
    finding = _found(id)
    rows = {
        "state": f"{finding.state} since {finding.changed} {finding.changed_at}".strip(),
        "found": f"{finding.found}, on {finding.setting}",
        "line": f"{finding.place}: {finding.source}",
        "run again": quote_command(["pytest", *finding.arguments]),
    }
    click.echo(finding)
    for label, text in rows.items():
        click.echo(f"  {label + ':':<13}{text}")


@findings.command()
@click.argument("ids", nargs=-1, required=True)
def close(ids: tuple[str, ...]) -> None:
    """Close findings whose bug is fixed, or whose case no longer fits the test.

    A closed finding that fails again is opened again.
    """
    for finding in [_found(id) for id in ids]:
        FindingStore().put(finding.now(CLOSED, commit_of(Path.cwd())))


@findings.command()
@click.argument("id")
@click.option("--good", metavar="COMMIT", help="Revision at which the case passed.")
@click.option(
    "--bad",
    metavar="COMMIT",
    default="HEAD",
    help="Revision at which the case fails. Default: HEAD.",
)
@click.option(
    "--levels", is_flag=True, help="Search the levels of NKI in place of commits."
)
def bisect(id: str, good: str | None, bad: str, levels: bool) -> None:
    """Find the commit, or the levels of NKI, at which a finding fails.

    The commits are tried in a temporary working tree.
    """
    finding = _found(id)
    if levels and (good is not None or bad != "HEAD"):
        raise click.UsageError("--levels does not go with --good and --bad")
    if levels:
        for level, outcome in by_level(finding):
            click.echo(f"NKI {level}: {outcome}")
    elif good is None:
        raise click.UsageError(
            "pass --good COMMIT, or --levels: at the good commit the case still passed"
        )
    else:
        click.echo(bisect_commits(finding, good, bad))


def _found(id: str) -> CampaignFinding:
    stored = FindingStore()
    finding = stored.get(id)
    if finding is None:
        ids = ", ".join(entry.id for entry in stored if entry.state == OPEN) or "none"
        raise click.UsageError(
            f"not one finding alone begins with {id!r}; the open findings are {ids}"
        )
    return finding
