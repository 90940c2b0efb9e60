"""The lanes of a timeline: the load of each engine, DMA rates, and memory in use.

``difftest profile --plot``, which needs matplotlib (the extra ``plot``), draws these numbers. So
does the HTML page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.trace import Space
from difftest.timing.report import ENGINES, Report, memory_usage
from difftest.timing.schedule import Schedule, Span

PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F", "#BCBD22",
)  # fmt: skip
"""Okabe and Ito's colours, which are safe for colour blindness, and two more."""
LOADS = "#0072B2"
STORES = "#D55E00"
_MEMORY_COLOURS = {Space.SBUF: "#56B4E9", Space.PSUM: "#CC79A7"}

Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Lane(NamedTuple):
    """A row of a timeline.

    Attributes
    ----------
    name, value : the name, and a total as text.
    unit, limit : the unit of the heights, and the machine's maximum.
    stacked : colour, meaning and the height in each column of time.
    """

    name: str
    value: str
    unit: str
    limit: float
    stacked: list[tuple[str, str, Values]]

    @property
    def highest(self) -> float:
        """The highest value: predictions may exceed a limit."""
        return max(
            self.limit, float(np.sum([row for *_, row in self.stacked], axis=0).max())
        )


def lanes_of(report: Report, bins: int) -> Iterator[Lane]:
    """Yield the lanes of busy engines, DMA and the two memories, in ``bins`` columns of time."""
    schedule = report.prediction.schedule
    edges: Values = np.linspace(0.0, schedule.end / 1e3, bins + 1)
    yield from _engines(schedule.spans, edges)
    yield _dma(report, edges)
    for space in _MEMORY_COLOURS:
        yield _memory(schedule, space, edges)


def _dma(report: Report, edges: Values) -> Lane:
    """Return the lane of DMA: the rates of loads and of stores."""
    spans = report.prediction.schedule.spans
    dmas = [span for span in spans if span.instruction.transfer]
    loads = [span for span in dmas if not span.instruction.is_store]
    stores = [span for span in dmas if span.instruction.is_store]
    rates = [
        (LOADS, "DMA loads", rate_of(loads, edges)),
        (STORES, "DMA stores", rate_of(stores, edges)),
    ]
    active = report.summary()["dma_active_time_percent"]
    limit = report.prediction.program.parameters.hbm_bandwidth.value
    return Lane("DMA", f"{active:.0%} active", "GB/s", limit, rates)


def _memory(schedule: Schedule, space: Space, edges: Values) -> Lane:
    """Return the lane of a memory: its bytes in use in the middle of each column."""
    usage = memory_usage(schedule, space)
    name = space.value.upper()
    held = np.array([0.0, *(step.bytes / 1024 for step in usage.steps)])
    times = [step.time for step in usage.steps]
    middles = (edges[:-1] + edges[1:]) / 2
    heights = held[np.searchsorted(times, middles, side="right")]
    return Lane(
        name,
        value=f"peak {usage.peak / 1024:,.1f} KiB",
        unit="KiB",
        limit=usage.capacity / 1024,
        stacked=[(_MEMORY_COLOURS[space], f"{name} in use", heights)],
    )


def _engines(spans: list[Span], edges: Values) -> Iterator[Lane]:
    """Yield each engine's busy share of each column, by opcode, the busiest first."""
    busy: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        busy[_work_of(span)] += span.busy
    opcodes = sorted(busy, key=lambda opcode: (-busy[opcode], opcode))
    colours = dict(zip(opcodes, PALETTE, strict=False))
    for engine in ENGINES:
        taken: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        total = 0.0
        for span in spans:
            if span.busy and span.engine is engine:
                times = span.start / 1e3, (span.start + span.busy) / 1e3
                taken[_work_of(span)].append(times)
                total += span.busy / 1e3
        stacked = [
            (
                colours.get(opcode, PALETTE[-1]),
                opcode,
                share_of(sorted(taken[opcode]), edges),
            )
            for opcode in opcodes
            if opcode in taken
        ]
        if stacked:
            yield Lane(engine.value, f"{total / edges[-1]:.0%} busy", "", 1.0, stacked)


