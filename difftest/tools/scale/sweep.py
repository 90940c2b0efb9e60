"""`difftest sweep`: run one kernel test over a grid of points, and write a row for each point.

The rows can be printed as a table, drawn as a heat map, and compared with an earlier sweep.
"""

from __future__ import annotations

import functools
import math
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from difftest.support.console import print_table, progress, table_console, titled_table
from difftest.support.output import atomic_write
from difftest.support.wording import count_of
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.host.collection import with_spec
from difftest.testing.host.options import PICTURES, OutputFile, given_options
from difftest.tools.scale.axes import Axes, check_axes, parse_axes, parse_case
from difftest.tools.scale.engine import (
    SweepSetup,
    judge_in_processes,
    judge_locally,
    judge_on_dask,
)
from difftest.tools.scale.store import (
    COLUMNS,
    Row,
    Store,
    identity_of,
    key_of,
    read_rows,
    require_extra,
)
from difftest.tools.verdict.outcome import Outcome

LISTED = 20
"""The rows to print: of the table, and of points that do not agree."""
_CELL = 0.9
"""The width of a cell of the heat map, in inches."""


def agrees(row: Row) -> bool:
    """Return whether the kernel agrees with the reference at a point."""
    return bool(row["outcome"] == Outcome.AGREES.value)


def varying(rows: Sequence[Row], axes: Sequence[str]) -> list[str]:
    """Return the axes that have several values."""
    return [name for name in axes if len({row[name] for row in rows}) > 1]


def point_text(row: Row, axes: Sequence[str]) -> str:
    """Return the text of a point, such as ``n=4, dtype=float32``."""
    return ", ".join(f"{name}={row[name]}" for name in axes)


def microseconds(value: float | None) -> str:
    """Return the text of a predicted time; empty without a time."""
    return "" if value is None else f"{value:,.1f}"


def print_rows(rows: Sequence[Row], axes: Sequence[str]) -> None:
    """Print the number of points by outcome, the fastest points, and points that disagree."""
    click.echo(f"{count_of(len(rows), 'point')}; {_outcomes_text(rows)}")
    names = varying(rows, axes) or list(axes)
    timed = [row for row in rows if row["predicted_us"] is not None]
    if timed:
        timed.sort(key=lambda row: float(row["predicted_us"]))
        _print_fastest(timed, names)
    wrong = [row for row in rows if not agrees(row)]
    for row in wrong[:LISTED]:
        click.echo(_reason_text(row, names))
    if len(wrong) > LISTED:
        click.echo(f"and {len(wrong) - LISTED} more that do not agree")


def _outcomes_text(rows: Sequence[Row]) -> str:
    """Return the number of points by outcome, the most frequent outcome first."""
    counts = Counter(row["outcome"].replace("_", " ") for row in rows)
    return ", ".join(f"{outcome}: {count}" for outcome, count in counts.most_common())


def _reason_text(row: Row, names: Sequence[str]) -> str:
    """Return the outcome of a point that does not agree, and its reason."""
    return f"{row['outcome']}: {point_text(row, names)}: {row['reason']}"


def _print_fastest(timed: Sequence[Row], names: Sequence[str]) -> None:
    """Print a table of the fastest points; ``timed`` has all points with a time, in order."""
    title = f"The fastest{f' {LISTED} of {len(timed)}' * (len(timed) > LISTED)}, as predicted"
    numbers = ("us (from, to)", "bound", "SBUF", "PSUM")
    table = titled_table(title, (*names, "limit"), numbers)
    for row in timed[:LISTED]:
        cells = [str(row[name]) for name in names]
        cells.append(row["limited_by"])
        ends = f"{microseconds(row['low_us'])}, {microseconds(row['high_us'])}"
        cells.append(f"{microseconds(row['predicted_us'])} ({ends})")
        cells.append(microseconds(row["bound_us"]))
        cells.append(str(row["sbuf_bytes"] or ""))
        cells.append(str(row["psum_bytes"] or ""))
        table.add_row(*cells)
    print_table(table_console(), table)


