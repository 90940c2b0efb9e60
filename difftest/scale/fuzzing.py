"""`difftest fuzz`: a campaign of HypoFuzz that ends, and fails on what it has found."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import MutableSequence, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from difftest.host.pool import Member

if TYPE_CHECKING:
    from hypofuzz.hypofuzz import FuzzWorker


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "processes", type=click.IntRange(1), default=1, help="Processes; 1.")
@click.option("--minutes", type=click.FloatRange(0), default=10.0, help="How long; 10.")
@click.pass_context
def fuzz(
    context: click.Context, pytest_args: tuple[str, ...], processes: int, minutes: float
) -> None:
    """Fuzz kernel tests for some minutes: difftest fuzz -- --simulate tests/kernels.

    HypoFuzz draws their cases, led by what the kernels do. Each finding is told once and kept;
    `difftest findings` lists them. The exit code is 1 if this campaign has found one.
    """
    from difftest.scale.findings import Findings, moment
    from difftest.scale.store import need

    need("hypofuzz", "a campaign")

    start, spawn = moment(), multiprocessing.get_context("spawn")
    cases: Any = spawn.Array("q", processes)
    workers = [Member(partial(_work, pytest_args, one, cases)) for one in range(processes)]
    begun, columns = time.monotonic(), (TextColumn("{task.description}"), BarColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("collecting", total=60 * minutes)
        over = begun + 60 * minutes
        while any(one.process.is_alive() for one in workers) and time.monotonic() < over:
            time.sleep(0.1)
            done, told = time.monotonic() - begun, f"{sum(cases):,} cases" if any(cases) else None
            progress.update(bar, completed=done, description=told)
    broken = [one for one in workers if one.process.exitcode]
    took = (time.monotonic() - begun) / 60
    for one in workers:
        one.process.terminate()
        one.end()
    if broken:
        raise click.ClickException("a process of the campaign broke down; it says why above")
    found = [one for one in Findings() if one.changed >= start]
    if not found and not sum(cases):
        raise click.ClickException("no case has run: name kernel tests, and give it more time")
    click.echo(f"{len(found)} found in {sum(cases):,} cases, {took:.1f} minutes: difftest findings")
    context.exit(1 if found else 0)


class _Share(dict[str, Any]):
    """What a worker is told to fuzz: every so many of the tests, or all if there are too few."""

    worker: FuzzWorker
    part: slice
    cases: MutableSequence[int]
    """Of each worker, how many it has run."""

    def __getitem__(self, key: str) -> Any:
        self.cases[self.part.start] = sum(
            one.provider.ninputs for one in self.worker.targets.values()
        )
        if self.worker.targets and not self.worker.valid_targets:
            sys.exit()  # each of its tests has failed: nothing is left to do
        tests = list(self.worker.collected_targets)
        return tests[self.part] or tests


def _work(
    pytest_args: Sequence[str], number: int, cases: MutableSequence[int], connection: Connection
) -> None:
    from hypofuzz import detection
    from hypofuzz.hypofuzz import FuzzWorker

    detection._in_hypofuzz_run = True
    share = _Share()
    told: dict[str, Any] = {"hub_state": share, "worker_state": {"nodeids": {}}}
    share.worker = FuzzWorker(pytest_args=pytest_args, shared_state=told)
    share.part, share.cases = slice(number, None, len(cases)), cases
    share.worker.start()
