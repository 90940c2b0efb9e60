"""Render the document of a session as one self-contained page of HTML, and as Markdown.

The page needs jinja2, the extra ``report``. The Markdown is for comments and GitHub's summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from difftest.simulator.errors import relative_path
from difftest.testing.report.error_map import legend, png

TEMPLATE = "page.html.j2"
MOST = 20
"""The most failures in full, and the most missed places: GitHub cuts a summary at 1 MiB."""
LINES = 40
"""The last lines that are shown of a failure without a report."""
Document = Mapping[str, Any]


def page_text(document: Document) -> str:
    """Return the page of a session."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.filters |= {"near": relative_path, "png": png, "legend": legend}
    template = environment.get_template(TEMPLATE)
    others = [test for test in document["tests"] if not test.get("kernels")]
    return template.render(
        document=document, sections=sections(document), others=others
    )


def sections(document: Document) -> list[dict[str, Any]]:
    """Return the section of each kernel for a page and a summary, failed kernels first."""
    names = {row["kernel"] for row in document["kernels"]}
    names |= {name for test in document["tests"] for name in test.get("kernels", ())}
    rows = [_section(document, name) for name in sorted(names)]
    return sorted(rows, key=lambda section: not section["failed"])


def _section(document: Document, name: str) -> dict[str, Any]:
    tests = [test for test in document["tests"] if name in test.get("kernels", ())]
    failed = [
        (test, test["details"].get("failure")) for test in tests if "failure" in test
    ]
    failures = [test for test, by in failed if by is None or by["kernel"] == name]
    found = (hazard for test in tests for hazard in test["details"].get("hazards", ()))
    hazards = {(hazard["id"], hazard["happened"]): hazard for hazard in found}
    return {
        "name": name,
        "anchor": re.sub(r"\W+", "-", name).strip("-"),
        "counts": [row for row in document["kernels"] if row["kernel"] == name],
        "not_reached": [
            row for row in document["not_reached"] if name in row["kernels"]
        ],
        "tests": tests,
        "failures": failures,
        "failed": bool(failures),
        "hazards": list(hazards.values()),
        "performance": _chosen_predictions(tests, name),
    }


def _chosen_predictions(tests: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the predictions for failures, else for the spec's examples, else for drawn cases."""
    pairs = [
        ("same_as" in test, "failure" not in test, not test["id"].endswith("]"), row)
        for test in tests
        for row in test["details"].get("performance", ())
        if row["kernel"] == name
    ]
    least = min((rank for *rank, _ in pairs), default=[])
    return [row for *rank, row in pairs if rank == least]


def markdown_text(document: Document) -> str:
    """Return a table of the kernels, the reports of failures, and the missed branches."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    kernels = sections(document)
    failed = [test for test in document["tests"] if "failure" in test]
    bugs = [test for test in failed if "same_as" not in test]
    yield "## Kernels against their references"
    yield ""
    backends = (
        ", ".join(backend["description"] for backend in document["backends"])
        or "no backend"
    )
    tests = len(document["tests"])
    yield f"{tests - len(failed)} of {tests} tests passed, on {backends}."
    if kernels:
        yield ""
        yield "| | kernel | backend | cases | elements | bit for bit | rejections |"
        yield "|---|---|---|--:|--:|--:|--:|"
    for kernel in kernels:
        mark = "❌" if kernel["failed"] else "✅"
        for row in kernel["counts"]:
            yield (
                f"| {mark} | {_cell(kernel['name'])} | {row['backend']} | {row['cases']:,} | "
                f"{row['elements']:,} | {row['exact']:,} | {row['rejections']:,} |"
            )
    for test in bugs[:MOST]:
        yield from _failure(test)
    if len(bugs) > MOST:
        yield f"\nand {len(bugs) - MOST} more failures"
    for group in document["left_out"]:
        yield f"\nLeft out on {group['backend']}: {', '.join(map(_code, group['kernels']))}.\n"
        yield from _fenced(group["reason"])
    missed = document["not_reached"]
    if missed:
        yield "\n<details><summary>Branches and loops that no case took</summary>\n"
        yield from (f"- {_place(place)} {place['what']}" for place in missed[:MOST])
        if len(missed) > MOST:
            yield f"- and {len(missed) - MOST} more"
        yield "\n</details>"


def _failure(test: Document) -> Iterator[str]:
    failure = test.get("details", {}).get("failure")
    yield f"\n### ❌ {_cell(test['message'])}\n"
    if test["id"] != test["message"]:
        yield f"{_code(test['id'])}\n"
    if failure is None:
        yield from _fenced("\n".join(test["failure"].splitlines()[-LINES:]))
        return
    also = [("also wrong", test["also_wrong"])] if test.get("also_wrong") else []
    said = [
        f"{name and name + ':':<13}{text}" for name, text in [*failure["rows"], *also]
    ]
    yield from _fenced("\n".join([f"{failure['kernel']} {failure['title']}", *said]))
    for where in failure["where"]:
        yield f"{where['why']}: {_place(where)}\n"
        yield from _fenced(
            "\n".join(f"{n:>4} {text}" for n, text in where["lines"]), "python"
        )
    if failure["nearest"]:
        yield f"Nearest case that agrees: {_code(failure['nearest'])}\n"
    if failure["again"]:
        yield from _fenced(failure["again"], "sh")
    for text in failure["beside"]:
        yield from _fenced(text)


def _place(line: Mapping[str, Any]) -> str:
    return _code(f"{relative_path(line['file'])}:{line['line']}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


def _fenced(text: str, language: str = "") -> Iterator[str]:
    fence = "~~~~"
    yield f"{fence}{language}\n{text.replace(fence, '~~~')}\n{fence}\n"
