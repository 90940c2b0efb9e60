"""`difftest tune`: the fastest point of a kernel that is correct, by predicted latency."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import click

from difftest.host.collecting import with_spec
from difftest.host.console import progress
from difftest.host.loading import parse_keywords
from difftest.host.waiting import patient
from difftest.scale.placing import check_axes, placed
from difftest.scale.search import AGREES, BOUND, SLOWER, TRACE_BOUND, Attempt, Tuner
from difftest.scale.shown import microseconds, point_text
from difftest.scale.store import need
from difftest.scale.sweep import CASES, OVER, axes_of_command

_LEFT = {
    BOUND: "never run: the traffic of inputs and outputs takes as long as the best",
    TRACE_BOUND: "run once, not scheduled: the roofline of the trace is above the best",
    SLOWER: "predicted, not judged: not faster than the best",
    "agrees": "the best when they were found, and correct",
}


def tuned(
    tuner: Tuner, start: Mapping[str, Any], trials: int, *, exhaustive: bool = False
) -> Iterator[str]:
    """Search a grid; what came of it, in lines.

    Parameters
    ----------
    start : values of axes to begin at; of the others the first. trials : points to look at.
    exhaustive : whether to look at all points afterwards, for the place of the best.

    Raises
    ------
    click.UsageError : an axis stands for nothing, or names of the case are left open.
    """
    check_axes(tuner.spec, tuner.axes)
    first = tuner.axes[0]
    missing = [name for name in placed(tuner.spec, first).spec.domain if name not in first]
    if missing:
        raise click.UsageError(
            f"the times of one case are compared: give --case a value for {', '.join(missing)}"
        )
    places, found = dict[str, int](), list[tuple[int, int]]()
    for axis in tuner.axes.axes:
        value = start.get(axis.name, axis.values[0])
        if value not in axis.values:
            known = ", ".join(map(str, axis.values))
            raise click.UsageError(f"--start {axis.name}={value}: the axis has {known}")
        places[axis.name] = axis.values.index(value)
    points = len(tuner.axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with progress("points", min(trials, points)) as advance:
            for _ in tuner.search(trials, places):
                advance()
        own = tuner.own()
        if exhaustive:
            with progress("all points", points) as advance:
                for one in tuner.place_of_best():
                    found.append(one)
                    advance()
    yield from _ladder(tuner, own)
    for place, count in found[-1:]:
        yield f"place {place} of {count} points that have a time (predicted)"


def _ladder(tuner: Tuner, own: Attempt | None) -> Iterator[str]:
    """The improvements, how far the others were looked at, the best beside the kernel's own."""
    yield f"{len(tuner.attempts)} of {len(tuner.axes)} points looked at; all times are predicted"
    for before, one in zip([None, *tuner.ladder], tuner.ladder, strict=False):
        yield f"{microseconds(one.latency_us):>10} us  {_step(before, one)}"
    for status, count in Counter(one.status for one in tuner.attempts).most_common():
        yield f"  {count} {_LEFT.get(status, status.replace('_', ' '))}"
    if not tuner.ladder:
        reasons = dict.fromkeys(f"{one.status}: {one.reason}" for one in tuner.attempts)
        yield f"no point is correct: {'; '.join([*reasons][:3])}"
        return
    best = tuner.ladder[-1]
    time, low, high = map(microseconds, (best.latency_us, best.low_us, best.high_us))
    yield f"best: {point_text(best.point, [*best.point])}"
    yield f"  {time} us predicted, between {low} and {high} nine times of ten"
    if own is not None:
        yield f"the kernel's own sizes: {point_text(own.point, [*own.point])}"
        told = f"{microseconds(own.latency_us)} us predicted, {_times(own, best)} times the best's"
        yield f"  {told if own.status == AGREES else f'{own.status}: {own.reason}'}"


def _step(before: Attempt | None, one: Attempt) -> str:
    """What changed from one rung of the ladder to the next, and the gain."""
    if before is None:
        return point_text(one.point, [*one.point])
    old, new = before.point, one.point
    parts = [f"{name} {old[name]} -> {new[name]}" for name in new if old[name] != new[name]]
    return f"{', '.join(parts)}: {_times(before, one)} times faster"


def _times(slow: Attempt, fast: Attempt) -> str:
    return f"{(slow.latency_us or 0.0) / (fast.latency_us or 1.0):.2f}"


@click.command()
@click.argument("test", metavar="PATH::TEST")
@click.option("--over", multiple=True, metavar="NAME=VALUES", help=OVER)
@click.option("--case", metavar="JSON", help="The case whose time counts: names and values.")
@click.option("--start", multiple=True, metavar="NAME=VALUE", help="To begin at; else the first.")
@click.option("--trials", type=click.IntRange(1), default=30, help="Points to look at.")
@click.option("--cases", type=click.IntRange(1), default=CASES, help="To judge a best point.")
@click.option("--exhaustive", is_flag=True, help="Then look at all points: the best's place.")
@patient
@click.pass_context
def tune(context: click.Context, /, test: str, start: tuple[str, ...], **given: Any) -> None:
    """Find the sizes with which a kernel is fastest, by predicted latency, and correct.

    The times are those of one case, and none is measured. What is fast is judged by drawn cases of
    the test and by that case. The exit code is 1 if no point is correct.
    """
    need("optuna", "tuning")
    axes = axes_of_command(given.pop("over"), None, given.pop("case"))
    cases, begin, found = given.pop("cases"), parse_keywords(start), list[Tuner]()

    def run(spec: Any) -> list[str]:
        found.append(Tuner(spec, axes, cases))
        return [*tuned(found[0], begin, **given)]

    click.echo("\n".join(with_spec(test, run)))
    context.exit(int(not found[0].ladder))
