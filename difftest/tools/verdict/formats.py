"""Verdicts as text, JUnit, HTML and Markdown, made from the documents of ``--json``."""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from difftest.simulator.errors import relative_path
from difftest.support.output import write_file
from difftest.testing.harness import failures
from difftest.testing.harness.tally import Counts
from difftest.testing.report.document import SUMMARY
from difftest.testing.report.failure import failure_document
from difftest.testing.report.page import markdown_text, page_text
from difftest.testing.report.performance import performance_document
from difftest.tools.verdict.backend import CandidateBackend
from difftest.tools.verdict.judgement import FORMAT, Judgement
from difftest.tools.verdict.outcome import Outcome
from difftest.tools.verdict.wire import one_line, printable


def verdict_text(document: Mapping[str, Any]) -> str:
    """Return the text of a document of ``Judgement.as_mapping``."""
    outcome = document["outcome"].replace("_", " ")
    title = f"{document['kernel']['name']}: {outcome} (stage: {document['stage']})"
    report = (
        "\n" + textwrap.indent(document["report"], "  ") if document["report"] else ""
    )
    return printable(failures.format_report(title + report, _rows(document)))


def kernel_argument(document: Mapping[str, Any]) -> str:
    """Return the kernel as FILE.py:KERNEL, the form that a command takes.

    The author of a candidate also names its file, so unprintable characters become spaces.
    """
    return one_line(f"{document['kernel']['file']}:{document['kernel']['name']}")


def replay_of(document: Mapping[str, Any]) -> str:
    """Return the shell line that judges the smallest case again; empty without a case."""
    if document["case"] is None:
        return ""
    case = json.dumps(document["case"], separators=(",", ":"))
    names = [kernel_argument(document), document["test"]]
    return shlex.join(["difftest", "verdict", *names, "--case", case])


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "why", "" if document["report"] else document["reason"]
    yield "judge again", replay_of(document)
    for row in document["findings"]:
        if row["happened"] in document["report"]:  # the report has the whole finding
            continue
        at = ", ".join(
            f"{relative_path(place['file'])}:{place['line']}"
            for place in row["locations"][:1]
        )
        yield (
            row["severity"],
            f"{at + ': ' if at else ''}{row['happened']} [{row['id']}]",
        )
    for row in document["coverage"]["missed"]:
        yield (
            "not reached",
            f"{row['file']}:{row['line']}: {row['what']}: {row['source']}",
        )
    yield from _measures(document)
    for note in document["notes"]:
        yield "note", note