def heat_map(rows: Sequence[Row], x: str, y: str, file: Path) -> None:
    """Draw the median predicted latency over two axes, and count points that do not agree."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = list(dict.fromkeys(row[x] for row in rows))
    down = list(dict.fromkeys(row[y] for row in rows))
    places: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        places[down.index(row[y]), across.index(row[x])].append(row)
    shades = np.full((len(down), len(across)), np.nan)
    for place, own in places.items():
        shades[place] = np.log(_median_us(own))
    size = (2.5 + _CELL * len(across), 1.9 + 0.6 * len(down))
    figure = Figure(size, layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.imshow(shades, aspect="auto", cmap="viridis_r")
    timed = shades[np.isfinite(shades)]
    middle = (timed.min() + timed.max()) / 2 if timed.size else 0.0
    for (i, j), own in places.items():
        colour = "white" if shades[i, j] > middle else "black"
        axis.text(
            j, i, _cell_text(own), ha="center", va="center", fontsize=8, color=colour
        )
    axis.set_xticks(range(len(across)), list(map(str, across)))
    axis.set_yticks(range(len(down)), list(map(str, down)))
    axis.set(xlabel=x, ylabel=y)
    axis.set_title(
        "predicted us, the median of points that agree", loc="left", fontsize=10
    )
    with atomic_write(file) as path:
        figure.savefig(path, dpi=130)


def _median_us(rows: Sequence[Row]) -> float:
    """Return the median predicted latency of rows; NaN if none has a prediction."""
    times = [row["predicted_us"] for row in rows if row["predicted_us"] is not None]
    return statistics.median(times) if times else math.nan


def _cell_text(rows: Sequence[Row]) -> str:
    """Return the median of a cell, and the number of its points that do not agree."""
    median = _median_us(rows)
    wrong = sum(not agrees(row) for row in rows)
    lines = []
    if not math.isnan(median):
        lines.append(f"{median:,.3g}")
    if wrong:
        lines.append(f"{wrong} wrong")
    return "\n".join(lines)


SURE = 0.05
"""The false discovery rate: the expected share of named groups that did not change."""
LEAST = 6
"""The least number of changed points of a group. With fewer, no rank test is significant."""


def shifts(
    pairs: Sequence[tuple[Row, Row]], axes: Sequence[str]
) -> dict[str, tuple[list[float], float]]:
    """Return the changes and the p-value of each group of points.

    The groups are all points, and the points of each value of an axis. A change is the logarithm of
    new over old. The p-value is from Wilcoxon's two-sided signed-rank test without unchanged
    points, with the correction of Benjamini and Hochberg for several groups. Groups with fewer than
    ``LEAST`` changes are left out.
    """
    from scipy.stats import false_discovery_control, wilcoxon

    groups: dict[str, list[float]] = defaultdict(list)
    for old, new in pairs:
        change = math.log(new["predicted_us"] / old["predicted_us"])
        for group in ("all points", *(f"{name}={new[name]}" for name in axes)):
            groups[group].append(change)
    tested: dict[str, list[float]] = {}
    chances = []
    for group, changes in groups.items():
        changed = list(filter(None, changes))
        if len(changed) >= LEAST:
            tested[group] = changes
            chances.append(wilcoxon(changed).pvalue)
    if not tested:
        return {}
    sure = map(float, false_discovery_control(chances))
    return dict(zip(tested, zip(tested.values(), sure, strict=True), strict=True))


def comparison(
    old: Sequence[Row], new: Sequence[Row], axes: Sequence[str]
) -> tuple[list[str], bool]:
    """Return the lines of a comparison of two sweeps, and whether a point newly fails."""
    require_extra("scipy", "--compare")
    pairs = _common_points(old, new, axes)
    if not pairs:
        raise click.UsageError("--compare: the sweeps have no point in common")
    names = varying(new, axes)
    failing = [now for before, now in pairs if agrees(before) and not agrees(now)]
    mended = sum(agrees(now) and not agrees(before) for before, now in pairs)
    lines = [
        f"{len(pairs)} points are in both: {len(failing)} newly fail, {mended} newly agree"
    ]
    lines += [f"newly {_reason_text(row, names)}" for row in failing[:LISTED]]
    timed = list(filter(_have_times, pairs))
    lines += _shift_lines(timed, names)
    lines += _slowed_lines(timed, names)
    return lines, bool(failing)


def _have_times(pair: tuple[Row, Row]) -> bool:
    return all(row["predicted_us"] for row in pair)


def _common_points(
    old: Sequence[Row], new: Sequence[Row], axes: Sequence[str]
) -> list[tuple[Row, Row]]:
    """Return the old and the new row of each point that both sweeps have."""

    def place(row: Row) -> tuple[str, ...]:
        return tuple(str(row.get(name)) for name in axes)

    earlier = {place(row): row for row in old}
    return [(earlier[place(row)], row) for row in new if place(row) in earlier]


def _shift_lines(
    timed: Sequence[tuple[Row, Row]], names: Sequence[str]
) -> Iterator[str]:
    """Yield the groups of points whose predicted latencies changed for sure."""
    is_sure = False
    for group, (changes, chance) in shifts(timed, names).items():
        if chance < SURE:
            is_sure = True
            ratio = math.exp(statistics.median(changes))
            changed = np.count_nonzero(changes)
            yield (
                f"{_direction(ratio)}: {group}: {ratio:.3f} times, median of {len(changes)}, "
                f"{changed} changed (predicted; p = {chance:.2g})"
            )
    if not is_sure:
        count = sum(_ratio(pair) != 1 for pair in timed)
        yield f"no shift of the predicted latencies is sure; {count} points changed"


def _slowed_lines(
    timed: Sequence[tuple[Row, Row]], names: Sequence[str]
) -> Iterator[str]:
    """Yield the three points that slowed down most."""
    for pair in sorted(timed, key=_ratio, reverse=True)[:3]:
        old, new = pair
        ratio = _ratio(pair)
        if ratio > 1:
            before = microseconds(old["predicted_us"])
            times = f"{before} -> {microseconds(new['predicted_us'])}"
            yield f"  {point_text(new, names)}: {times} us (predicted), {ratio:.2f} times"


def _ratio(pair: tuple[Row, Row]) -> float:
    """Return the predicted time of a point's new row over that of its old row."""
    old, new = pair
    return float(new["predicted_us"] / old["predicted_us"])


