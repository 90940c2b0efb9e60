"""`difftest timing`: how far the timing model is to be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from difftest.cli.launching import KernelArguments, launched, random_arrays
from difftest.host.console import print_table, table_console, titled_table
from difftest.host.shipped import import_shipped
from difftest.simulator import MACHINES
from difftest.simulator.frontend.install import embedded
from difftest.timing import predict
from difftest.timing.alignment import align, device_trace
from difftest.timing.calibration import Judged, calibration
from difftest.timing.interval import COVERAGE, SCALE, Estimate, Interval
from difftest.timing.measurements import (
    Comparison,
    Measurement,
    grouped,
    measurements,
    median_error,
)
from difftest.timing.probes import Probed, probed, probes
from difftest.timing.schedule import Schedule

NEAR = 0.2
MACHINE = "trn2"
"""Of which the published latencies are; what is said to be trn1 and is not judges nothing."""
_WIDTH = 170  # characters: the sources are long

LADDER = "conv2d"
Times = dict[tuple[Any, ...], tuple[Estimate, Estimate]]
"""What was launched -> its predicted nc_latency and total_time."""
STREAM = "kernels.classic.vector_add:vector_add_stream"
TRACES = {
    (STREAM, (("FREE_DIM", 1000),), False): "vector-add-stream-256000-fd1k",
    (STREAM, (("FREE_DIM", 2000),), False): "vector-add-stream-256000-fd2k",
    ("kernels.classic.transpose:transpose_by_tiles", (), False): "matrix-transpose-1024",
}
"""(counterpart, keywords, descriptors generated on the device) -> the device trace of the run."""


@click.group()
def timing() -> None:
    """The timing model: what it predicts, and how that compares with devices."""


@timing.command()
@click.option("--all", "whole", is_flag=True, help="Slow kernels too, which take minutes.")
@click.option("-k", "keyword", default="", help="Only kernels whose name contains this.")
def validate(whole: bool, keyword: str) -> None:
    """Compare predictions with published measurements, kernel by kernel.

    Measurements on trn2 with a counterpart in this repository's kernels/; what was measured is
    printed with its source. Convolutions of the ladder were described in words only, so that
    their kernels here are not the ones that were measured. Without --all it takes about 20 s.
    """
    named = [one for one in grouped(measurements()) if keyword in one[0].counterpart]
    groups = [one for one in named if whole or not one[0].slow]
    if not groups:
        slow = "only slow ones, which --all has" if named else "none"
        raise click.UsageError(f"no measured kernel has {keyword!r} in its name: {slow}")
    console = table_console(_WIDTH)
    times: Times = {}
    timelines: dict[str, Schedule] = {}
    comparisons = []
    for number, group in enumerate(groups, 1):
        first = group[0]
        click.echo(f"{number}/{len(groups)} {first.counterpart} {first.shape}", err=True)
        comparisons.append(_compare(group, times, timelines))
    for title, part in _parts(comparisons).items():
        if part:
            print_table(console, _table(title, part))
    for table in (_steps(comparisons), _engines(timelines)):
        if table.row_count:
            print_table(console, table)
    print_calibration(console, comparisons, keyword)
    if len(groups) < len(named):
        console.print(f"Left out: {len(named) - len(groups)} slow ones, which --all has.")


def _compare(
    group: tuple[Measurement, ...], times: Times, timelines: dict[str, Schedule]
) -> Comparison:
    """The group's prediction; ``times`` and ``timelines`` keep what others of the run need."""
    first = group[0]
    if first.run not in times:
        arrays = random_arrays(first.inputs, [first.dtype])
        with embedded():
            module, _, function = first.counterpart.partition(":")
            kernel = getattr(import_shipped(module), function)
            given = KernelArguments(arrays, dict(first.keywords))
            trace, machine = launched(kernel, given, MACHINES["trn2"])[:2]
        prediction = predict(trace, machine, dge=first.dge)
        times[first.run] = (prediction.latency_estimate, prediction.total_time_estimate)
        name = TRACES.get((first.counterpart, first.keywords, first.dge))
        if name:
            timelines[name] = prediction.schedule
    latency, total_time = times[first.run]
    return Comparison(measurements=group, estimate=total_time if first.is_profile else latency)


def _parts(comparisons: list[Comparison]) -> dict[str, list[Comparison]]:
    """The comparisons by what they show."""
    static = "Static descriptors: profiles of the same kernels"
    dge = "Descriptors generated on the device: the same kernels"
    ladder = "The ladder: described in words only, not the same kernels"
    other = "Said to be trn1 (compared with trn2), not the same kernels"
    titles = (static, dge, ladder, other, "Thresholds")
    parts: dict[str, list[Comparison]] = {title: [] for title in titles}
    for one in comparisons:
        if one.first.kind == "threshold":
            title = "Thresholds"
        elif one.first.machine != "trn2":
            title = other
        elif LADDER in one.first.counterpart:
            title = ladder
        else:
            title = dge if one.first.dge else static
        parts[title].append(one)
    return parts


