"""The timeline as a trace for https://ui.perfetto.dev and chrome://tracing.

One process has a thread for each engine. Another has the DMA queues, with enough threads for
overlapping transfers. SBUF and PSUM are counters. On the critical path, an arrow leads to each
instruction from the one that it waited for. Times are predicted.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any

from difftest.simulator.trace import Engine, Space
from difftest.timing.report import ENGINES, Report, memory_usage, span_evidence
from difftest.timing.schedule import Schedule, Span

CORE, QUEUES = 1, 2
"""Process numbers; further cores follow."""


def perfetto(report: Report) -> dict[str, Any]:
    """Return the timeline in the JSON trace event format; times in microseconds."""
    schedule = report.prediction.schedule
    machine = schedule.program.machine.name
    events: list[dict[str, Any]] = [
        _name("process_name", CORE, 0, f"{machine} engines (predicted)"),
        _name("process_name", QUEUES, 0, "DMA queues (predicted)"),
    ]
    places = _engines(schedule, events) | _lanes(schedule.spans, events)
    events += [_slice(span, *places[span.instruction.index]) for span in schedule.spans]
    events += _arrows(report, places)
    for space in (Space.SBUF, Space.PSUM):
        counter = {"ph": "C", "pid": CORE, "name": space.value.upper()}
        for step in memory_usage(schedule, space).steps:
            taken = {"bytes a partition": step.bytes}
            events.append({**counter, "ts": step.time, "args": taken})
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"predicted": "true"},
    }


def _engines(
    schedule: Schedule, events: list[dict[str, Any]]
) -> dict[int, tuple[int, int]]:
    """Name a process for each core and a thread for each engine; assign the instructions."""
    threads = {engine: number for number, engine in enumerate(ENGINES, start=1)}
    for core in range(schedule.program.cores):
        if core:
            name = f"core {core} engines (predicted)"
            events.append(_name("process_name", QUEUES + core, 0, name))
        for engine, number in threads.items():
            process = QUEUES + core if core else CORE
            events.append(_name("thread_name", process, number, engine.value))
    places: dict[int, tuple[int, int]] = {}
    for span in schedule.spans:
        step = span.instruction
        if step.transfer is None and span.engine in threads:
            process = QUEUES + step.core if step.core else CORE
            places[step.index] = process, threads[span.engine]
    return places


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {
        "ph": "M",
        "name": kind,
        "pid": process,
        "tid": thread,
        "args": {"name": name},
    }


def _lanes(
    spans: list[Span], events: list[dict[str, Any]]
) -> dict[int, tuple[int, int]]:
    """Assign threads to the transfers of each direction, so that none overlap on a thread."""
    places: dict[int, tuple[int, int]] = {}
    thread = 0
    for store, label in ((False, "loads"), (True, "stores")):
        free: list[tuple[float, int]] = []
        steps = ((span, span.instruction) for span in spans)
        dmas = [
            span for span, step in steps if step.transfer and step.is_store is store
        ]
        for span in sorted(dmas, key=lambda span: span.start):
            if free and free[0][0] <= span.start:
                lane = heapq.heappop(free)[1]
            else:
                thread += 1
                lane = thread
                events.append(
                    _name("thread_name", QUEUES, lane, f"{label} {len(free) + 1}")
                )
            heapq.heappush(free, (span.end, lane))
            places[span.instruction.index] = (QUEUES, lane)
    return places


def _slice(span: Span, process: int, thread: int) -> dict[str, Any]:
    """Return the event of one instruction in the format of Perfetto."""
    instruction = span.instruction
    duration = span.end - span.start if instruction.transfer else max(span.busy, 1.0)
    event = instruction.event
    details: dict[str, Any] = {
        "line": str(event.location),
        "result after us": round((span.end - span.start) / 1e3, 4),
        "operands ready at us": round(span.ready / 1e3, 4),
        "evidence": span_evidence(span).value,
        "writes": "; ".join(f"{r.allocation} {list(r.shape)}" for r in event.writes),
        "reads": "; ".join(f"{r.allocation} {list(r.shape)}" for r in event.reads),
    }
    if instruction.transfer:
        details["bytes"] = instruction.transfer.bytes
        details["row bytes"] = instruction.transfer.row_bytes
        details["triggered by"] = (
            "DGE" if span.engine is Engine.DMA else span.engine.value
        )
    return {
        "ph": "X",
        "name": instruction.opcode,
        "cat": "dma" if instruction.transfer else span.engine.value,
        "pid": process,
        "tid": thread,
        "ts": span.start / 1e3,
        "dur": duration / 1e3,
        "args": details,
    }


def _arrows(report: Report, places: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
    """Return flow events along the critical path."""
    spans = report.prediction.schedule.spans
    chain = report.prediction.schedule.critical
    arrows = []
    for number, (before, after) in enumerate(itertools.pairwise(chain)):
        common = {"cat": "critical path", "name": "critical path", "id": number}
        start = {"ph": "s", **_arrow_end(spans[before], places[before])}
        end = {"ph": "f", "bp": "e", **_arrow_end(spans[after], places[after])}
        arrows += [common | start, common | end]
    return arrows


def _arrow_end(span: Span, place: tuple[int, int]) -> dict[str, Any]:
    """Return where an arrow begins or ends: the start of an instruction on its thread."""
    process, thread = place
    return {"pid": process, "tid": thread, "ts": span.start / 1e3}