def _direction(ratio: float) -> str:
    """Return the word for a ratio of new to old times."""
    if ratio > 1:
        return "slower"
    return "faster" if ratio < 1 else "shifted"


CASES = 5
TIMEOUT = 60.0
_CALL = "Seconds for a call of the kernel."
OVER = (
    "A name of the domain, a parameter of the kernel with a default, a constant of its file, an "
    "input (kinds of data), dtype, level or kernel. Values: 1,2,3; a..b doubles; a..b:step."
)


def sweep_spec(
    spec: KernelSpec,
    setup: SweepSetup,
    axes: Axes,
    file: Path,
    workers: int | str = 0,
    *,
    fresh: bool = False,
) -> list[Row]:
    """Judge the points without a row, and return all rows in the order of the points.

    Parameters
    ----------
    workers : number of processes (0 uses this process), or the address of a Dask scheduler.

    Raises
    ------
    click.UsageError : an axis is unknown, or the file holds another sweep.
    """
    check_axes(spec, axes)
    identity = identity_of(spec, setup.test)
    key = functools.partial(key_of, identity, setup.test, setup.cases)
    points = {key(point): point for point in axes.points()}
    store = Store(file, fresh=fresh)
    store.check(identity, points)
    left = [point for key, point in points.items() if key not in store.rows]
    if not left or not workers:
        judged = judge_locally(spec, setup, left)
    elif isinstance(workers, str):
        judged = judge_on_dask(setup, left, workers)
    else:
        judged = judge_in_processes(setup, left, workers)
    with progress("points", len(points), len(points) - len(left)) as advance:
        for point, row in judged:
            empty = dict.fromkeys(COLUMNS) | {"kernel": spec.name, "findings": []}
            store.add({**empty, **row, **point, **identity, "key": key(point)})
            advance()
    return store.finish(list(points), list(axes[0]))


