"""The predicted timeline of a kernel as a picture in a page: engines, DMA, SBUF and PSUM.

The numbers are those of ``difftest profile --plot``; this picture takes its colours from the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape

import numpy as np

from difftest.simulator.trace import Space
from difftest.timing.memory_usage import memory_usage
from difftest.timing.report import Report
from difftest.timing.views.plot import (
    LOADS,
    SHOWN,
    STORES,
    Values,
    colours_of,
    rate_of,
    share_of,
)

BINS = 240
WIDTH, LANE, LEFT, GAP = 900, 44, 96, 14
_FULL = {Space.SBUF: "#56b4e9", Space.PSUM: "#cc79a7"}


def timeline_svg(report: Report) -> str:
    """The picture, with a text for those who do not see it."""
    end = report.prediction.schedule.end / 1e3
    edges: Values = np.linspace(0.0, end, BINS + 1, dtype=np.float64)
    lanes = [*_engines(report, edges), _dma(report, edges), *_memories(report, edges)]
    height = len(lanes) * (LANE + GAP) + 22
    said = "; ".join(label for label, _ in lanes)
    parts = [
        f'<svg role="img" viewBox="0 0 {LEFT + WIDTH + 10} {height}" class="timeline">',
        f"<title>{escape(f'Predicted timeline of {end:,.1f} microseconds: {said}')}</title>",
    ]
    for number, (text, stacked) in enumerate(lanes):
        top = number * (LANE + GAP) + 4
        name, _, value = text.partition(": ")
        parts.append(f'<text x="{LEFT - 8}" y="{top + 18}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{top + 34}" text-anchor="end" class="small">'
            f"{escape(value)}</text>"
        )
        base: Values = np.zeros(BINS)
        for colour, label, heights in stacked:
            path = _area(base, base + heights, top)
            base = base + heights
            parts.append(f'<path d="{path}" fill="{colour}"><title>{escape(label)}</title></path>')
        parts.append(f'<path d="M{LEFT} {top + LANE}h{WIDTH}" class="tile"/>')
    bottom = height - 6
    parts += [
        f'<text x="{LEFT}" y="{bottom}" class="small">0</text>',
        f'<text x="{LEFT + WIDTH}" y="{bottom}" text-anchor="end" class="small">'
        f"{end:,.1f} us (predicted)</text>",
        "</svg>",
    ]
    return "".join(parts)


def colours_in(svg: str) -> list[tuple[str, str]]:
    """The colours of a picture, as (colour, meaning): for those who have no pointer to ask with."""
    found = re.findall(r'd="M[^>]* fill="([^"]*)"><title>([^<]*)</title>', svg)
    return [(colour, unescape(meaning)) for colour, meaning in dict.fromkeys(found)]


Lane = tuple[str, list[tuple[str, str, Values]]]
"""``name: value``, and what is stacked in it, from 0 to 1: colour, label, heights."""


def _engines(report: Report, edges: Values) -> Iterator[Lane]:
    spans = [s for s in report.prediction.schedule.spans if not s.instruction.transfer]
    colours = colours_of(spans)
    for engine in SHOWN:
        mine = [one for one in spans if one.engine is engine and one.busy]
        if not mine:
            continue
        stacked = []
        for opcode, colour in colours.items():
            chosen = sorted(
                (one.start / 1e3, (one.start + one.busy) / 1e3)
                for one in mine
                if one.instruction.opcode == opcode
            )
            if chosen:
                stacked.append((colour, opcode, share_of(chosen, edges)))
        busy = sum(one.busy for one in mine) / 1e3 / edges[-1]
        yield f"{engine.value}: {busy:.0%} busy", stacked


def _dma(report: Report, edges: Values) -> Lane:
    spans = [s for s in report.prediction.schedule.spans if s.instruction.transfer]
    full = report.prediction.program.clockwork.hbm_bandwidth.value
    stacked = [
        (
            colour,
            label,
            rate_of([one for one in spans if one.instruction.is_store is store], edges) / full,
        )
        for store, colour, label in ((False, LOADS, "loads"), (True, STORES, "stores"))
    ]
    highest = max(1.0, float(sum(heights for *_, heights in stacked).max()))  # type: ignore[union-attr]
    active = report.summary()["dma_active_time_percent"]
    return f"DMA: {active:.0%} active", [(c, name, rate / highest) for c, name, rate in stacked]


def _memories(report: Report, edges: Values) -> Iterator[Lane]:
    middles = (edges[:-1] + edges[1:]) / 2
    for space, colour in _FULL.items():
        taken = memory_usage(report.prediction.schedule, space)
        times = [step.time for step in taken.steps]
        held = np.array([0.0, *(float(step.bytes) for step in taken.steps)])
        full = held[np.searchsorted(times, middles, side="right")] / max(taken.capacity, taken.peak)
        name = space.value.upper()
        yield f"{name}: {taken.peak / 1024:,.1f} KiB", [(colour, f"{name} in use", full)]


def _area(low: Values, high: Values, top: float) -> str:
    """The outline of columns between two heights; a step only where one changes."""
    changes = np.flatnonzero((np.diff(low) != 0) | (np.diff(high) != 0)) + 1
    starts = np.concatenate(([0], changes))
    ends = np.concatenate((changes, [BINS]))
    columns = [
        (
            f"{LEFT + start * WIDTH / BINS:.1f}",
            f"{LEFT + end * WIDTH / BINS:.1f}",
            f"{top + LANE * (1 - low[start]):.1f}",
            f"{top + LANE * (1 - high[start]):.1f}",
        )
        for start, end in zip(starts, ends, strict=True)
        if high[start] > low[start]
    ]
    return "".join(
        f"M{left} {under}V{over}H{right}V{under}Z" for left, right, under, over in columns
    )
