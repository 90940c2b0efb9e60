"""The document of a session as Markdown, for GitHub's step summary and for comments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from difftest.report.page import near, sections

MOST = 20
"""Failures that are told whole, and places that no case took: GitHub cuts a summary at 1 MiB."""
LINES = 40
"""Of the text of a failure that has no report of its own."""


def markdown_text(document: Mapping[str, Any]) -> str:
    """A table of the kernels, each failure with its report, and what no case reached."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    kernels = sections(document)
    failed = [one for one in document["tests"] if "failure" in one]
    bugs = [one for one in failed if "same_as" not in one]
    yield "## Kernels against their references"
    yield ""
    backends = ", ".join(one["description"] for one in document["backends"]) or "no backend"
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
    missed = document["not_reached"]
    if missed:
        yield "\n<details><summary>Branches and loops that no case took</summary>\n"
        yield from (f"- {_place(one)} {one['what']}" for one in missed[:MOST])
        if len(missed) > MOST:
            yield f"- and {len(missed) - MOST} more"
        yield "\n</details>"


def _failure(test: Mapping[str, Any]) -> Iterator[str]:
    failure = test.get("details", {}).get("failure")
    yield f"\n### ❌ {_cell(test['message'])}\n"
    if test["id"] != test["message"]:
        yield f"{_code(test['id'])}\n"
    if failure is None:
        yield from _fenced("\n".join(test["failure"].splitlines()[-LINES:]))
        return
    also = [("also wrong", test["also_wrong"])] if test.get("also_wrong") else []
    said = [f"{name and name + ':':<13}{text}" for name, text in [*failure["rows"], *also]]
    yield from _fenced("\n".join([f"{failure['kernel']} {failure['title']}", *said]))
    for where in failure["where"]:
        yield f"{where['why']}: {_place(where)}\n"
        yield from _fenced("\n".join(f"{n:>4} {text}" for n, text in where["lines"]), "python")
    if failure["nearest"]:
        yield f"Nearest case that agrees: {_code(failure['nearest'])}\n"
    if failure["again"]:
        yield from _fenced(failure["again"], "sh")


def _place(line: Mapping[str, Any]) -> str:
    return _code(f"{near(line['file'])}:{line['line']}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


def _fenced(text: str, language: str = "") -> Iterator[str]:
    fence = "~~~~"
    yield f"{fence}{language}\n{text.replace(fence, '~~~')}\n{fence}\n"
