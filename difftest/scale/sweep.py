"""`difftest sweep`: one kernel test over a grid of points, a row for each in Parquet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from difftest.harness.spec import KernelSpec
from difftest.host.collecting import with_spec
from difftest.host.console import progress
from difftest.host.output import OutputFile, end_interrupted
from difftest.scale.axes import Axes, check_axes, parse_axes, parse_case
from difftest.scale.engine import (
    SweepOrders,
    SweepTask,
    judged_apart,
    judged_elsewhere,
    judged_here,
)
from difftest.scale.shown import comparison, heat_map, print_rows
from difftest.scale.store import COLUMNS, Row, Store, identity_of, key_of, need, read_rows

CASES, TIMEOUT = 5, 60.0
OVER = (
    "A name of the domain, a parameter of the kernel with a default, a constant of its file, an "
    "input (kinds of data), dtype, level or kernel. Values: 1,2,3; a..b doubles; a..b:step."
)


@dataclass(frozen=True)
class SweepSettings:
    """How a sweep is run: on a ``sample`` of points (None: all), by ``workers`` (0: this process).

    ``scheduler`` is the address of Dask's, in place of processes of one's own.
    """

    cases: int = CASES
    sample: int | None = None
    workers: int = 0
    scheduler: str | None = None
    timeout: float = TIMEOUT
    fresh: bool = False


def sweep_spec(
    spec: KernelSpec, test: str, axes: Axes, settings: SweepSettings, file: Path
) -> list[Row]:
    """Judge the points that have no row yet; all rows, in the order of the points.

    An axis that stands for nothing and a file of another sweep are a click.UsageError.
    """
    check_axes(spec, axes)
    place, *name = test.split("::")
    whole = "::".join([str(Path(place).resolve()), *name])
    orders = SweepOrders(whole, settings.cases, settings.timeout)
    identity = identity_of(spec, test)
    tasks = [
        SweepTask(key_of(identity, test, point, settings.cases), point)
        for point in axes.points(settings.sample)
    ]
    store = Store(file, fresh=settings.fresh)
    store.check(identity, (task.key for task in tasks))
    left = [task for task in tasks if task.key not in store.rows]
    judged = judged_here(spec, orders, left)
    if settings.scheduler is not None and left:
        judged = judged_elsewhere(orders, left, settings.scheduler)
    elif settings.workers and left:
        judged = judged_apart(orders, left, settings.workers)
    with progress("points", len(tasks), len(tasks) - len(left)) as advance:
        for task, row in judged:
            empty = dict.fromkeys(COLUMNS) | {"kernel": spec.name, "findings": []}
            store.add({**empty, **row, **task.point, **identity, "key": task.key})
            advance()
    return store.finish([task.key for task in tasks], list(axes[0]))


def _sample(context: click.Context, option: click.Parameter, value: str) -> int | None:
    if value != "all" and (not value.isdecimal() or not int(value)):
        raise click.BadParameter(f"takes a number from 1, or all; got {value}", context, option)
    return None if value == "all" else int(value)


def axes_of_command(over: Sequence[str], machines: str | None, case: str | None) -> Axes:
    """The axes that a command line names."""
    axes = parse_axes([*over, *([f"machine={machines}"] if machines else [])])
    shared = parse_case(case)
    taken = {*(axis.name for axis in axes), *shared} & COLUMNS.keys() - {"kernel"}
    if taken:
        raise click.UsageError(f"{min(taken)} is a column of each row, and no name of an axis")
    if not axes:
        raise click.UsageError("name what varies: --over NAME=VALUES, or --machines")
    return Axes(axes, shared)


@click.command()
@click.argument("test", metavar="PATH::TEST")
@click.option("--over", multiple=True, metavar="NAME=VALUES", help=OVER)
@click.option("--machines", metavar="trn1,trn2", help="The same as --over machine=trn1,trn2.")
@click.option("--case", metavar="JSON", help="What all points share: names and values.")
@click.option("--sample", default="all", callback=_sample, help="So many points, drawn; or all.")
@click.option("--cases", type=click.IntRange(1), default=CASES, help="Drawn at each point.")
@click.option("-o", "file", type=OutputFile(), required=True, help="FILE.parquet. It goes on.")
@click.option(
    "-n", "workers", type=click.IntRange(0), default=os.cpu_count() or 1, help="Processes; or 0."
)
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Dask's, in place of processes here.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=TIMEOUT)
@click.option("--fresh", is_flag=True, help="Forget what the file holds.")
@click.option("--heat", type=(str, OutputFile()), metavar="X,Y FILE.png", help="A picture.")
@click.option("--compare", "old", type=Path, help="A sweep of before; 1 if a point newly fails.")
@click.pass_context
def sweep(context: click.Context, /, test: str, file: Path, **options: Any) -> None:
    """Run a kernel test over a grid of points.

    Each is a row of a Parquet file. A row has what came of the point, its predicted latency
    with its interval, and its memory. The same command goes on after a stop.
    """
    over, machines, case, heat, old = map(options.pop, ("over", "machines", "case", "heat", "old"))
    axes = axes_of_command(over, machines, case)
    before = read_rows(old) if old is not None else None
    x, _, y = heat[0].partition(",") if heat else ("", "", "")
    if heat and not {x, y} <= axes[0].keys():
        raise click.UsageError(f"--heat takes two axes, X,Y; got {heat[0]}")
    if heat:
        need("matplotlib", "--heat", "plot")
    settings = SweepSettings(**options)
    try:
        rows = with_spec(test, lambda spec: sweep_spec(spec, test, axes, settings, file))
    except KeyboardInterrupt:
        end_interrupted(f"stopped: what is done is in {file}.jsonl; the same command goes on")
    print_rows(rows, list(axes[0]))
    if all(row["outcome"] in ("inconclusive", "weak_spec") for row in rows):
        raise click.ClickException("no point decides: each row says why in its column reason")
    if heat:
        heat_map(rows, x, y, heat[1])
    if before is not None:
        lines, fails = comparison(before, rows, list(axes[0]))
        click.echo("\n".join(["", f"Compared with {old}:", *lines]))
        context.exit(int(fails))
