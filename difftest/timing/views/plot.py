"""The timeline as a picture: how busy each engine is, DMA rates, and how full SBUF and PSUM are.

Needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from difftest.choices import missing
from difftest.simulator.trace import Engine, Space
from difftest.timing.memory_usage import memory_usage
from difftest.timing.report import Report
from difftest.timing.schedule import Span

BINS = 600
"""Columns in which time is shown."""
WIDTH, ROW_HEIGHT = 13.0, 0.78
"""Inches."""
SHOWN = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)
PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F", "#BCBD22",
)  # fmt: skip
"""Okabe and Ito's colours, which people with colour blindness tell apart, and two more."""
LOADS, STORES = "#0072B2", "#D55E00"

Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class PlottingError(RuntimeError):
    """matplotlib is not installed."""


def need_matplotlib() -> None:
    """A PlottingError if matplotlib is not there."""
    if lack := missing("matplotlib", "a picture", "plot"):
        raise PlottingError(lack)


def plot(report: Report, path: Path, title: str) -> None:
    """Write the picture to ``path``, in the format that its suffix names."""
    need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    schedule = report.prediction.schedule
    engines = [
        e
        for e in SHOWN
        if any(s.engine is e and s.busy and not s.instruction.transfer for s in schedule.spans)
    ]
    end = schedule.end / 1e3
    edges: Values = np.linspace(0.0, end, BINS + 1, dtype=np.float64)
    heights = [1.0] * len(engines) + [1.3, 1.3, 1.3]
    figure = Figure(figsize=(WIDTH, 1.3 + ROW_HEIGHT * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    colours = colours_of(schedule.spans)
    for axis, engine in zip(axes, engines, strict=False):
        _engine(axis, engine, schedule.spans, edges, colours)
    _dma(axes[-3], schedule.spans, edges, report)
    for axis, space in ((axes[-2], Space.SBUF), (axes[-1], Space.PSUM)):
        _memory(axis, report, space, end)
    axes[-1].set_xlabel("microseconds from the start of the kernel's own part (predicted)")
    axes[-1].set_xlim(0, end)
    machine = schedule.program.machine.name
    figure.suptitle(
        f"{title}: {end:,.1f} us predicted for {machine}, DMA descriptors "
        f"{schedule.toolchain.words}",
        fontsize=12, x=0.01, ha="left",
    )  # fmt: skip
    figure.savefig(path, dpi=130)


def colours_of(spans: Iterable[Span]) -> dict[str, str]:
    """A colour for each opcode, the busiest first."""
    busy: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        if not span.instruction.transfer:
            busy[span.instruction.opcode] += span.busy
    ordered = sorted(busy, key=lambda opcode: (-busy[opcode], opcode))
    return {opcode: PALETTE[min(i, len(PALETTE) - 1)] for i, opcode in enumerate(ordered)}


def _engine(
    axis: Any, engine: Engine, spans: list[Span], edges: Values, colours: dict[str, str]
) -> None:
    """The part of each column in which the engine is busy, stacked by opcode."""
    mine = [s for s in spans if s.engine is engine and not s.instruction.transfer]
    base: Values = np.zeros(BINS)
    for opcode, colour in colours.items():
        chosen = sorted(
            (s.start / 1e3, (s.start + s.busy) / 1e3)
            for s in mine
            if s.instruction.opcode == opcode
        )
        if not chosen:
            continue
        share = share_of(chosen, edges)
        axis.stairs(
            base + share, edges, baseline=base, fill=True, color=colour, label=opcode, linewidth=0
        )
        base = base + share
    total = sum(span.busy for span in mine) / 1e3
    _style(axis, f"{engine.value}\n{total / edges[-1]:.0%} busy")
    axis.set_ylim(0, 1.02)
    axis.set_yticks([0, 1], ["0", "100%"])
    _legend(axis)


def share_of(intervals: list[tuple[float, float]], edges: Values) -> Values:
    """The part of each column that the intervals, which do not overlap, cover."""
    times, covered = [edges[0]], [0.0]
    for start, end in intervals:
        start = max(start, times[-1])
        end = max(end, start)
        times += [start, end]
        covered += [covered[-1], covered[-1] + end - start]
    times.append(max(edges[-1], times[-1]))
    covered.append(covered[-1])
    reached = np.interp(edges, times, covered)
    share: Values = np.clip(np.diff(reached) / np.diff(edges), 0.0, 1.0)
    return share


def _dma(axis: Any, spans: list[Span], edges: Values, report: Report) -> None:
    """Bytes a nanosecond of loads and of stores, stacked, under the rate of all engines."""
    base: Values = np.zeros(BINS)
    for store, label, colour in ((False, "loads", LOADS), (True, "stores", STORES)):
        rate = rate_of(
            [s for s in spans if s.instruction.transfer and s.instruction.is_store is store], edges
        )
        axis.stairs(
            base + rate, edges, baseline=base, fill=True, color=colour, label=label, linewidth=0
        )
        base = base + rate
    full = report.prediction.program.clockwork.hbm_bandwidth.value
    axis.axhline(full, color="black", linewidth=0.8, linestyle=":")
    axis.set_ylim(0, max(full * 1.1, base.max() * 1.05))
    active = report.summary()["dma_active_time_percent"]
    _style(axis, f"DMA, GB/s\n{active:.0%} active")
    _legend(axis)


def rate_of(spans: list[Span], edges: Values) -> Values:
    """GB/s in each column, each transfer's bytes spread evenly over its time."""
    change: defaultdict[float, float] = defaultdict(float)
    for span in spans:
        assert span.instruction.transfer is not None
        start, end = span.transfer_start / 1e3, span.transfer_end / 1e3
        rate = span.instruction.transfer.bytes / (end - start) / 1e3
        change[start] += rate
        change[end] -= rate
    times = np.array([edges[0], *sorted(change)])
    rates = np.cumsum([0.0, *(change[time] for time in sorted(change))])
    moved = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    rate_in_column: Values = np.diff(np.interp(edges, times, moved)) / np.diff(edges)
    return rate_in_column


def _memory(axis: Any, report: Report, space: Space, end: float) -> None:
    taken = memory_usage(report.prediction.schedule, space)
    times = [step.time for step in taken.steps]
    kib = [step.bytes / 1024 for step in taken.steps]
    axis.stairs(
        kib[:-1] or [0.0],
        times if len(times) > 1 else [0.0, end],
        fill=True,
        color="#9ecae1" if space is Space.SBUF else "#c7b0d8",
        linewidth=0,
    )
    axis.axhline(taken.capacity / 1024, color="black", linewidth=0.8, linestyle=":")
    axis.plot([taken.peak_time], [taken.peak / 1024], "k.", markersize=4)
    axis.set_ylim(0, max(taken.capacity, taken.peak) / 1024 * 1.12)
    _style(axis, f"{space.value.upper()}, KiB\npeak {taken.peak / 1024:,.1f}")


def _style(axis: Any, label: str) -> None:
    axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _legend(axis: Any) -> None:
    axis.legend(
        loc="center left", bbox_to_anchor=(1.002, 0.5), fontsize=8, frameon=False,
        handlelength=1.0, handleheight=0.9, borderaxespad=0.0,
    )  # fmt: skip