def _measures(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    evidence = document["evidence"]
    time = document["time"]
    names = ("cases", "decided", "rejections", "inconclusive", "elements", "nonfinite")
    counts = [f"{name}: {evidence[name]:,}" for name in names if evidence[name]]
    sizes = evidence["sizes"]
    if sizes["of"]:
        counts.append(f"sizes: {sizes['judged']:,} of {sizes['of']:,}")
    yield "evidence", ", ".join(counts)
    yield "allowed", ", ".join(evidence["allowed"])
    yield "seed", str(document["seed"])
    if time is not None:
        span = f"predicted; {time['low_us']:.1f} to {time['high_us']:.1f}"
        limit = f"limited by {time['limited_by']}\nfor {time['case']}"
        yield "time", f"{time['predicted_us']:.1f} us ({span}), {limit}"
    for row in document["memory"]:
        peak = f"{row['needed']:,} of {row['limit']:,} bytes a partition at the peak"
        yield row["memory"], f"{peak} ({row['needed'] / row['limit']:.0%})"
    yield "missing", ", ".join(document["limits"].get("missing", ()))
    yield "reward", f"{document['reward']['total']:.3f}"


Document = Mapping[str, Any]
BROKEN = (6, 7)
"""Exit codes of a kernel or a test that crashes. JUnit calls these errors, not failures."""
FINDING = 8
"""The exit code of a kernel that agrees but has a finding of a chosen severity."""
ANY = "any"
SEVERITIES = ("warning", "error")
CLASSES = (
    *(member.value for member in Outcome if member is not Outcome.AGREES),
    ANY,
    *SEVERITIES,
)
"""The values of --fail-on: an outcome, any outcome, or the least severity of a finding."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_forms(
    files: Mapping[str, Path],
    documents: Sequence[Document],
    judgements: Sequence[Judgement] = (),
) -> None:
    """Write the requested forms to files, by the names of :data:`FORMS`."""
    for form, file in files.items():
        text = FORMS[form](documents, judgements)
        write_file(file, text)
        if form == "markdown" and (summary := os.environ.get(SUMMARY)):
            with open(summary, "a", encoding="utf-8") as more:
                more.write(text)


def exit_code(documents: Iterable[Document], chosen: Sequence[str]) -> int:
    """Return the lowest exit code of the verdicts of a chosen class; 0 if no verdict is."""
    least = min(
        (SEVERITIES.index(word) for word in SEVERITIES if word in chosen), default=2
    )
    codes = set()
    for document in documents:
        code = document["exit_code"]
        if code and (ANY in chosen or document["outcome"] in chosen):
            codes.add(code)
        elif any(
            finding["severity"] in SEVERITIES[least:]
            for finding in document["findings"]
        ):
            codes.add(FINDING)
    return min(codes, default=0)


def junit_text(documents: Sequence[Document]) -> str:
    """Return a suite in JUnit's XML, with a test for each kernel."""
    bad = [
        document["exit_code"] in BROKEN
        for document in documents
        if document["exit_code"]
    ]
    counts = {
        "tests": len(documents),
        "failures": bad.count(False),
        "errors": bad.count(True),
    }
    seconds = sum(document["seconds"] for document in documents)
    suite = _element("testsuite", None, name=FORMAT, **counts, skipped=0, time=seconds)
    for document in documents:
        names = {"classname": document["test"], "name": kernel_argument(document)}
        test = _element("testcase", suite, **names, time=document["seconds"])
        properties = _element("properties", test)
        for name in ("outcome", "stage", "seed"):
            _element("property", properties, name=name, value=document[name])
        if document["exit_code"]:
            kind = "error" if document["exit_code"] in BROKEN else "failure"
            element = _element(
                kind, test, type=document["outcome"], message=document["reason"]
            )
            element.text = _NO_XML.sub("?", verdict_text(document))
    return ElementTree.tostring(suite, "unicode", xml_declaration=True) + "\n"


def _element(
    tag: str, above: ElementTree.Element | None, **values: Any
) -> ElementTree.Element:
    texts = {name: _NO_XML.sub("?", str(value)) for name, value in values.items()}
    if above is None:
        return ElementTree.Element(tag, texts)
    return ElementTree.SubElement(above, tag, texts)


def session_of(
    documents: Sequence[Document], judgements: Sequence[Judgement] = ()
) -> dict[str, Any]:
    """Return the document that :mod:`difftest.testing.report` renders as a page or Markdown."""
    session: dict[str, list[Any]] = {"kernels": [], "not_reached": [], "tests": []}
    for number, document in enumerate(documents):
        name = kernel_argument(document)
        evidence = document["evidence"]
        counts = {count.name: evidence[count.name] for count in fields(Counts)}
        session["kernels"].append({"kernel": name, "backend": "embedded", **counts})
        missed = [
            {**place, "kernels": [name]} for place in document["coverage"]["missed"]
        ]
        session["not_reached"] += missed
        session["tests"].append(
            _test_of(document, name, list(judgements[number : number + 1]))
        )
    return {
        **session,
        "versions": documents[0]["versions"] if documents else {},
        "backends": [{"name": "embedded", "description": CandidateBackend.description}],
        "inconclusive": [],
        "not_collected": [],
        "launches": [],
        "left_out": [],
        "exit_code": max((document["exit_code"] for document in documents), default=0),
    }


def _test_of(
    verdict: Document, name: str, judgements: Sequence[Judgement]
) -> dict[str, Any]:
    details: dict[str, Any] = {"failure": None, "performance": []}
    details["hazards"] = [{**finding, "where": []} for finding in verdict["findings"]]
    for judgement in judgements:
        if judgement.failure is not None:
            shown = failure_document(judgement.failure)
            details["failure"] = {**shown, "kernel": name, "again": replay_of(verdict)}
        if judgement.largest is not None:
            shown = performance_document(*judgement.largest) or {}
            details["performance"] = [{**shown, "kernel": name}] if shown else []
    message = f"{name}: {verdict['outcome'].replace('_', ' ')}: {verdict['reason']}"
    test = {
        "id": message,
        "outcome": verdict["outcome"],
        "kernels": [name],
        "details": details,
    }
    if verdict["exit_code"]:
        return {**test, "message": message, "failure": verdict_text(verdict)}
    return test


FORMS: dict[str, Callable[[Sequence[Document], Sequence[Judgement]], str]] = {
    "json": lambda documents, _: json.dumps(documents[0], indent=1) + "\n",
    "junit": lambda documents, _: junit_text(documents),
    "markdown": lambda documents, _: markdown_text(session_of(documents)),
    "html": lambda documents, judgements: page_text(session_of(documents, judgements)),
}
