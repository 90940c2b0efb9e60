"""The document of a session as one page of HTML: no server, and nothing from elsewhere.

Needs jinja2, the extra ``report``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from difftest.report.picture import legend, png

TEMPLATE = "page.html.j2"
Document = Mapping[str, Any]


def page_text(document: Document) -> str:
    """The page of a session."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.filters |= {"near": near, "png": png, "legend": legend}
    template = environment.get_template(TEMPLATE)
    others = [one for one in document["tests"] if not one.get("kernels")]
    return template.render(document=document, sections=sections(document), others=others)


def near(file: str) -> str:
    """A file from the working directory, if it lies below it."""
    below = os.path.relpath(file) if os.path.isabs(file) else file
    return file if below.startswith(os.pardir) else below


def sections(document: Document) -> list[dict[str, Any]]:
    """What a page and a summary say of each kernel, those that failed first."""
    names = {row["kernel"] for row in document["kernels"]}
    names |= {name for test in document["tests"] for name in test.get("kernels", ())}
    found = [_section(document, name) for name in sorted(names)]
    return sorted(found, key=lambda one: not one["failed"])


def _section(document: Document, name: str) -> dict[str, Any]:
    tests = [one for one in document["tests"] if name in one.get("kernels", ())]
    failures = [one for one in tests if "failure" in one and _is_of(one, name)]
    return {
        "name": name,
        "anchor": re.sub(r"\W+", "-", name).strip("-"),
        "counts": [one for one in document["kernels"] if one["kernel"] == name],
        "not_reached": [one for one in document["not_reached"] if name in one["kernels"]],
        "tests": tests,
        "failures": failures,
        "failed": bool(failures),
        "hazards": _once(one for test in tests for one in test["details"].get("hazards", ())),
        "performance": _asked(tests, name),
    }


def _is_of(test: Mapping[str, Any], name: str) -> bool:
    """Whether a failing test failed by this kernel, of several."""
    failure = test["details"].get("failure")
    return failure is None or failure["kernel"] == name


def _once(several: Any) -> list[Any]:
    """Each finding of a kernel's tests, once."""
    return list({(one["id"], one["happened"]): one for one in several}.values())


def _asked(tests: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Predictions: of what failed, else of the spec's examples, else of what was drawn."""
    pairs = [
        ("same_as" in test, "failure" not in test, not test["id"].endswith("]"), one)
        for test in tests
        for one in test["details"].get("performance", ())
        if one["kernel"] == name
    ]
    least = min((rank for *rank, _ in pairs), default=[])
    return [one for *rank, one in pairs if rank == least]
