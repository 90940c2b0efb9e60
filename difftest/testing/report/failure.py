"""A failing test as data, for a page, a Markdown summary and other programs."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from difftest.analysis.finding import Finding
from difftest.simulator.errors import Location, relative_path
from difftest.support.tracebacks import format_error, inner_frames, is_own
from difftest.testing.contract.case import Case, to_jsonable
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.failures import (
    CaseFailure,
    DifferentialFailure,
    ReportedFailure,
    Reproduction,
    format_report,
    format_sizes,
)
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Mismatch, OneSided
from difftest.testing.harness.writers import locate_writers
from difftest.testing.host.progress import ProgressThread
from difftest.testing.report.error_map import error_maps

NEIGHBOURS = 3
"""The number of lines that are shown before and after a line."""
_SEVERAL = "Hypothesis found "
"""The first words of Hypothesis's group of errors, for a test with several failures."""


def failure_document(failure: CaseFailure) -> dict[str, Any]:
    """Return a failure as data for JSON.

    ``where`` has the source lines of the failure, ``outputs`` the maps of each wrong output, and
    ``nearest`` the nearest case that agrees.
    """
    spec = failure.spec
    case = failure.case
    document: dict[str, Any] = {
        "kernel": spec.name,
        "title": failure.title(),
        "rows": [
            list(row) for row in [*failure.case_rows(), *failure.rows()] if row[1]
        ],
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


@contextmanager
def one_of_several(runner: Runner) -> Iterator[None]:
    """Replace a group of Hypothesis's errors within the block by one of them.

    It is the simplest error, and errors of this package come before the test's own. Its ``beside``
    describes the other errors.
    """
    try:
        yield
    except BaseException as group:
        if not (hasattr(group, "exceptions") and str(group).startswith(_SEVERAL)):
            raise
        errors = group.exceptions[::-1]  # the simplest is Hypothesis's last
        lead, *others = sorted(
            errors, key=lambda error: not isinstance(error, ReportedFailure)
        )
        lead.__dict__["beside"] = [_describe_other(runner, error) for error in others]
        before = lead.__context__
        try:
            raise lead
        finally:
            lead.__context__ = before  # not the group


def _describe_other(runner: Runner, error: BaseException) -> str:
    """Return the report of a failure; for the test's own errors one line, and how to run it."""
    if isinstance(error, CaseFailure):
        locate_writers(error, runner.backends)
        return str(error)
    at = runner.now and raised_at(error, runner.now[0])
    steps = (
        step.f_locals.get("case") for step, _ in traceback.walk_tb(error.__traceback__)
    )
    case = next((case for case in steps if isinstance(case, Case)), None)
    if runner.reproduction and case:
        again = [("run again", runner.reproduction.command(case))]
    else:
        again = []
    return format_report(
        f"{relative_path(at.file)}:{at.line}: {format_error(error)}"
        if at
        else format_error(error),
        again,
    )


def nearest_passing(case: Case, agreed: Sequence[Case]) -> Case | None:
    """Return the agreeing case that differs in the fewest values, and in them the least.

    A case with the same values and dtype, but other data, is returned only if there is no other.
    """

    def distance(other: Case) -> tuple[int, float]:
        pairs = [(value, other.values[name]) for name, value in case.values.items()]
        differ = [(mine, theirs) for mine, theirs in pairs if mine != theirs]
        data = sum(recipe != other.data[name] for name, recipe in case.data.items())
        numbers = [
            pair for pair in differ if all(isinstance(of, int | float) for of in pair)
        ]
        far = np.abs(np.diff(np.log1p(np.abs(np.array(numbers, np.float64))))).sum()
        return len(differ) + data + (case.dtype != other.dtype), float(far)

    kind = case.values, case.dtype
    others = [other for other in agreed if (other.values, other.dtype) != kind]
    return min(others or agreed, key=distance, default=None)


def label(case: Case) -> str:
    """Return a case in one line: its values, its dtype and its data."""
    values = [f"{name}={to_jsonable(value)}" for name, value in case.values.items()]
    data = [f"{name}={recipe!r:.80}" for name, recipe in case.data.items()]
    return ", ".join([*values, case.dtype, *data])


def running_case(runner: Runner) -> ProgressThread:
    """Return a thread that shows the case, or the test, that a runner has run for long."""

    def describe(now: Any) -> str:
        if isinstance(now, Reproduction):
            return now.node
        again = runner.reproduction  # read once: the test may end meanwhile
        return f"{again.node + ': ' if again else ''}{now[0].name}, at {format_sizes(*now)},"

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
    lines = [
        (n, linecache.getline(at.file, n))
        for n in range(first, at.line + NEIGHBOURS + 1)
    ]
    shown = [[n, text.rstrip("\n")] for n, text in lines if text]
    return {"why": why, "file": at.file, "line": at.line, "lines": shown}


def _outputs(failure: DifferentialFailure) -> list[dict[str, Any]]:
    """Return the wrong outputs of the case, and of the largest failed case, which shows more."""
    outputs: list[dict[str, Any]] = []
    for backend, verdict in failure.verdicts.items():
        if not isinstance(verdict, Mismatch):
            continue
        largest = failure.history.largest.get(backend, (failure.case, verdict))
        for case, mismatch in ((failure.case, verdict), largest):
            is_larger = mismatch.shape != verdict.shape
            if mismatch.evidence is None or (outputs and not is_larger):
                continue
            output = {
                "backend": backend,
                "output": mismatch.output,
                "of": format_sizes(failure.spec, case) if is_larger else "",
                "case": label(case),
                "shape": list(mismatch.shape),
                "dtype": str(mismatch.evidence.got.dtype),
                "looks_like": "" if is_larger else failure.looks.get(backend, ""),
                "maps": error_maps(mismatch),
            }
            outputs.append(output)
    return outputs


def _where(failure: DifferentialFailure) -> list[dict[str, Any]]:
    """Return the line that raised, or that wrote the first wrong element."""
    shown = []
    for backend, verdict in failure.verdicts.items():
        if isinstance(verdict, OneSided):
            at = raised_at(verdict.error, failure.spec)
            if at is not None:
                shown.append(lines_around(at, "raised here"))
        elif isinstance(verdict, Mismatch) and verdict.first is not None:
            event = failure.writers.get(backend)
            if event is not None and event.location is not None:
                index = list(verdict.first.index)
                name = verdict.argument or f"output {verdict.output}"
                why = f"{event.opcode} wrote {name} at {index} here, last"
                shown.append(lines_around(event.location, why))
    return shown[:1]


def raised_at(error: BaseException, spec: KernelSpec) -> Location | None:
    """Return the line of the kernel, or of the reference, that raised an error; else None."""
    at = getattr(error, "location", None)
    if isinstance(at, Location):
        return at
    for function in (spec.kernel, spec.reference):
        for entry in inner_frames(error):
            if is_own(entry, function):
                return Location(entry.tb_frame.f_code.co_filename, entry.tb_lineno)
    return None