def _steps(comparisons: list[Comparison]) -> Table:
    """By which factor each step made an operation faster: as measured, and as predicted."""
    table = titled_table(
        "Step by step: how many times faster",
        ("From", "To", "Shape", "dtype"),
        ("Measured", "Predicted"),
    )
    last: dict[tuple[str, ...], Comparison] = {}
    for one in comparisons:
        first = one.first
        if first.kind != "measured" or not first.dge:
            continue
        shape = first.shape.replace(" pool1", "")
        family = (first.machine, shape, first.dtype, first.metric)
        before = last.get(family)
        if before is not None and "pool2" not in shape:
            table.add_row(
                before.first.kernel,
                first.kernel,
                first.shape,
                first.dtype,
                f"{before.measured / one.measured:,.2f} x",
                f"{before.predicted / one.predicted:,.2f} x",
            )
        last[family] = one
    return table


def _engines(timelines: dict[str, Schedule]) -> Table:
    """Engine by engine, against the device traces that are shipped."""
    table = titled_table(
        "Engine by engine against device traces (us from the first DMA trigger; offsets: how "
        "much later the n-th instruction starts here than there)",
        ("Trace", "Engine"),
        ("Instructions", "Device", "Predicted", "Median offset", "Worst offset"),
    )
    for name, timeline in timelines.items():
        for one in align(device_trace(name), timeline):
            table.add_row(
                name,
                one.unit,
                f"{one.device_count} / {one.predicted_count}",
                "{:.2f} to {:.2f}".format(*one.device_span),
                "{:.2f} to {:.2f}".format(*one.predicted_span),
                f"{one.median_offset:+.2f}",
                f"{one.worst_offset:+.2f}",
            )
    return table


def _table(title: str, comparisons: Sequence[Comparison]) -> Table:
    measured = [one for one in comparisons if one.first.kind == "measured"]
    error = f"; median error of {len(measured)}: {median_error(measured):.1%}" if measured else ""
    table = titled_table(
        f"{title} (us, predicted against measured{error})",
        ("Measured kernel", "Shape", "dtype", "Counterpart"),
        ("n", "Measured", "Predicted", "Interval", "Error"),
    )
    table.add_column("Source", overflow="fold")
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
            spread(one.judged.interval, first.kind == "measured" and not one.judged.inside),
            f"{one.error:+.1%}",
            first.source,
        )
    return table


def spread(interval: Interval, outside: bool) -> str:
    """An interval in a table; outside of it lies what was measured."""
    text = f"{interval.low:,.1f} to {interval.high:,.1f}"
    return f"OUTSIDE {text}" if outside else text


def print_calibration(console: Console, comparisons: Sequence[Comparison], keyword: str) -> None:
    """The probes of trn1, and how many of all published times lie inside their intervals."""
    judged = [
        one.judged
        for one in comparisons
        if one.first.kind == "measured" and one.first.machine == MACHINE
    ]
    _say(console, "published latencies of kernels on trn2", judged)
    if keyword:
        return
    found = [probed(probe) for probe in probes()]
    print_table(console, _probes(found))
    _say(
        console,
        "probes of trn1 from which no cost was taken",
        [one.judged for one in found if not one.probe.fitted],
    )


def _say(console: Console, what: str, judged: Sequence[Judged]) -> None:
    if not judged:
        return
    result = calibration(judged)
    errors = [abs(one.predicted / one.measured - 1) for one in judged]
    pairs = [
        (a.measured < b.measured) == (a.predicted < b.predicted) for a, b in combinations(judged, 2)
    ]
    text = (
        f"Of {result.rows} {what}: median error {median(errors):.1%}, "
        f"{sum(one <= NEAR for one in errors)} within {NEAR:.0%}, {sum(pairs)} of {len(pairs)} "
        f"pairs in order.\nCalibration: {result.inside} lie inside their interval "
        f"({result.inside / result.rows:.0%}); median width {result.median_width:.0%} of the "
        "prediction, from end to end.\n"
    )
    if len({one.kernel for one in judged}) > 1:
        text += (
            f"Each kernel with the scale that the others alone give: {result.left_out} of "
            f"{result.rows} inside ({result.left_out / result.rows:.0%}). A scale of "
            f"{result.scale:.2f} holds {COVERAGE:.0%} of them all; the model has {SCALE:g}.\n"
        )
    console.print(text, highlight=False)


def _probes(found: Sequence[Probed]) -> Table:
    """The probes of single instructions, with what the model says of each."""
    table = titled_table(
        "Trn1: published probes of single instructions (ns, predicted against measured)",
        ("Engine", "Instruction", "Of"),
        ("Measured", "Predicted", "Interval", "Error"),
    )
    table.add_column("Cost taken from it")
    for one in found:
        probe, judged = one.probe, one.judged
        table.add_row(
            probe.engine.value,
            probe.instruction,
            probe.what,
            f"{judged.measured:,.0f}",
            f"{judged.predicted:,.0f}",
            spread(judged.interval, not judged.inside),
            f"{judged.predicted / judged.measured - 1:+.0%}",
            "yes" if probe.fitted else "no",
        )
    return table
