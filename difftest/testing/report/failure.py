"""A failing test as data, for a page, a Markdown summary and other programs."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterable, Sequence
from typing import Any

from difftest.analysis.finding import Finding
from difftest.simulator.errors import Location
from difftest.support.tracebacks import function_of
from difftest.testing.contract.case import Case, value_texts
from difftest.testing.harness.error_groups import raised_at
from difftest.testing.harness.error_map import error_maps
from difftest.testing.harness.failures import (
    CaseFailure,
    DifferentialFailure,
    ReportedFailure,
    Reproduction,
    format_sizes,
)
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Mismatch, OneSided, WrongOutput
from difftest.testing.host.progress import ProgressThread

NEIGHBOURS = 3
"""The number of lines that are shown before and after a line."""


def failure_document(failure: CaseFailure) -> dict[str, Any]:
    """Return a failure as data for JSON.

    ``where`` has the source lines of the failure, ``outputs`` the maps of each wrong output, and
    ``nearest`` the nearest case that agrees.
    """
    spec = failure.spec
    case = failure.case
    rows = failure.case_rows() + failure.rows()
    document: dict[str, Any] = {
        "kernel": spec.name,
        "title": failure.title(),
        "rows": [list(row) for row in rows if row[1]],
        "again": failure.again.command(case) if failure.again else "",
        "saved": failure.saved,
        "findings": findings_with_lines(failure.findings),
        "beside": list(failure.beside),
        "where": [],
        "outputs": [],
        "nearest": "",
    }
    if isinstance(failure, DifferentialFailure):
        document["where"] = _where(failure)
        document["outputs"] = _outputs(failure)
        agreed = nearest_passing(case, failure.history.agreed)
        document["nearest"] = "" if agreed is None else label(agreed)
    return document


def nearest_passing(case: Case, agreed: Sequence[Case]) -> Case | None:
    """Return the agreeing case that differs in the fewest values, and in them the least.

    A case with the same values and dtype, but other data, is returned only if there is no other.
    """
    others = [
        other
        for other in agreed
        if (other.values, other.dtype) != (case.values, case.dtype)
    ]
    return min(others or agreed, key=lambda other: _distance(case, other), default=None)


def _distance(case: Case, other: Case) -> tuple[int, float]:
    """Return the number of differences of two cases, and how far their numbers are apart."""
    differences = int(case.dtype != other.dtype)
    for name, recipe in case.data.items():
        differences += recipe != other.data[name]
    apart = 0.0
    for name, value in case.values.items():
        theirs = other.values[name]
        if value == theirs:
            continue
        differences += 1
        if isinstance(value, int | float) and isinstance(theirs, int | float):
            apart += abs(math.log1p(abs(theirs)) - math.log1p(abs(value)))
    return differences, apart


def label(case: Case) -> str:
    """Return a case in one line: its values, its dtype and its data."""
    values = value_texts(case.values)
    data = [f"{name}={recipe!r:.80}" for name, recipe in case.data.items()]
    return ", ".join(values + [case.dtype] + data)


def running_case(runner: Runner) -> ProgressThread:
    """Return a thread that shows the case, or the test, that a runner has run for long."""

    def describe(now: Any) -> str:
        if isinstance(now, Reproduction):
            return now.node
        again = runner.reproduction  # read once: the test may end meanwhile
        test = "" if again is None else f"{again.node}: "
        return f"{test}{now[0].name}, at {format_sizes(*now)},"

    return ProgressThread(lambda: runner.now or runner.reproduction, describe)


def findings_with_lines(several: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as data, with their source lines."""
    return [
        {
            **hazard.as_mapping(),
            "where": [lines_around(at, hazard.id) for at in hazard.locations],
        }
        for hazard in several
    ]


def lines_around(at: Location, why: str) -> dict[str, Any]:
    """Return a source line with its neighbours; ``why`` is the reason to show it."""
    first = max(1, at.line - NEIGHBOURS)
    shown: list[list[Any]] = []
    for number in range(first, at.line + NEIGHBOURS + 1):
        text = linecache.getline(at.file, number)
        if text:
            shown.append([number, text.rstrip("\n")])
    return {"why": why, "file": at.file, "line": at.line, "lines": shown}


def _outputs(failure: DifferentialFailure) -> list[dict[str, Any]]:
    """Return the wrong outputs of the case, and of the largest failed case, which shows more."""
    outputs: list[dict[str, Any]] = []
    for backend, verdict in failure.verdicts.items():
        if not isinstance(verdict, Mismatch):
            continue
        smallest = failure.case, verdict
        for case, mismatch in (
            smallest,
            failure.history.largest.get(backend, smallest),
        ):
            is_larger = mismatch.shape != verdict.shape
            if mismatch.evidence is None or (outputs and not is_larger):
                continue
            output = _output(backend, case, mismatch, mismatch.evidence)
            if is_larger:
                output["of"] = format_sizes(failure.spec, case)
            else:
                output["looks_like"] = failure.looks.get(backend, "")
            outputs.append(output)
    return outputs


def _output(
    backend: str, case: Case, mismatch: Mismatch, evidence: WrongOutput
) -> dict[str, Any]:
    """Return a wrong output as data; ``of`` and ``looks_like`` are still empty."""
    return {
        "backend": backend,
        "output": mismatch.output,
        "of": "",
        "case": label(case),
        "shape": list(mismatch.shape),
        "dtype": str(evidence.got.dtype),
        "looks_like": "",
        "maps": error_maps(mismatch),
    }


def failing_line(failure: ReportedFailure) -> Location | None:
    """Return the line of the kernel that a failure is about, else of the kernel's definition.

    None for a failure that names no kernel.
    """
    if isinstance(failure, DifferentialFailure):
        for where in _where(failure):
            return Location(where["file"], where["line"])
    findings: Iterable[Finding] = getattr(failure, "findings", ())
    for finding in findings:
        if finding.location is not None:
            return finding.location
    if not isinstance(failure, CaseFailure):
        return None
    if failure.raised is not None:
        at = raised_at(failure.raised, failure.spec)
        if at is not None:
            return at
    return Location.of_definition(function_of(failure.spec.kernel))


def _where(failure: DifferentialFailure) -> list[dict[str, Any]]:
    """Return the line that raised, or that wrote the first wrong element."""
    for backend, verdict in failure.verdicts.items():
        if isinstance(verdict, OneSided):
            at = raised_at(verdict.error, failure.spec)
            if at is not None:
                return [lines_around(at, "raised here")]
        elif isinstance(verdict, Mismatch) and verdict.first is not None:
            event = failure.writers.get(backend)
            if event is not None and event.location is not None:
                index = list(verdict.first.index)
                name = verdict.argument or f"output {verdict.output}"
                why = f"{event.opcode} wrote {name} at {index} here, last"
                return [lines_around(event.location, why)]
    return []
