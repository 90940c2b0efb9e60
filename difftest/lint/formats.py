"""Diagnostics as text, JSON, GitHub's annotations, and SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from difftest.analysis.finding import Severity
from difftest.lint.check import Diagnostic, rules
from difftest.lint.rule import Confidence, Rule

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}

_PRECISION = {
    Confidence.DOCUMENTED: "very-high",
    Confidence.RECORDED: "high",
    Confidence.INFERRED: "medium",
}
"""What GitHub calls a rule's confidence, by which it orders alerts."""


def as_text(found: Sequence[Diagnostic]) -> str:
    """``FILE:line:column: ID text``, as ruff writes it."""
    return "\n".join(f"{one.path}:{one.line}:{one.column}: {one.id} {one.text}" for one in found)


def as_json(found: Sequence[Diagnostic]) -> str:
    """A list of objects."""
    return json.dumps([_mapping(one) for one in found], indent=1)


def as_github(found: Sequence[Diagnostic]) -> str:
    """Workflow commands, which GitHub shows at the lines of a pull request."""
    return "\n".join(
        f"::{_COMMANDS[one.rule.group.severity]} file={one.path},line={one.line},"
        f"col={one.column},endLine={one.end_line},title={one.id}::{_escaped(one.text)}"
        for one in found
    )


def as_sarif(found: Sequence[Diagnostic]) -> str:
    """A log of SARIF that declares every rule, with a fingerprint that outlives moved lines."""
    ids = list(rules())
    run = {
        "tool": {
            "driver": {
                "name": "difftest lint",
                "rules": [_declared(one) for one in rules().values()],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, ids.index(one.id)) for one in found],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=1)


FORMATS: dict[str, Callable[[Sequence[Diagnostic]], str]] = {
    "text": as_text,
    "json": as_json,
    "sarif": as_sarif,
    "github": as_github,
}


def _mapping(one: Diagnostic) -> dict[str, Any]:
    return {
        "file": one.path,
        "line": one.line,
        "column": one.column,
        "end_line": one.end_line,
        "end_column": one.end_column,
        "id": one.id,
        "group": one.rule.group.value,
        "severity": one.rule.group.severity.value,
        "happened": one.happened,
        "rule": one.rule.rule,
        "remedy": one.rule.remedy,
    }


def _declared(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.rule},
        "help": {"text": rule.remedy, "markdown": rule.page},
        "defaultConfiguration": {"level": _LEVELS[rule.group.severity]},
        "properties": {"tags": [rule.group.value], "precision": _PRECISION[rule.confidence]},
    }


def _result(one: Diagnostic, index: int) -> dict[str, Any]:
    region = {
        "startLine": one.line,
        "startColumn": one.column,
        "endLine": one.end_line,
        "endColumn": one.end_column,
    }
    place = {"artifactLocation": {"uri": Path(one.path).as_posix()}, "region": region}
    said = f"{one.id}\0{Path(one.path).as_posix()}\0{one.happened}"
    return {
        "ruleId": one.id,
        "ruleIndex": index,
        "level": _LEVELS[one.rule.group.severity],
        "message": {"text": one.text},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"kernel/v1": hashlib.sha256(said.encode()).hexdigest()[:32]},
    }


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
