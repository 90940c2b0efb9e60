"""The rows of a sweep as a table and as a heat map."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from difftest.host.console import print_table, table_console, titled_table
from difftest.host.output import replacing
from difftest.scale.store import Row, need
from difftest.verdict.outcome import Outcome

LISTED = 20
"""Rows of the table, and of those that do not agree, each."""
_TIMES = ("predicted_us", "low_us", "high_us", "bound_us")
_CELL = 0.9
"""Inches."""


def agrees(row: Row) -> bool:
    """Whether a point is right."""
    return bool(row["outcome"] == Outcome.AGREES.value)


def varying(rows: Sequence[Row], axes: Sequence[str]) -> list[str]:
    """The axes that have several values."""
    return [name for name in axes if len({row[name] for row in rows}) > 1]


def point_text(row: Row, axes: Sequence[str]) -> str:
    """``n=4, dtype=float32``."""
    return ", ".join(f"{name}={row[name]}" for name in axes)


def microseconds(value: float | None) -> str:
    """A predicted time, or nothing."""
    return "" if value is None else f"{value:,.1f}"


def print_rows(rows: Sequence[Row], axes: Sequence[str]) -> None:
    """Print how many points came to what, the fastest, and those that do not agree."""
    counts = Counter(row["outcome"].replace("_", " ") for row in rows)
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    click.echo(f"{len(rows)} points: {parts}")
    names = varying(rows, axes) or list(axes)
    timed = sorted(
        (row for row in rows if row["predicted_us"] is not None),
        key=lambda row: float(row["predicted_us"]),
    )
    if timed:
        title = f"The fastest{f' {LISTED} of {len(timed)}' * (len(timed) > LISTED)}, as predicted"
        table = titled_table(title, (*names, "limit"), ("us (from, to)", "bound", "SBUF", "PSUM"))
        for row in timed[:LISTED]:
            predicted, *ends, bound = (microseconds(row[column]) for column in _TIMES)
            times = f"{predicted} ({', '.join(ends)})"
            bytes_of = (str(row[column] or "") for column in ("sbuf_bytes", "psum_bytes"))
            left = (*(str(row[name]) for name in names), row["limited_by"])
            table.add_row(*left, times, bound, *bytes_of)
        print_table(table_console(), table)
    wrong = [row for row in rows if not agrees(row)]
    for row in wrong[:LISTED]:
        click.echo(f"{row['outcome']}: {point_text(row, names)}: {row['reason']}")
    if len(wrong) > LISTED:
        click.echo(f"and {len(wrong) - LISTED} more that do not agree")


def heat_map(rows: Sequence[Row], x: str, y: str, file: Path) -> None:
    """Draw the median predicted latency over two axes; what does not agree is counted."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across, down = (list(dict.fromkeys(row[name] for row in rows)) for name in (x, y))
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    wrong: Counter[tuple[int, int]] = Counter()
    for row in rows:
        place = down.index(row[y]), across.index(row[x])
        wrong[place] += not agrees(row)
        times[place] += [row["predicted_us"]] if row["predicted_us"] is not None else []
    medians = {place: statistics.median(several) for place, several in times.items() if several}
    shades = np.full((len(down), len(across)), np.nan)
    for place, median in medians.items():
        shades[place] = np.log(median)
    figure = Figure((2.5 + _CELL * len(across), 1.9 + 0.6 * len(down)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.imshow(shades, aspect="auto", cmap="viridis_r")
    middle = (np.nanmin(shades) + np.nanmax(shades)) / 2 if medians else 0.0
    for (i, j), count in wrong.items():
        text = f"{medians[i, j]:,.3g}" if (i, j) in medians else ""
        text = "\n".join(filter(None, [text, f"{count} wrong" if count else ""]))
        colour = "white" if shades[i, j] > middle else "black"
        axis.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(across)), list(map(str, across)))
    axis.set_yticks(range(len(down)), list(map(str, down)))
    axis.set(xlabel=x, ylabel=y)
    axis.set_title("predicted us, the median of points that agree", loc="left", fontsize=10)
    try:
        with replacing(file) as path:
            figure.savefig(path, dpi=130)
    except ValueError as error:
        raise click.ClickException(f"--heat: {error}") from None


