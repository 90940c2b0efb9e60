"""Render the document of a session as one self-contained page of HTML, and as Markdown.

The page needs jinja2, the extra ``report``. The Markdown is for comments and GitHub's summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from difftest.simulator.errors import relative_path
from difftest.support.markdown import cell, code_block, inline_code, table_lines
from difftest.testing.harness.error_map import legend, png

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
    """Return the section of one kernel."""
    tests = [test for test in document["tests"] if name in test.get("kernels", ())]
    failures = [test for test in tests if _has_failed(test, name)]
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
        "hazards": _hazards(tests),
        "performance": _chosen_predictions(tests, name),
    }


def _hazards(tests: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the hazards of some tests, each once."""
    hazards = {}
    for test in tests:
        for hazard in test["details"].get("hazards", ()):
            hazards[hazard["id"], hazard["happened"]] = hazard
    return list(hazards.values())


def _has_failed(test: Mapping[str, Any], kernel: str) -> bool:
    """Return whether a test of several kernels has failed by this one."""
    if "failure" not in test:
        return False
    failure = test["details"].get("failure")
    return failure is None or failure["kernel"] == kernel


def _chosen_predictions(tests: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the predictions for failures, else for the spec's examples, else for drawn cases."""
    groups: dict[tuple[bool, bool, bool], list[Any]] = {}
    for test in tests:
        is_drawn = not test["id"].endswith("]")
        rank = ("same_as" in test, "failure" not in test, is_drawn)
        for row in test["details"].get("performance", ()):
            if row["kernel"] == name:
                groups.setdefault(rank, []).append(row)
    return groups[min(groups)] if groups else []


def markdown_text(document: Document) -> str:
    """Return a table of the kernels, the reports of failures, and the missed branches."""
    return "\n".join(_markdown_lines(document)) + "\n"


def _markdown_lines(document: Document) -> Iterator[str]:
    """Yield the lines of the Markdown page."""
    tests = document["tests"]
    failed = [test for test in tests if "failure" in test]
    yield "## Kernels against their references"
    yield ""
    backends = ", ".join(backend["description"] for backend in document["backends"])
    passed = len(tests) - len(failed)
    yield f"{passed} of {len(tests)} tests passed, on {backends or 'no backend'}."
    yield from _table(sections(document))
    yield from _launches(document["launches"])
    yield from _bugs([test for test in failed if "same_as" not in test])
    for group in document["left_out"]:
        kernels = ", ".join(map(inline_code, group["kernels"]))
        yield f"\nLeft out on {group['backend']}: {kernels}.\n"
        yield code_block(group["reason"])
    yield from _missed_places(document["not_reached"])


def _table(kernels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of counts; nothing if there are no kernels."""
    if not kernels:
        return
    yield ""
    counts = ("cases", "elements", "exact", "rejections")
    rows = []
    for kernel in kernels:
        mark = "❌" if kernel["failed"] else "✅"
        for row in kernel["counts"]:
            numbers = [f"{row[count]:,}" for count in counts]
            rows.append((mark, cell(kernel["name"]), row["backend"], *numbers))
    names = ("", "kernel", "backend")
    titles = ("cases", "elements", "bit for bit", "rejections")
    yield from table_lines((*names, *titles), rows, len(titles))


def _launches(launches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the launches of tests that call kernels themselves; nothing if there are none."""
    if not launches:
        return
    yield "\nKernels that tests launched themselves, without a reference:\n"
    rows = [
        (cell(row["kernel"]), f"{row['launches']:,}", f"{len(row['hazards']):,}")
        for row in launches
    ]
    yield from table_lines(("kernel", "launches", "hazards"), rows, 2)
    for text in dict.fromkeys(text for row in launches for text in row["hazards"]):
        yield code_block(text)


def _missed_places(missed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the branches and loops that no case took, folded; nothing if there are none."""
    if not missed:
        return
    yield "\n<details><summary>Branches and loops that no case took</summary>\n"
    for place in missed[:MOST]:
        yield f"- {_place(place)} {place['what']}"
    if len(missed) > MOST:
        yield f"- and {len(missed) - MOST} more"
    yield "\n</details>"


def _bugs(bugs: Sequence[Document]) -> Iterator[str]:
    """Yield the reports of the first failures, one of each bug."""
    for test in bugs[:MOST]:
        yield from _failure(test)
    if len(bugs) > MOST:
        yield f"\nand {len(bugs) - MOST} more failures"


def _failure(test: Document) -> Iterator[str]:
    """Yield the report of a failed test, with its source lines and its command."""
    yield f"\n### ❌ {cell(test['message'])}\n"
    if test["id"] != test["message"]:
        yield f"{inline_code(test['id'])}\n"
    failure = test.get("details", {}).get("failure")
    if failure is None:
        yield code_block("\n".join(test["failure"].splitlines()[-LINES:]))
        return
    yield code_block("\n".join(_report_lines(test, failure)))
    for where in failure["where"]:
        yield f"{where['why']}: {_place(where)}\n"
        source = "\n".join(f"{number:>4} {text}" for number, text in where["lines"])
        yield code_block(source, "python")
    if failure["nearest"]:
        yield f"Nearest case that agrees: {inline_code(failure['nearest'])}\n"
    if failure["again"]:
        yield code_block(failure["again"], "sh")
    for text in failure["beside"]:
        yield code_block(text)


def _report_lines(test: Document, failure: Mapping[str, Any]) -> list[str]:
    """Return the lines of a report: its title and its rows."""
    lines = [f"{failure['kernel']} {failure['title']}"]
    rows = list(failure["rows"])
    if test.get("also_wrong"):
        rows.append(("also wrong", test["also_wrong"]))
    for name, text in rows:
        title = f"{name}:" if name else ""
        lines.append(f"{title:<13}{text}")
    return lines


def _place(line: Mapping[str, Any]) -> str:
    return inline_code(f"{relative_path(line['file'])}:{line['line']}")
