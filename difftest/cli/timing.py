"""`difftest timing`: how far the timing model is to be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from difftest.cli.launching import random_arrays, trace_of
from difftest.simulator import MACHINES
from difftest.timing import Prediction, predict
from difftest.timing.measurements import (
    Comparison,
    Measurement,
    grouped,
    measurements,
    median_error,
)

LARGE = 10_000_000
"""Elements of inputs from which on a run takes more than a few seconds."""
LADDER = "conv2d"


@click.group()
def timing() -> None:
    """The timing model: what it predicts, and how that compares with devices."""


@timing.command()
@click.option("--quick", is_flag=True, help="Leave out what takes more than a few seconds.")
@click.option("-k", "keyword", default="", help="Only kernels whose name contains this.")
def validate(quick: bool, keyword: str) -> None:
    """Compare predictions with published measurements, kernel by kernel.

    All measurements on trn2 with a counterpart in this repository's kernels/; what was measured
    is printed with its source. Convolutions of the ladder were described in words only, so that
    their kernels here are not the ones that were measured.
    """
    groups = [
        group
        for group in grouped(measurements())
        if keyword in group[0].counterpart
        and not (quick and _elements(group[0]) >= LARGE)
        and not (quick and _slow(group[0]))
    ]
    if not groups:
        raise click.ClickException(f"no measured kernel has {keyword!r} in its name")
    console = Console()
    comparisons: list[Comparison] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(groups))
        for comparison in _compare(groups, progress, task):
            comparisons.append(comparison)
    for title, part in _parts(comparisons).items():
        if part:
            console.print(_table(title, part))
            measured = [one for one in part if one.first.kind == "measured"]
            if measured:
                error = median_error(measured)
                console.print(f"median error of {len(measured)}: {error:.1%}\n")


def _elements(measurement: Measurement) -> int:
    return sum(int(np.prod(shape)) for shape in measurement.inputs)


def _slow(measurement: Measurement) -> bool:
    """Thousands of instructions on little data."""
    return dict(measurement.keywords).get("ROW_CHUNK") == 1 or (
        LADDER in measurement.counterpart and _elements(measurement) > 10**7
    )


def _compare(
    groups: Sequence[tuple[Measurement, ...]], progress: Progress, task: object
) -> Iterator[Comparison]:
    done: dict[tuple[object, ...], Prediction] = {}
    for group in groups:
        first = group[0]
        progress.update(task, description=f"{first.counterpart} {first.shape}")  # type: ignore[arg-type]
        if first.run not in done:
            done[first.run] = _predict(first)
        prediction = done[first.run]
        value = prediction.total_time if first.is_profile else prediction.latency
        yield Comparison(measurements=group, predicted=value)
        progress.advance(task)  # type: ignore[arg-type]


def _predict(measurement: Measurement) -> Prediction:
    arrays = random_arrays(measurement.inputs, [measurement.dtype])
    machine = MACHINES["trn2"]
    trace, machine, _ = trace_of(
        measurement.counterpart, arrays, dict(measurement.keywords), machine
    )
    return predict(trace, machine, dge=measurement.dge)


def _parts(comparisons: list[Comparison]) -> dict[str, list[Comparison]]:
    """The comparisons by what they show."""
    parts: dict[str, list[Comparison]] = {
        "Static descriptors: profiles of the same kernels": [],
        "Descriptors generated on the device: the same kernels": [],
        "The ladder: described in words only, not the same kernels": [],
        "Said to be trn1 (probably trn2), not the same kernels": [],
        "Thresholds": [],
    }
    static, dge, ladder, other, thresholds = parts.values()
    for one in comparisons:
        if one.first.kind == "threshold":
            thresholds.append(one)
        elif one.first.machine != "trn2":
            other.append(one)
        elif LADDER in one.first.counterpart:
            ladder.append(one)
        else:
            (dge if one.first.dge else static).append(one)
    return parts


def _table(title: str, comparisons: Sequence[Comparison]) -> Table:
    table = Table(title=f"{title} (us, predicted against measured)", title_justify="left")
    for heading in ("Measured kernel", "Shape", "dtype", "Counterpart"):
        table.add_column(heading, overflow="fold")
    for heading in ("n", "Measured", "Predicted", "Error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in comparisons:
        first = one.first
        table.add_row(
            first.kernel,
            first.shape,
            first.dtype,
            first.counterpart.partition(":")[2],
            str(len(one.measurements)),
            f"{'<= ' if first.kind == 'threshold' else ''}{one.measured:,.2f}",
            f"{one.predicted:,.2f}",
            f"{one.error:+.1%}",
        )
    return table