SURE = 0.05
"""Of the groups that are named slower or faster, so many are not, at most, on average."""
LEAST = 6
"""Points of a group that changed: of fewer no test of ranks is sure."""


class Shift(NamedTuple):
    """How the predicted latencies of a group of points have changed.

    Attributes
    ----------
    ratio : the median of new over old. changed : points whose latency differs, of all ``points``.
    chance : of ranks as uneven if nothing had shifted: Wilcoxon's signed ranks, both sides, points
        that did not change left out, as Benjamini and Hochberg correct it for many groups.
    """

    group: str
    ratio: float
    points: int
    changed: int
    chance: float


def shifts(pairs: Sequence[tuple[Row, Row]], axes: Sequence[str]) -> list[Shift]:
    """Of all points, and of those of each value of an axis: of groups with enough changes."""
    from scipy.stats import false_discovery_control, wilcoxon

    groups: dict[str, list[float]] = defaultdict(list)
    for old, new in _timed(pairs):
        change = math.log(new["predicted_us"] / old["predicted_us"])
        for group in ("all points", *(f"{name}={new[name]}" for name in axes)):
            groups[group].append(change)
    moved = {group: [change for change in changes if change] for group, changes in groups.items()}
    tested = [group for group, changes in moved.items() if len(changes) >= LEAST]
    chances = [wilcoxon(moved[group]).pvalue for group in tested]
    return [
        Shift(
            group,
            math.exp(statistics.median(groups[group])),
            len(groups[group]),
            len(moved[group]),
            float(chance),
        )
        for group, chance in zip(tested, false_discovery_control(chances or [1.0]), strict=False)
    ]


def _timed(pairs: Sequence[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    return [pair for pair in pairs if pair[0]["predicted_us"] and pair[1]["predicted_us"]]


def comparison(
    old: Sequence[Row], new: Sequence[Row], axes: Sequence[str]
) -> tuple[list[str], bool]:
    """What changed of the points in both, in lines; and whether one that agreed newly fails."""
    need("scipy", "--compare")
    earlier = {tuple(str(row.get(name)) for name in axes): row for row in old}
    points = [(tuple(str(row[name]) for name in axes), row) for row in new]
    pairs = [(earlier[point], row) for point, row in points if point in earlier]
    if not pairs:
        raise click.UsageError("--compare: the sweeps have no point in common")
    names = varying(new, axes)
    failing = [now for before, now in pairs if agrees(before) and not agrees(now)]
    mended = sum(agrees(now) and not agrees(before) for before, now in pairs)
    lines = [f"{len(pairs)} points are in both: {len(failing)} newly fail, {mended} newly agree"]
    for row in failing[:LISTED]:
        lines.append(f"newly {row['outcome']}: {point_text(row, names)}: {row['reason']}")
    return [*lines, *_shift_lines(pairs, names)], bool(failing)


def _shift_lines(pairs: Sequence[tuple[Row, Row]], names: Sequence[str]) -> Iterator[str]:
    sure = [shift for shift in shifts(pairs, names) if shift.chance < SURE]
    for shift in sure:
        way = "slower" if shift.ratio > 1 else "faster" if shift.ratio < 1 else "shifted"
        yield (
            f"{way}: {shift.group}: {shift.ratio:.3f} times, the median of {shift.points} points, "
            f"{shift.changed} changed (predicted; p = {shift.chance:.2g}, Wilcoxon)"
        )
    changed = [(n["predicted_us"] / o["predicted_us"], o, n) for o, n in _timed(pairs)]
    if not sure:
        count = sum(ratio != 1 for ratio, *_ in changed)
        yield f"no shift of the predicted latencies is sure; {count} points changed"
    for ratio, before, now in sorted(changed, key=lambda pair: -pair[0])[:3]:
        if ratio > 1:
            times = " -> ".join(microseconds(row["predicted_us"]) for row in (before, now))
            yield f"  {point_text(now, names)}: {times} us (predicted), {ratio:.2f} times"
