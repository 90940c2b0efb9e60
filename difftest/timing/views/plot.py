"""The timeline as a picture: how busy each engine is, DMA rates, and how full SBUF and PSUM are.

Needs matplotlib, the extra ``plot``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from difftest.choices import missing
from difftest.timing.report import Report
from difftest.timing.views.lanes import Lane, lanes_of

BINS = 600
"""Columns in which time is shown."""
WIDTH, ROW_HEIGHT, TALL = 13.0, 0.78, 1.3
"""Inches; DMA and memories are as much taller than engines."""


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

    lanes, schedule = [*lanes_of(report, BINS)], report.prediction.schedule
    end = schedule.end / 1e3
    heights = [TALL if lane.unit else 1.0 for lane in lanes]
    figure = Figure(figsize=(WIDTH, 1.3 + ROW_HEIGHT * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for axis, lane in zip(axes, lanes, strict=True):
        _draw(axis, lane, end)
    axes[-1].set_xlabel("microseconds from the start of the kernel's own part (predicted)")
    axes[-1].set_xlim(0, end)
    machine = schedule.program.machine.name
    figure.suptitle(
        f"{title}: {end:,.1f} us predicted for {machine}, DMA descriptors "
        f"{schedule.toolchain.words}",
        fontsize=12, x=0.01, ha="left",
    )  # fmt: skip
    figure.savefig(path, dpi=130)


def _draw(axis: Any, lane: Lane, end: float) -> None:
    """What is stacked in a lane, below the most that the machine has."""
    edges, base = np.linspace(0.0, end, BINS + 1), np.zeros(BINS)
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
    axis.set_ylabel(f"{name}\n{lane.value}", rotation=0, ha="right", va="center", fontsize=9)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.legend(
        loc="center left", bbox_to_anchor=(1.002, 0.5), fontsize=8, frameon=False,
        handlelength=1.0, handleheight=0.9, borderaxespad=0.0,
    )  # fmt: skip
