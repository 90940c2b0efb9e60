"""Reads a file with every rule that holds for an SDK and a machine."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from difftest.lint.rule import RULES, Rule
from difftest.lint.sdk import Release
from difftest.lint.silence import Ignored, ignored_in
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
    comments = ignored_in(source.text)
    findings = [one for one in _broken(source, sdk, active) if not _is_ignored(one, comments)]
    return sorted(set(findings) | set(_idle(source, comments, active)))


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


def _is_ignored(one: Diagnostic, comments: Iterable[Ignored]) -> bool:
    """Whether a comment at its statement silences it; the comment is then marked as used."""
    silencing = [comment for comment in comments if comment.silences(one.id, one.line)]
    for comment in silencing:
        comment.used.add(one.id)
    return bool(silencing)


def _idle(
    source: Source, comments: Iterable[Ignored], active: Iterable[Rule]
) -> Iterator[Diagnostic]:
    """A diagnostic of each id in a comment that silenced nothing, if its rule was asked."""
    asked = {one.id for one in active if not one.reads_traces}
    for comment in comments:
        for id in sorted(comment.ids - comment.used):
            if id in asked or id not in rules():
                column = comment.column
                happened = f"ignore[{id}] silences nothing"
                yield Diagnostic(
                    str(source.path), comment.line, column, "NKX001", happened,
                    comment.line, column + 1,
                )  # fmt: skip
