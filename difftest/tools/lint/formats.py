"""Diagnostics as text, JSON, GitHub's annotations, and SARIF 2.1.0."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from difftest.support.csv_rows import csv_rows
from difftest.support.github import workflow_command
from difftest.support.markdown import table_lines
from difftest.support.wording import count_of
from difftest.tools.lint.check import Diagnostic, rules
from difftest.tools.lint.files import Level, Levels
from difftest.tools.lint.rule import SDKS, Confidence, Rule
from difftest.tools.lint.source import Fix, TextRange

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
SEVERITIES = {Level.DENY: "error", Level.WARN: "warning", Level.ALLOW: "none"}
"""The names of levels in SARIF and GitHub annotations."""

_PRECISION = {
    Confidence.DOCUMENTED: "very-high",
    Confidence.RECORDED: "high",
    Confidence.INFERRED: "medium",
    Confidence.DISPUTED: "medium",
    Confidence.ANNOUNCED: "medium",
}
"""The precision in SARIF for each confidence. GitHub orders alerts by precision."""


def as_text(diagnostics: Sequence[Diagnostic], levels: Levels) -> str:
    """Return lines ``FILE:line:column: ID text``, as ruff does. ``[*]`` marks safe fixes."""
    lines = []
    for entry in diagnostics:
        line = f"{entry.path}:{entry.line}:{entry.region.column}: {entry.id} "
        if entry.fix and entry.fix.is_safe:
            line += "[*] "
        if levels.of(entry.rule) is Level.WARN:
            line += "warning: "
        lines.append(line + entry.text)
    return "\n".join(lines)


def as_json(diagnostics: Sequence[Diagnostic], levels: Levels) -> str:
    """Return a JSON list of objects. ``fix`` edits the place only and never rewrites the file."""
    return json.dumps(
        [_mapping(diagnostic, levels) for diagnostic in diagnostics], indent=1
    )


def as_github(diagnostics: Sequence[Diagnostic], levels: Levels) -> str:
    """Return workflow commands, which GitHub shows at the lines of a pull request."""
    return "\n".join(
        workflow_command(
            SEVERITIES[levels.of(entry.rule)],
            entry.text,
            file=entry.path,
            line=entry.line,
            col=entry.region.column,
            endLine=entry.region.end_line,
            title=entry.id,
        )
        for entry in diagnostics
    )


def as_sarif(diagnostics: Sequence[Diagnostic], levels: Levels) -> str:
    """Return a SARIF log that declares every rule. Fingerprints are stable when lines move."""
    ids = list(rules())
    counts: Counter[str] = Counter()
    results = []
    for entry in diagnostics:
        text = f"{entry.id}\0{Path(entry.path).as_posix()}\0{entry.happened}"
        results.append(
            _result(entry, ids.index(entry.id), levels, f"{text}\0{counts[text]}")
        )
        counts[text] += 1
    run = {
        "tool": {
            "driver": {
                "name": "difftest lint",
                "rules": [_declared(rule, levels) for rule in rules().values()],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=1)


FORMATS: dict[str, Callable[[Sequence[Diagnostic], Levels], str]] = {
    "text": as_text,
    "json": as_json,
    "sarif": as_sarif,
    "github": as_github,
}


def format_summary(diagnostics: Sequence[Diagnostic], levels: Levels) -> str:
    """Return the numbers of findings, of denied findings, and of available fixes as text."""
    if not diagnostics:
        return "nothing found"
    count = len(diagnostics)
    denied = len(levels.denied(diagnostics))
    text = f"{count_of(count, 'finding')}, {denied} denied"
    fixes = Counter(
        diagnostic.fix.is_safe for diagnostic in diagnostics if diagnostic.fix
    )
    if fixes[True]:
        text += f"; [*] {fixes[True]} fixable with --fix"
    if fixes[False]:
        text += f"; {fixes[False]} more with --fix --unsafe-fixes"
    return text


def _mapping(diagnostic: Diagnostic, levels: Levels) -> dict[str, Any]:
    return {
        "file": diagnostic.path,
        **diagnostic.region._asdict(),
        "id": diagnostic.id,
        "group": diagnostic.rule.group.value,
        "level": levels.of(diagnostic.rule).value,
        "happened": diagnostic.happened,
        "rule": diagnostic.rule.rule,
        "remedy": diagnostic.rule.remedy,
        "fix": _fix(diagnostic.place_fix) if diagnostic.place_fix else None,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    edits = [{**edit.region._asdict(), "text": edit.text} for edit in fix.edits]
    return {"title": fix.title, "safe": fix.is_safe, "edits": edits}


def _declared(rule: Rule, levels: Levels) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.rule},
        "help": {"text": rule.remedy, "markdown": rule.page},
        "defaultConfiguration": {"level": SEVERITIES[levels.of(rule)]},
        "properties": {
            "tags": [rule.group.value],
            "precision": _PRECISION[rule.confidence],
        },
    }


def _result(
    diagnostic: Diagnostic, index: int, levels: Levels, fingerprint: str
) -> dict[str, Any]:
    artifact = {"uri": Path(diagnostic.path).as_posix()}
    place = {"artifactLocation": artifact, "region": _region(diagnostic.region)}
    result = {
        "ruleId": diagnostic.id,
        "ruleIndex": index,
        "level": SEVERITIES[levels.of(diagnostic.rule)],
        "message": {"text": diagnostic.text},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {
            "kernel/v1": hashlib.sha256(fingerprint.encode()).hexdigest()[:32]
        },
    }
    fix = diagnostic.place_fix
    if fix:
        changes = [
            {
                "deletedRegion": _region(edit.region),
                "insertedContent": {"text": edit.text},
            }
            for edit in fix.edits
        ]
        result["fixes"] = [
            {
                "description": {"text": fix.title},
                "artifactChanges": [
                    {"artifactLocation": artifact, "replacements": changes}
                ],
                "properties": {"safe": fix.is_safe},
            }
        ]
    return result


def _region(place: TextRange) -> dict[str, int]:
    return dict(
        zip(("startLine", "startColumn", "endLine", "endColumn"), place, strict=True)
    )


_COLUMNS = (
    "rule",
    "what a kernel does",
    "looks at",
    "SDK",
    "machines",
    "known",
    "our simulator",
    "AWS's simulator",
    "compiler",
    "sources",
)
_HEAD = """# The linter's rules