def axes_of_command(
    over: Sequence[str],
    machines: str | None,
    case: str | None,
    sample: int | None = None,
) -> Axes:
    """Return the axes of a command line."""
    texts = list(over)
    if machines:
        texts.append(f"machine={machines}")
    axes = parse_axes(texts)
    shared = parse_case(case)
    taken = {*axes, *shared} & COLUMNS.keys() - {"kernel"}
    if taken:
        raise click.UsageError(
            f"{min(taken)} is a column of each row, and no name of an axis"
        )
    if not axes:
        raise click.UsageError("no axis is given: pass --over NAME=VALUES")
    return Axes(axes, shared, sample)


def _check_heat(names: str, axes: Axes) -> None:
    """Raise a click.UsageError if a heat map cannot be drawn over two axes."""
    x, _, y = names.partition(",")
    known = axes[0].keys()
    if not {x, y} <= known:
        raise click.UsageError(
            f"--heat takes X,Y, two names of --over ({', '.join(known)}); got {names}"
        )
    require_extra("matplotlib", "--heat", "plot")


@click.command()
@click.argument("test", metavar="PATH::TEST")
@click.option("--over", multiple=True, metavar="NAME=VALUES", help=OVER)
@click.option(
    "--machines", metavar="trn1,trn2", help="The same as --over machine=trn1,trn2."
)
@click.option("--case", metavar="JSON", help="Names and values that all points share.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    help="Number of points to draw. Default: all points.",
)
@click.option(
    "--cases", type=click.IntRange(1), default=CASES, help="Drawn cases at each point."
)
@click.option(
    "-o",
    "file",
    type=OutputFile(".parquet"),
    required=True,
    help="File of results; a sweep continues it.",
)
@click.option(
    "-n",
    "workers",
    type=click.IntRange(0),
    default=os.cpu_count() or 1,
    help="Processes; 0 means this process.",
)
@click.option(
    "--scheduler",
    metavar="tcp://HOST:PORT",
    help="Scheduler of Dask, in place of processes here.",
)
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=TIMEOUT, help=_CALL
)
@click.option("--fresh", is_flag=True, help="Replace the results in the file.")
@click.option(
    "--heat",
    type=(str, OutputFile(*PICTURES)),
    metavar="X,Y FILE.png",
    help="Write a heat map.",
)
@click.option(
    "--compare",
    "old",
    type=Path,
    help="Earlier sweep. Exit code 1 if a point fails that passed there.",
)
@click.pass_context
def sweep(context: click.Context, /, test: str, file: Path, **options: Any) -> None:
    """Run a kernel test over a grid of points.

    Each point is a row of a Parquet file. A row has the outcome, the predicted latency with its
    interval, and the memory. Run the command again to continue after a stop.
    """
    axes = axes_of_command(
        options.pop("over"),
        options.pop("machines"),
        options.pop("case"),
        options.pop("sample"),
    )
    heat = options.pop("heat")
    old = options.pop("old")
    place, separator, name = test.partition("::")
    node = f"{Path(place).resolve()}{separator}{name}"
    setup = SweepSetup(node, options.pop("cases"), options.pop("timeout"))
    scheduler = options.pop("scheduler")
    if scheduler and given_options(context, {"workers"}):
        raise click.UsageError(
            "-n does not go with --scheduler: the cluster has workers"
        )
    options["workers"] = scheduler or options["workers"]
    before = read_rows(old) if old is not None else None
    if heat:
        _check_heat(heat[0], axes)
    try:
        rows = with_spec(
            test, lambda spec: sweep_spec(spec, setup, axes, file, **options)
        )
    except KeyboardInterrupt:
        text = f"stopped: the results so far are in {file}.jsonl; the same command continues"
        raise KeyboardInterrupt(text) from None
    print_rows(rows, list(axes[0]))
    if all(row["outcome"] in ("inconclusive", "weak_spec") for row in rows):
        raise click.ClickException(
            "no point is decided: the column reason of each row says why"
        )
    if heat:
        x, y = heat[0].split(",")
        heat_map(rows, x, y, heat[1])
    if before is not None:
        lines, fails = comparison(before, rows, list(axes[0]))
        click.echo("\n".join(["", f"Compared with {old}:", *lines]))
        context.exit(int(fails))
