"""Two sweeps of the same points: what newly fails, and what is slower by a test of ranks."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from difftest.scale.shown import LISTED, agrees, microseconds, point_text, varying
from difftest.scale.store import Row, need

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
    moved = {group: [one for one in changes if one] for group, changes in groups.items()}
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
    return [one for one in pairs if one[0]["predicted_us"] and one[1]["predicted_us"]]


def comparison(
    old: Sequence[Row], new: Sequence[Row], axes: Sequence[str]
) -> tuple[list[str], bool]:
    """What changed, in lines; and whether a point that agreed does not any more.

    Raises
    ------
    click.UsageError : no point is in both.
    """
    need("scipy", "--compare")
    known = {tuple(str(row.get(name)) for name in axes): row for row in old}
    points = [(tuple(str(row[name]) for name in axes), row) for row in new]
    pairs = [(known[point], row) for point, row in points if point in known]
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
    sure = [one for one in shifts(pairs, names) if one.chance < SURE]
    for one in sure:
        way = "slower" if one.ratio > 1 else "faster" if one.ratio < 1 else "shifted"
        yield (
            f"{way}: {one.group}: {one.ratio:.3f} times, the median of {one.points} points, "
            f"{one.changed} changed (predicted; p = {one.chance:.2g}, Wilcoxon)"
        )
    changed = [(n["predicted_us"] / o["predicted_us"], o, n) for o, n in _timed(pairs)]
    if not sure:
        count = sum(ratio != 1 for ratio, *_ in changed)
        yield f"no shift of the predicted latencies is sure; {count} points changed"
    for ratio, before, now in sorted(changed, key=lambda one: -one[0])[:3]:
        if ratio > 1:
            times = " -> ".join(microseconds(one["predicted_us"]) for one in (before, now))
            yield f"  {point_text(now, names)}: {times} us (predicted), {ratio:.2f} times"
