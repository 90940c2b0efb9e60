"""A prediction as text: the totals, the engines, the lines, the memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from difftest.analysis.finding import Finding, Severity
from difftest.simulator.trace import Engine
from difftest.timing.advice import Advice
from difftest.timing.compiler import Toolchain
from difftest.timing.interval import COVERAGE, Interval
from difftest.timing.prediction import Prediction
from difftest.timing.report import ENGINES, Report, ReportRow, roofline

TOP = 12
"""Lines of a table."""


def format_totals(report: Report) -> Iterator[str]:
    """Yield the predicted times as sentences; the first three give the answer and its caveats."""
    prediction = report.prediction
    yield from _format_times(prediction)
    if prediction.caution:
        yield f"CAUTION: {prediction.caution}."
    bounds = roofline(prediction)
    yield (
        f"bounds: {bounds.tensor_bound:,.1f} us arithmetic, {bounds.memory_bound:,.1f} us memory; "
        f"{bounds.share:.0%} of the higher bound reached"
    )
    timeline = prediction.schedule.timeline
    if timeline.cold_time:
        cold = timeline.cold_time / 1e3
        yield f"the tensor engine streams {cold:,.1f} us at half speed (throttled)"
    if timeline.spilled:
        yield (
            f"{timeline.spilled:,} bytes a partition do not fit SBUF: the "
            "compiler would spill them, and what that costs is not in these times"
        )
    shares = [
        f"{share:.0%} {name}"
        for name, share in prediction.error_budget.shares.items()
        if share >= 0.005
    ]
    yield f"evidence of the costs: {', '.join(shares)}"


def _format_times(prediction: Prediction) -> Iterator[str]:
    """Yield the latency and the total of a profile; the latency needs descriptors of its own."""
    toolchain = prediction.schedule.toolchain
    suffix = f"predicted for {prediction.program.machine.name}"
    own = f"of it the kernel's own part {prediction.middle:,.1f} us"
    compiled = f"not measured; compiled as {toolchain.value}: DMA descriptors {toolchain.words}"
    if prediction.unknown:
        yield f"NO TOTAL ({suffix}): {prediction.describe_unknown()}."
        yield compiled
        return
    span = prediction.total_time_interval
    if toolchain is Toolchain.CLASSIC_PROFILE:
        yield f"total_time {prediction.total_time:,.1f} us {suffix}, {own}"
        yield format_interval(span)
        yield compiled
        return
    yield f"nc_latency {prediction.latency:,.1f} us {suffix}, {own}"
    yield format_interval(prediction.latency_interval)
    low, high = (prediction.get_latency_percentile(p) for p in (0, 100))
    if high > low:
        compiled += f"; by the phase of throttling {low:,.1f} to {high:,.1f} us"
    yield compiled
    yield (
        f"a profile's total_time is {prediction.total_time:,.1f} us, "
        f"between {span.low:,.1f} and {span.high:,.1f} us"
    )


def format_interval(span: Interval) -> str:
    """Return the interval of a prediction in words."""
    return (
        f"on a device between {span.low:,.1f} and {span.high:,.1f} us: "
        f"{COVERAGE:.0%} of published latencies lie within such a range"
    )


def format_engines(report: Report) -> Table:
    """Return a table of the load of each engine."""
    summary = report.summary()
    table = Table(title="Engines (predicted)", title_justify="left")
    table.add_column("Engine")
    for heading in ("Instructions", "Active us", "Active"):
        table.add_column(heading, justify="right")
    units = [
        (engine.value, f"{engine.value}_engine", "instruction") for engine in ENGINES
    ]
    for label, name, kind in (*units, ("dma", "dma", "transfer")):
        count = summary[f"{name}_{kind}_count"]
        if count or label in (Engine.TENSOR.value, "dma"):
            active = f"{summary[f'{name}_active_time'] * 1e6:,.1f}"
            share = f"{summary[f'{name}_active_time_percent']:.0%}"
            table.add_row(label, f"{count:,.0f}", active, share)
    return table


def format_lines(title: str, rows: Sequence[ReportRow]) -> Table:
    """Return a table of groups of instructions, the most critical ones."""
    table = Table(title=f"{title} (us, predicted)", title_justify="left")
    table.add_column("", overflow="fold")
    for heading in ("Count", "Busy", "Critical", "DMA bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Costs")
    for line in rows[:TOP]:
        # a source line without its folder
        path, separator, rest = line.group.partition(":")
        table.add_row(
            Text(
                f"{Path(path).name}{separator}{rest}"
            ),  # brackets in it are not markup
            f"{line.instructions:,}",
            f"{line.busy:,.1f}",
            f"{line.critical:,.1f}",
            f"{line.bytes:,}" if line.bytes else "",
            line.evidence.value,
        )
    if len(rows) > TOP:
        table.caption = f"and {len(rows) - TOP} more"
    return table


def format_findings(hints: Iterable[Finding]) -> Iterator[str]:
    """Yield each finding as a few lines: event, place, savings, rule, remedy."""
    number = 0
    for number, hint in enumerate(hints, start=1):
        where = hint.location.short_place if hint.location else ""
        gain = ""
        if isinstance(hint, Advice):
            gain = f"at most {hint.lost:,.1f} us to gain, {hint.work:,.1f} us of work (predicted)"
            if hint.severity is Severity.NOTE:
                gain = f"{hint.lost:,.1f} us of waiting"
        yield f"{number}. {hint.id}: {hint.happened}"
        yield f"   {where}{'  ' if where and gain else ''}{gain}"
        if hint.location and hint.location.text:
            yield f"   > {hint.location.text}"
        yield f"   {hint.rule}"
        yield f"   {hint.remedy}"
    if not number:
        yield "nothing found"
