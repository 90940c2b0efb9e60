"""The document of a session: the data of the JSON file, the page and the Markdown.

Its fields are

- ``backends``;
- ``kernels``: the counts of the summary;
- ``launches``: for each kernel that tests launched themselves, the number of launches and the texts
  of their hazards;
- ``tests``: the outcome; for a kernel test its kernels and ``details``; for a failure its message,
  text, case and the test with the same failure;
- ``not_reached``: branches and loops that no case took;
- ``not_collected``;
- ``left_out``: kernels that a backend does not run, by dialect, with the reason;
- ``exit_code``;
- ``format``: it changes when a field does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from difftest.analysis.finding import group_by
from difftest.support.choices import PAGES
from difftest.support.output import write_file
from difftest.testing.contract.spec import count_elements
from difftest.testing.harness.coverage import uncovered_branches
from difftest.testing.harness.explanation import CaseHistory
from difftest.testing.harness.failures import CaseFailure
from difftest.testing.harness.tally import PROPERTY, tally_from_json
from difftest.testing.report.failure import failure_document, findings_with_lines
from difftest.testing.report.page import markdown_text, page_text
from difftest.testing.report.totals import labels_of, tallies_of, total_of

if TYPE_CHECKING:
    from difftest.testing.contract.case import Case
    from difftest.testing.contract.spec import KernelSpec
    from difftest.testing.harness.runner import Runner
    from difftest.testing.harness.tally import Tally
    from difftest.testing.session.options import Session

FORMAT = 7
BUG = "difftest_bug"
"""The attribute of a report that names its bug; pytest-xdist transfers it."""
CASE = "difftest_case"
"""The property of a failed kernel test with its case, in the form of ``pytest --case``."""
DETAILS = "difftest_details"
"""The property of a kernel test with its details for a report, in addition to its tally."""
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The environment variable that names the file of a GitHub step's summary."""


def details(runner: Runner, failure: CaseFailure | None, *, page: bool) -> str:
    """Return the details of the kernel test that has run, as JSON.

    With ``page`` they include the predicted time of the largest case, which only a page shows.
    """
    document: dict[str, Any] = {"failure": failure and failure_document(failure)}
    document["hazards"] = findings_with_lines(
        finding for *_, finding in runner.hazards.values()
    )
    if page:
        from difftest.testing.report.performance import performance_document

        shown = [_largest(entry) for entry in runner.histories.values() if entry.agreed]
        if failure is not None:
            shown = [(failure.spec, failure.case)]
        predictions = [performance_document(spec, case) for spec, case in shown]
        document["performance"] = list(filter(None, predictions))
    return json.dumps(document)


def _largest(history: CaseHistory) -> tuple[KernelSpec, Case]:
    spec = history.spec
    return spec, max(history.agreed, key=lambda case: count_elements(spec, case.values))


def bugs_of(reports: Iterable[Any]) -> list[list[Any]]:
    """Group failures by their likely bug; a failure of a drawn case comes first in its group.

    The groups are in the order of the tests, which pytest-xdist's workers report.
    """
    ordered = sorted(
        reports,
        key=lambda r: (getattr(r, BUG, [0, 0])[1] != "", getattr(r, "item_index", 0)),
    )
    groups = group_by(ordered, lambda report: getattr(report, BUG, [id(report)])[0])
    return list(groups.values())


def also_wrong(others: Sequence[Any]) -> str:
    """Return the number of other cases that fail by a bug, and the cases."""
    if not others:
        return ""
    cases = dict.fromkeys(getattr(other, BUG)[1] or "drawn" for other in others)
    noun = "cases" if len(others) > 1 else "case"
    return f"{len(others)} other {noun} ({', '.join(cases)})"