def _work_of(span: Span) -> str:
    """Return the work of an engine: its instruction, or the descriptors of a DMA."""
    return "DMA descriptors" if span.instruction.transfer else span.instruction.opcode


def share_of(intervals: Iterable[tuple[float, float]], edges: Values) -> Values:
    """Return the share of each column that the intervals cover; they must not overlap."""
    times = [edges[0]]
    covered = [0.0]
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


def rate_of(spans: list[Span], edges: Values) -> Values:
    """Return GB/s in each column, with each transfer's bytes spread evenly over its time."""
    change: defaultdict[float, float] = defaultdict(float)
    for span in spans:
        assert span.instruction.transfer is not None
        start = span.transfer_start / 1e3
        end = span.transfer_end / 1e3
        rate = span.instruction.transfer.bytes / (end - start) / 1e3
        change[start] += rate
        change[end] -= rate
    times = np.array([edges[0], *sorted(change)])
    rates = np.cumsum([0.0, *(change[time] for time in sorted(change))])
    moved = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    rate_in_column: Values = np.diff(np.interp(edges, times, moved)) / np.diff(edges)
    return rate_in_column


BINS = 600
"""Columns of time."""
WIDTH, ROW_HEIGHT, TALL = 13.0, 0.78, 1.3
"""Inches; the lanes of DMA and memories are taller than those of engines by the factor ``TALL``."""


def plot(report: Report, path: Path, title: str) -> None:
    """Write the picture to ``path``, in the format of its suffix."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes = list(lanes_of(report, BINS))
    schedule = report.prediction.schedule
    end = schedule.end / 1e3
    heights = [TALL if lane.unit else 1.0 for lane in lanes]
    figure = Figure(
        figsize=(WIDTH, 1.3 + ROW_HEIGHT * sum(heights)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(
        len(heights), 1, sharex=True, height_ratios=heights, squeeze=False
    )[:, 0]
    for axis, lane in zip(axes, lanes, strict=True):
        _draw(axis, lane, end)
    axes[-1].set_xlabel(
        "microseconds from the start of the kernel's own part (predicted)"
    )
    axes[-1].set_xlim(0, end)
    machine = schedule.program.machine.name
    title = f"{title}: {end:,.1f} us predicted for {machine}"
    descriptors = f"DMA descriptors {schedule.toolchain.words}"
    figure.suptitle(f"{title}, {descriptors}", fontsize=12, x=0.01, ha="left")
    # a text for screen readers
    figure.savefig(path, dpi=130, metadata={"Title": title})


def _draw(axis: Any, lane: Lane, end: float) -> None:
    """Draw the stacked heights of a lane, and the machine's maximum."""
    edges = np.linspace(0.0, end, BINS + 1)
    base = np.zeros(BINS)
    for colour, label, heights in lane.stacked:
        style = {"fill": True, "color": colour, "label": label, "linewidth": 0}
        axis.stairs(base + heights, edges, baseline=base, **style)
        base = base + heights
    if lane.unit:
        axis.axhline(lane.limit, color="black", linewidth=0.8, linestyle=":")
        axis.set_ylim(0, lane.highest * 1.1)
    else:
        axis.set_ylim(0, 1.02)
        axis.set_yticks([0, 1], ["0", "100%"])
    name = ", ".join(filter(None, (lane.name, lane.unit)))
    axis.set_ylabel(
        f"{name}\n{lane.value}", rotation=0, ha="right", va="center", fontsize=9
    )
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(
        loc="center left", bbox_to_anchor=(1.002, 0.5), fontsize=8, frameon=False,
        handlelength=1.0, handleheight=0.9, borderaxespad=0.0,
    )  # fmt: skip
