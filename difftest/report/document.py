"""A session as data: what a JSON file has, and what the page and the Markdown show.

The document has ``backends``, ``kernels`` (the counts of the summary), ``tests`` (outcome; of a
kernel test its kernels and ``details``; of one that failed its text and its case), ``not_reached``
(branches and loops that no case took), ``not_collected`` and ``exit_code``; ``format`` changes when
a field does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from difftest.choices import PAGES
from difftest.harness.coverage import missed
from difftest.harness.failures import CaseFailure
from difftest.harness.looks import History
from difftest.harness.spec import elements_of
from difftest.harness.tally import PROPERTY, labels_of, tally_from_json, total_of
from difftest.host.output import write_file
from difftest.report.failure import failure_document, findings
from difftest.report.markdown import markdown_text
from difftest.report.page import page_text

if TYPE_CHECKING:
    from difftest.backends.base import Backend
    from difftest.harness.runner import Runner

FORMAT = 3
CASE = "difftest_case"
"""The property of a failed kernel test that holds its case, as ``pytest --case`` takes it."""
DETAILS = "difftest_details"
"""The property of a kernel test that holds what a report says of it, beside its tally."""
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The environment variable that names the file of a GitHub step's summary."""


def details(runner: Runner, failure: CaseFailure | None, *, page: bool) -> str:
    """What a report says of the kernel test that has run, as JSON.

    ``page`` asks for what only a page shows: how long the largest case is predicted to take.
    """
    document: dict[str, Any] = {"failure": failure and failure_document(failure)}
    document["hazards"] = findings(one for *_, one in runner.hazards)
    if page and failure is None:
        shown = map(_performance, runner.histories.values())
        document["performance"] = [one for one in shown if one is not None]
    return json.dumps(document)


def _performance(history: History) -> dict[str, Any] | None:
    from difftest.report.performance import performance_document

    spec = history.spec
    if history.failing or not history.agreed:
        return None
    largest = max(history.agreed, key=lambda case: elements_of(spec, case.values))
    return performance_document(spec, largest)


def session_document(
    versions: Mapping[str, str],
    backends: Iterable[Backend],
    reports: Iterable[Any],
    not_collected: Iterable[str],
    exit_code: int,
) -> dict[str, Any]:
    """A session that is over, as JSON has it: what ran it, its reports, what it left out."""
    several = (one for one in reports if isinstance(one, pytest.TestReport))
    deciding = [one for one in several if one.when == "call" or not one.passed]
    texts = (dict(one.user_properties).get(PROPERTY) for one in deciding)
    tallies = [tally_from_json(str(text)) for text in texts if text is not None]
    labels, tally = labels_of(tallies), total_of(tallies)
    return {
        "format": FORMAT,
        "versions": dict(versions),
        "backends": [{"name": one.name, "description": one.description} for one in backends],
        "kernels": [
            {"kernel": kernel, "backend": backend, **asdict(counts)}
            for (kernel, backend), counts in sorted(tally.rows.items())
        ],
        "inconclusive": sorted(tally.reasons),
        "not_reached": [asdict(one) for one in missed(tally.coverage)],
        "tests": [_test(report, labels) for report in deciding],
        "not_collected": sorted(not_collected),
        "exit_code": exit_code,
    }


def write_report(file: Path, document: Mapping[str, Any]) -> None:
    """Write a report, in a folder that is there: a page, Markdown or JSON, by the file's suffix.

    In a step of GitHub's its summary gets the Markdown too.
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


def _test(report: pytest.TestReport, labels: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    properties = dict(report.user_properties)
    found: dict[str, Any] = {
        "id": report.nodeid,
        "outcome": report.outcome if report.when == "call" else f"{report.when} {report.outcome}",
        "seconds": round(report.duration, 3),
    }
    if PROPERTY in properties:
        homes = tally_from_json(str(properties[PROPERTY])).homes
        names = {name: labels[name, home] for name, home in homes.items()}
        found["kernels"] = sorted(names.values())
        found["details"] = json.loads(str(properties.get(DETAILS, '{"failure": null}')))
        for one in (found["details"].get("failure"), *found["details"].get("performance", ())):
            if one is not None:
                one["kernel"] = names.get(one["kernel"], one["kernel"])
    if CASE in properties:
        found["case"] = json.loads(str(properties[CASE]))
    if report.failed:
        found["failure"] = report.longreprtext
    return found
