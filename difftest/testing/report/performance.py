"""The predicted time of a case: the numbers of ``difftest profile`` as data."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.analysis.inspection import memory_text
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Trace
from difftest.support.internal_errors import internal_error_scope
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.failures import format_sizes
from difftest.testing.harness.writers import trace_of
from difftest.testing.report.failure import findings_with_lines, label
from difftest.timing.advice import advise
from difftest.timing.prediction import predict
from difftest.timing.report import Report, roofline
from difftest.timing.views.lanes import Lane, Values, lanes_of
from difftest.timing.views.text import format_totals

MOST = 20_000
"""The most instructions of a kernel for a prediction in a page."""
LINES = 8
"""The number of lines in the table of the slowest source lines."""
_WIDTH = 100
BINS, WIDTH, LANE = 240, 900, 44
"""The columns of time in the timeline, and the size of a lane in the picture's units."""


def performance_document(spec: KernelSpec, case: Case) -> dict[str, Any] | None:
    """Return the prediction for a case, up to its end or its error; None if it cannot start.

    All numbers are predicted, not measured.
    """
    with internal_error_scope(f"the predicted time of {spec.name}"):
        trace, stopped = trace_of(spec, case)
        document = {
            "kernel": spec.name,
            "title": format_sizes(spec, case),
            "case": label(case),
        }
        document["stopped"] = stopped
        return {**document, **_performance(trace)} if trace else None
    return None


def _performance(trace: Trace) -> dict[str, Any]:
    """Return the predicted performance of a launch, for the page."""
    if len(trace) > MOST:
        return {
            "why_not": f"{len(trace):,} instructions: difftest profile says how long they take"
        }
    machine = MACHINES[trace.machine]
    prediction = predict(trace, machine)
    report = Report(prediction)
    bounds = roofline(prediction)
    return {
        "totals": list(format_totals(report)),
        "microseconds": {
            "predicted": bounds.predicted,
            "bound by arithmetic": bounds.tensor_bound,
            "bound by memory": bounds.memory_bound,
        },
        "intensity": bounds.intensity,
        "ridge": bounds.ridge,
        "limit": bounds.limit,
        "end": prediction.schedule.end / 1e3,
        "lanes": list(map(_lane, lanes_of(report, BINS))),
        "lines": [
            [row.group, row.instructions, row.busy, row.critical, row.bytes]
            for row in report.by_line()[:LINES]
        ],
        "memory": memory_text(trace, machine, _WIDTH),
        "advice": findings_with_lines(advise(prediction.schedule)),
    }


def _lane(lane: Lane) -> dict[str, Any]:
    """Return a lane of the timeline: its stacked areas, each with colour, meaning and outline."""
    areas = []
    base = np.zeros(BINS)
    for colour, meaning, heights in lane.stacked:
        above = base + heights / lane.highest
        areas.append([colour, meaning, _area(base, above)])
        base = above
    return {"name": lane.name, "value": lane.value, "areas": areas}


def _area(low: Values, high: Values) -> str:
    """Return the SVG outline of columns between two heights from 0 to 1, with few points."""
    changes = np.flatnonzero((np.diff(low) != 0) | (np.diff(high) != 0)) + 1
    starts = [0, *changes]
    ends = [*changes, BINS]
    return "".join(
        f"M{start * WIDTH / BINS:.1f} {LANE * (1 - low[start]):.1f}V{LANE * (1 - high[start]):.1f}"
        f"H{end * WIDTH / BINS:.1f}V{LANE * (1 - low[start]):.1f}Z"
        for start, end in zip(starts, ends, strict=True)
        if high[start] > low[start]
    )
