"""`difftest timing`: the accuracy of the timing model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from difftest.cli.launching import KernelArguments, launch_traced, random_arrays
from difftest.simulator import MACHINES
from difftest.simulator.entry.install import embedded
from difftest.support.console import print_table, progress, table_console, titled_table
from difftest.testing.host.shipped import import_shipped
from difftest.timing import predict
from difftest.timing.calibration import (
    CheckedPrediction,
    Comparison,
    Measurement,
    align,
    calibration,
    device_trace,
    measurements,
    predict_probe,
    probes,
)
from difftest.timing.calibration import (
    comparisons as grouped,
)
from difftest.timing.compiler import Toolchain
from difftest.timing.interval import COVERAGE, SCALE, Estimate
from difftest.timing.schedule import Schedule

MACHINE = "trn2"
"""The machine of the published latencies. Rows that claim another machine are not in its totals."""
FEW = 12
"""Number of rows that are printed by default, the largest errors first."""
_WIDTH = 170  # characters: rows are long

LADDER = "conv2d"
IN_WORDS = "described in words"
"""The note of a row whose kernel here is not the measured one."""
OTHERS = "probes of trn1, others"
FITTED = "probes of trn1 whose cost is theirs"
TOTAL = "all of trn2"
Times = dict[tuple[Any, ...], Mapping[str, Estimate]]
"""The predictions of each launch, by metric."""
STREAM = "kernels.classic.vector_add:vector_add_stream"
TRACES = {
    (STREAM, (("FREE_DIM", 1000),)): "vector-add-stream-256000-fd1k",
    (STREAM, (("FREE_DIM", 2000),)): "vector-add-stream-256000-fd2k",
    ("kernels.classic.transpose:transpose_by_tiles", ()): "matrix-transpose-1024",
}
"""(counterpart, keywords) of a profile -> the device trace of the run."""


@click.group()
def timing() -> None:
    """Compare the timing model's predictions with devices."""


@timing.command()
@click.option(
    "--all", "whole", is_flag=True, help="Include slow kernels, which take minutes."
)
@click.option(
    "--rows", "each", is_flag=True, help="Show every row, not only the worst."
)
@click.option(
    "-k",
    "keyword",
    default="",
    help="Show all rows of the kernels whose name contains this text.",
)
def validate(whole: bool, each: bool, keyword: str) -> None:
    """Compare predictions with published measurements, class by class.

    The measurements are from trn2 and have a counterpart in this repository's kernels/. Their
    sources are in data/measurements-trn2.csv. Convolutions of the ladder and the tuned products
    were published in words only, so their kernels here are not the measured ones. Without --all the
    command takes about 20 s.
    """
    groups, left_out = _selected(keyword, whole)
    console = table_console(_WIDTH)
    timelines: dict[str, Schedule] = {}
    comparisons = _compare_all(groups, timelines)
    classes = _judged_by_class(comparisons)
    ours = classes.pop(TOTAL)
    if not keyword:
        classes |= _probe_classes()
    classes[TOTAL] = ours
    print_table(console, _classes(classes))
    print_table(console, _table(comparisons, None if each or keyword else FEW))
    engines = _engines(timelines)
    if engines.row_count:
        print_table(console, engines)
    _print_scale(console, ours)
    if left_out:
        console.print(f"Left out: {left_out} slow ones, which --all has.")


def _selected(keyword: str, whole: bool) -> tuple[list[tuple[Measurement, ...]], int]:
    """Return the groups of measurements to compare, and the number of slow groups left out."""
    named = [rows for rows in grouped(measurements()) if keyword in rows[0].counterpart]
    groups = [rows for rows in named if whole or not rows[0].slow]
    if not groups:
        slow = "only slow ones, which --all has" if named else "none"
        raise click.UsageError(
            f"no measured kernel has {keyword!r} in its name: {slow}"
        )
    return groups, len(named) - len(groups)


def _probe_classes() -> dict[str, list[CheckedPrediction]]:
    """Return the predictions of the probes of trn1, by their two classes."""
    classes: dict[str, list[CheckedPrediction]] = {FITTED: [], OTHERS: []}
    for probe in probes():
        title = FITTED if probe.fitted else OTHERS
        classes[title].append(predict_probe(probe))
    return classes


def _compare_all(
    groups: Sequence[tuple[Measurement, ...]], timelines: dict[str, Schedule]
) -> list[Comparison]:
    """Return the comparison of each group, and keep the schedules of device traces."""
    times: Times = {}
    comparisons = []
    with progress("kernels", len(groups)) as advance:
        for group in groups:
            comparisons.append(_compare(group, times, timelines))
            advance()
    return comparisons


def _print_scale(console: Console, judged: Sequence[CheckedPrediction]) -> None:
    """Print how the intervals of each kernel do with the scale that the other kernels give."""
    if len({row.kernel for row in judged}) < 2:
        return
    result = calibration(judged)
    console.print(
        f"Each kernel with the scale that the others alone give: {result.left_out} of "
        f"{result.rows} inside ({result.left_out / result.rows:.0%}). A scale of "
        f"{result.scale:.2f} holds {COVERAGE:.0%} of them all; the model has {SCALE:g}.",
        highlight=False,
    )


