"""A verdict as text for people: the same object, rendered."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

_LABEL = 13
_CONTROL = re.compile("[^\n\t\x20-\x7e\xa0-\uffff]")


def text_of(document: Mapping[str, Any]) -> str:
    """The text of what :meth:`~difftest.verdict.judgement.Judgement.as_mapping` gives."""
    rows = [_row(label, text) for label, text in _rows(document) if text]
    return "\n".join([_title(document), *rows])


def place_of(document: Mapping[str, Any]) -> str:
    """The kernel as a command takes it, FILE.py:KERNEL."""
    return f"{document['kernel']['file']}:{document['kernel']['name']}"


def replay_of(document: Mapping[str, Any]) -> str:
    """The shell line that judges the smallest case again; empty without one."""
    if document["case"] is None:
        return ""
    case = json.dumps(document["case"], separators=(",", ":"))
    names = [place_of(document), document["test"]]
    return shlex.join(["difftest", "verdict", *names, "--case", case])


def _title(document: Mapping[str, Any]) -> str:
    outcome = document["outcome"].replace("_", " ")
    return f"{document['kernel']['name']}: {outcome} (stage: {document['stage']})"


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield ("", document["report"]) if document["report"] else ("why", document["reason"])
    yield "judge again", replay_of(document)
    for one in document["findings"]:
        at = ", ".join(f"{place['file']}:{place['line']}" for place in one["locations"][:1])
        yield one["severity"], f"{at + ': ' if at else ''}{one['happened']} [{one['id']}]"
    for one in document["coverage"]["missed"]:
        yield "not reached", f"{one['file']}:{one['line']}: {one['what']}: {one['source']}"
    yield from _measures(document)
    for note in document["notes"]:
        yield "note", note


def _measures(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    evidence, time = document["evidence"], document["time"]
    yield (
        "evidence",
        f"{evidence['decided']} of {evidence['cases']} cases decided, {evidence['elements']} "
        f"elements compared, {evidence['nonfinite']} prove nothing; seed {document['seed']}",
    )
    if time is not None:
        yield (
            "time",
            f"{time['predicted_us']:.1f} us (predicted; {time['low_us']:.1f} to "
            f"{time['high_us']:.1f}) for {time['case']}, limited by {time['limited_by']}",
        )
    for one in document["memory"]:
        share = one["needed"] / one["limit"]
        yield (
            one["memory"],
            f"{one['needed']:,} of {one['limit']:,} bytes a partition at the peak ({share:.0%})",
        )
    yield "missing", ", ".join(document["limits"].get("missing", ()))
    yield "reward", f"{document['reward']['total']:.3f}"


def _row(label: str, text: str) -> str:
    text = _CONTROL.sub("?", text)
    if not label:
        return textwrap.indent(text, "  ")
    body = textwrap.indent(text, " " * _LABEL).lstrip()
    return textwrap.indent(f"{label + ':':<{_LABEL}}{body}", "  ")
