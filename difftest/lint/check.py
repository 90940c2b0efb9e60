"""Reads a file with every rule that holds for an SDK and a machine."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from difftest.analysis.silence import Silencing, silencing_in
from difftest.lint.rule import RULES, Rule
from difftest.lint.sdk import Release
from difftest.lint.source import Source, Spot

_RULES = ("housekeeping", "language", "tracing", "placed", "hazards", "upgrade")
_TRACE_RULES = ("instructions", "accesses", "device_loops")
"""The modules that have rules."""


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One place where a rule is broken; lines and columns from 1, as editors count them."""

    path: str
    line: int
    column: int
    id: str
    happened: str
    end_line: int
    end_column: int

    @property
    def rule(self) -> Rule:
        return rules()[self.id]

    @property
    def text(self) -> str:
        """What happened, the rule and the remedy, in one line."""
        return f"{self.happened}: {self.rule.rule}; {self.rule.remedy}"


@cache
def rules() -> dict[str, Rule]:
    """All rules by id."""
    for name in _RULES + _TRACE_RULES:
        import_module(f"difftest.lint.{name}")
    return dict(sorted(RULES.items()))


def lint_file(
    path: Path, sdk: Release | None = None, target: str | None = None, ids: Collection[str] = ()
) -> list[Diagnostic]:
    """Read one file; in its own order.

    Parameters
    ----------
    sdk : None for the newest that the file's dialect was written for.
    target : a machine; None for the rules of all.
    ids : of rules, if not all are meant.

    Raises
    ------
    SyntaxError : the file is no Python. OSError, UnicodeDecodeError : it cannot be read.
    """
    source = Source(path, path.read_text(encoding="utf-8"))
    return lint(source, sdk or source.sdk, target, ids)


def lint(
    source: Source, sdk: Release, target: str | None = None, ids: Collection[str] = ()
) -> list[Diagnostic]:
    """Read a file that is parsed; parameters as of :func:`lint_file`."""
    active = [
        one for id, one in rules().items() if (not ids or id in ids) and one.holds(sdk, target)
    ]
    comments = silencing_in(source.text)
    findings, used = [], set()
    for one in _broken(source, sdk, active):
        silencing = {
            (comment, one.id) for comment in comments if comment.silences(one.id, one.line)
        }
        used |= silencing
        if not silencing:
            findings.append(one)
    asked = {one.id for one in active if not one.reads_traces}
    idle = [
        _idle(source, comment, id)
        for comment in comments
        for id in comment.ids
        if (id in asked or id not in rules()) and (comment, id) not in used
    ]
    return sorted({*findings, *idle})


def _broken(source: Source, sdk: Release, active: Iterable[Rule]) -> Iterator[Diagnostic]:
    by_node: dict[type[ast.AST], list[Rule]] = {}
    for one in active:
        for kind in one.nodes:
            by_node.setdefault(kind, []).append(one)
    for node, place in source.nodes(sdk):
        for one in by_node.get(type(node), ()):
            yield from _refusals(one, node, place)


def _refusals(rule: Rule, node: ast.AST, place: Spot) -> Iterator[Diagnostic]:
    for at, happened in rule.check(node, place):
        line, column = getattr(at, "lineno", 1), getattr(at, "col_offset", 0) + 1
        yield Diagnostic(
            path=str(place.source.path),
            line=line,
            column=column,
            id=rule.id,
            happened=happened,
            end_line=getattr(at, "end_lineno", None) or line,
            end_column=(getattr(at, "end_col_offset", None) or column - 1) + 1,
        )


def _idle(source: Source, comment: Silencing, id: str) -> Diagnostic:
    """A comment that silenced nothing (the rule of ``housekeeping.py``)."""
    line, column = comment.line, comment.column
    happened = f"ignore[{id}] silences nothing"
    return Diagnostic(str(source.path), line, column, "NKX001", happened, line, column + 1)