def _compare(
    group: tuple[Measurement, ...], times: Times, timelines: dict[str, Schedule]
) -> Comparison:
    """Return a group's comparison, and keep its estimates and schedule for other groups."""
    first = group[0]
    if first.run not in times:
        arrays = random_arrays(first.inputs, [first.dtype])
        with embedded():
            module, _, function = first.counterpart.partition(":")
            kernel = getattr(import_shipped(module), function)
            arguments = KernelArguments(arrays, dict(first.keywords))
            launched = launch_traced(kernel, arguments, MACHINES["trn2"])
        prediction = predict(launched.trace, launched.machine, dge=first.toolchain)
        times[first.run] = prediction.estimates
        name = TRACES.get((first.counterpart, first.keywords))
        if name and first.toolchain is Toolchain.CLASSIC_PROFILE:
            timelines[name] = prediction.schedule
    return Comparison(measurements=group, estimates=times[first.run])


def _judged_by_class(
    comparisons: list[Comparison],
) -> dict[str, list[CheckedPrediction]]:
    """Return the judged predictions of measured rows by class, and of the machine in all."""
    classes: dict[str, list[CheckedPrediction]] = {TOTAL: []}
    for comparison in comparisons:
        first = comparison.first
        if first.kind != "measured":
            continue
        titles = [_class_of(first)]
        if first.notes == "held out":
            titles.append("products held out of the fit")
        if first.machine == MACHINE:
            titles.append(TOTAL)
        for title in titles:
            classes.setdefault(title, []).append(comparison.judged)
    return classes


def _class_of(first: Measurement) -> str:
    """Return the class of a measured kernel."""
    if first.machine != MACHINE:
        return "said to be trn1 (compared with trn2), in words"
    if first.toolchain is Toolchain.SWEEP:
        return "tuned products" if first.is_launched else "a product's ladder, in words"
    if LADDER in first.counterpart:
        return "convolutions, in words"
    if IN_WORDS in first.notes:
        return "kernels of all passes, in words"
    return f"the same kernels, {first.toolchain.value}"


def _classes(parts: Mapping[str, Sequence[CheckedPrediction]]) -> Table:
    """Return the table of each class: errors, intervals, order."""
    table = titled_table(
        "Classes (predicted against measured; Rank: Kendall's, 1 is the device's order, 0 none)",
        ("Class",),
        (
            "n",
            "Median error",
            "Within 20%",
            "Inside",
            "Median width",
            "Pairs in order",
            "Rank",
        ),
    )
    for name, judged in parts.items():
        if not judged:
            continue
        result = calibration(judged)
        table.add_row(
            name,
            str(result.rows),
            f"{result.median_error:.1%}",
            str(result.near),
            f"{result.inside} ({result.inside / result.rows:.0%})",
            f"{result.median_width:.0%}",
            f"{result.in_order} of {result.pairs}",
            f"{result.rank:+.2f}" if result.pairs else "",
        )
    return table


def _engines(timelines: dict[str, Schedule]) -> Table:
    """Return the table that compares engines with the shipped device traces."""
    table = titled_table(
        "Engine by engine against device traces (us from the first DMA trigger; offset: how much "
        "later the n-th instruction starts here)",
        ("Trace", "Engine"),
        ("Instructions", "Device", "Predicted", "Median offset", "Worst offset"),
    )
    for name, timeline in timelines.items():
        for pair in align(device_trace(name), timeline):
            table.add_row(
                name,
                pair.unit,
                f"{pair.device_count} / {pair.predicted_count}",
                "{:.2f} to {:.2f}".format(*pair.device_span),
                "{:.2f} to {:.2f}".format(*pair.predicted_span),
                f"{pair.median_offset:+.2f}",
                f"{pair.worst_offset:+.2f}",
            )
    return table


def _table(comparisons: Sequence[Comparison], most: int | None) -> Table:
    """Return the table of rows: all, or the ``most`` measured rows with the largest errors."""
    shown = list(comparisons)
    if most is not None:
        shown = [row for row in shown if row.first.kind == "measured"]
        shown = sorted(shown, key=lambda row: -abs(row.error))[:most]
    left = len(comparisons) - len(shown)
    more = f", {left} others with --rows" if left else ""
    table = titled_table(
        f"Rows (us, predicted against measured{more})",
        ("Measured kernel", "Shape", "dtype", "Toolchain"),
        ("n", "Measured", "Predicted", "Interval", "Error"),
    )
    for row in shown:
        first = row.first
        low, high = row.judged.interval
        outside = first.kind == "measured" and not row.judged.inside
        table.add_row(
            first.kernel,
            first.shape,
            first.dtype,
            first.toolchain.value,
            str(len(row.measurements)),
            f"{'<= ' if first.kind == 'threshold' else ''}{row.measured:,.2f}",
            f"{row.predicted:,.2f}",
            f"{'OUTSIDE ' if outside else ''}{low:,.1f} to {high:,.1f}",
            f"{row.error:+.1%}",
        )
    return table