def session_document(
    session: Session,
    reports: Iterable[Any],
    *,
    versions: Mapping[str, str],
    left_out: Iterable[Mapping[str, Any]],
    exit_code: int,
) -> dict[str, Any]:
    """Return the document of a session that has ended.

    Parameters
    ----------
    reports : the reports of pytest.
    versions : the versions of packages, by name.
    left_out : the kernels that a backend does not run, by backend and dialect.
    """
    several = [report for report in reports if isinstance(report, pytest.TestReport)]
    several.sort(key=lambda report: report.start)
    deciding = list(filter(_decides, several))
    tallies = tallies_of(several, session.stopped)
    labels = labels_of(tallies)
    tally = total_of(tallies)
    alike = _alike(deciding)
    backends = session.runner.backends if session.runner else ()
    launches = [] if session.launches is None else session.launches.as_mappings()
    return {
        "format": FORMAT,
        "versions": dict(versions),
        "backends": [
            {"name": row.name, "description": row.description} for row in backends
        ],
        "kernels": _kernel_rows(tally),
        "launches": launches,
        "inconclusive": sorted(tally.reasons),
        "not_reached": [
            place._asdict() for place in uncovered_branches(tally.coverage)
        ],
        "tests": [
            _test(report, labels) | alike.get(id(report), {}) for report in deciding
        ],
        "not_collected": sorted(session.uncollected),
        "left_out": [dict(group) for group in left_out],
        "exit_code": exit_code,
    }


def _decides(report: pytest.TestReport) -> bool:
    """Return whether a report has the outcome of its test: its call, or a phase that failed."""
    return report.when == "call" or not report.passed


def _kernel_rows(tally: Tally) -> list[dict[str, Any]]:
    """Return the counts of the summary, sorted by kernel and backend."""
    return [
        {"kernel": kernel, "backend": backend, **asdict(counts)}
        for (kernel, backend), counts in sorted(tally.rows.items())
    ]


def _alike(reports: Iterable[pytest.TestReport]) -> dict[int, dict[str, str]]:
    """Return the fields on failures of one bug, by the ``id`` of their reports."""
    alike: dict[int, dict[str, str]] = {}
    for lead, *others in bugs_of(report for report in reports if report.failed):
        alike[id(lead)] = {"also_wrong": also_wrong(others)}
        for other in others:
            alike[id(other)] = {"same_as": lead.nodeid}
    return alike


def write_report(file: Path, document: Mapping[str, Any]) -> None:
    """Write a report into an existing folder: a page, Markdown or JSON, by the file's suffix.

    In a GitHub step, the Markdown is also appended to the step's summary.
    """
    if file.suffix in PAGES:
        text = page_text(document)
    elif file.suffix == ".md":
        text = markdown_text(document)
    else:
        text = json.dumps(document, indent=1)
    write_file(file, text)
    if summary := os.environ.get(SUMMARY):
        with open(summary, "a", encoding="utf-8") as more:
            more.write(markdown_text(document))


def _test(
    report: pytest.TestReport, labels: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    """Return a test as data; its kernels have the labels of the session."""
    properties = dict(report.user_properties)
    outcome: str = report.outcome
    if report.when != "call":
        outcome = f"{report.when} {outcome}"
    test: dict[str, Any] = {
        "id": report.nodeid,
        "outcome": outcome,
        "seconds": round(report.duration, 3),
    }
    if PROPERTY in properties:
        homes = tally_from_json(str(properties[PROPERTY])).homes
        names = {name: labels[name, home] for name, home in homes.items()}
        details = json.loads(str(properties.get(DETAILS, '{"failure": null}')))
        for part in (details.get("failure"), *details.get("performance", ())):
            if part is not None:
                part["kernel"] = names.get(part["kernel"], part["kernel"])
        test["kernels"] = sorted(names.values())
        test["details"] = details
    if CASE in properties:
        test["case"] = json.loads(str(properties[CASE]))
    if report.failed:
        text = report.longreprtext
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else text.strip()
        test |= {"failure": text, "message": message.partition("\n")[0]}
    return test
