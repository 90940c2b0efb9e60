"""How well the intervals of predictions hold, for `difftest timing validate`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from rich.console import Console
from rich.table import Table

from difftest.host.console import print_table, titled_table
from difftest.timing.calibration import Judged, calibration
from difftest.timing.interval import COVERAGE, SCALE, Interval
from difftest.timing.measurements import Comparison
from difftest.timing.probes import Probed, probed, probes

NEAR = 0.2
MACHINE = "trn2"
"""Of which the published latencies are; what is said to be trn1 and is not judges nothing."""


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
