"""How long a case is predicted to take: the numbers of ``difftest profile`` as data."""

from __future__ import annotations

from typing import Any

from difftest.breakdown import unless_broken
from difftest.harness.case import Case
from difftest.harness.spec import KernelSpec
from difftest.inspection import memory_text
from difftest.report.failure import findings, label, trace_of
from difftest.report.timeline import colours_in, timeline_svg
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Trace
from difftest.timing.advice import advise
from difftest.timing.prediction import predict
from difftest.timing.report import Report
from difftest.timing.roofline import roofline
from difftest.timing.views.text import totals

MOST = 20_000
"""Instructions of a kernel beyond which a page does not wait for a prediction."""
LINES = 8
"""Source lines in the table of those that take most."""
_WIDTH = 100


def performance_document(spec: KernelSpec, case: Case) -> dict[str, Any] | None:
    """What is predicted of a case; None if the embedded simulator does not run it.

    Nothing in it is measured.
    """
    with unless_broken(f"the predicted time of {spec.name}"):
        trace = trace_of(spec, case)
        return _predicted(spec, case, trace) if trace else None
    return None


def _predicted(spec: KernelSpec, case: Case, trace: Trace) -> dict[str, Any]:
    document: dict[str, Any] = {"kernel": spec.name, "case": label(case)}
    if len(trace) > MOST:
        why = f"{len(trace):,} instructions: difftest profile says how long they take"
        return {**document, "why_not": why}
    machine = MACHINES[trace.machine]
    prediction = predict(trace, machine)
    report, bounds = Report(prediction), roofline(prediction)
    summary, timeline = report.summary(), timeline_svg(report)
    return {
        **document,
        "totals": list(totals(report)),
        "microseconds": {
            "predicted": bounds.predicted,
            "bound by arithmetic": bounds.tensor_bound,
            "bound by memory": bounds.memory_bound,
        },
        "intensity": bounds.intensity,
        "ridge": bounds.ridge,
        "limit": bounds.limit,
        "timeline": timeline,
        "colours": colours_in(timeline),
        "busy": {
            name: summary[f"{name}_active_time_percent"]
            for name in (*(f"{e}_engine" for e in ("tensor", "vector", "scalar", "gpsimd")), "dma")
        },
        "lines": [
            [one.group, one.instructions, one.busy, one.critical, one.bytes]
            for one in report.by_line()[:LINES]
        ],
        "memory": memory_text(trace, machine, _WIDTH),
        "advice": findings(advise(prediction.schedule)),
    }