`difftest lint --explain ID` shows one rule with a wrong and a right kernel, as below.

"""
_REFUSALS = """
## Code that the compiler rejects

Code that the simulator refuses needs no rule.

"""
REFUSALS = csv_rows(Path(__file__).parent / "data/refusals.csv")
"""Code that the compiler was observed to reject: machines, rule ids, the simulator's behavior, and
the reason if no rule checks for it. Source: records of its answers, most of them from
foxl-ai/kiln docs/neuron-notes.md, SDK 2.32.
"""


def rules_page() -> str:
    """Return the page of rules: their table, the table of refusals, and each rule's page."""
    rows = [list(map(_cell, _row(rule))) for rule in rules().values()]
    page = "\n".join([_HEAD.strip(), "", *table_lines(_COLUMNS, rows), _REFUSALS])
    head = ("what", "machines", "our simulator", "rule")
    page += "\n".join([*table_lines(head, map(_refusal_row, REFUSALS)), ""])
    for id, rule in rules().items():
        page += f'\n<a id="{id}"></a>\n\n#{rule.page}'
    return page


def _refusal_row(row: Mapping[str, str]) -> tuple[str, ...]:
    links = ", ".join(map(_link, row["rules"].split()))
    rule = links or row["reason"] or "not needed"
    return _cell(row["what"]), row["machines"], row["simulator"], rule


def _row(rule: Rule) -> tuple[str, ...]:
    versions = [sdk.version for sdk in SDKS.values() if rule.holds(sdk, None)]
    return (
        _link(rule.id),
        rule.title,
        "a trace" if rule.reads_traces else "source",
        f"{versions[0]} to {versions[-1]}",
        ", ".join(sorted(rule.targets)) or "all",
        rule.confidence.value,
        rule.words.get("Our simulator", "runs it"),
        rule.words.get("AWS's simulator", "runs it"),
        rule.words.get("Compiler", "refuses it"),
        rule.words["Sources"],
    )


def _link(id: str) -> str:
    return f"[{id}](#{id})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("{", "&#123;").replace("[NCC", "\\[NCC")
