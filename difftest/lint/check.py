"""Reads a file with every rule that holds for an SDK and a machine."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module

from difftest.analysis.silence import Silencing, silencing_in
from difftest.lint.fix import Fix, TextRange
from difftest.lint.fixes import fix_of, fix_of_comment
from difftest.lint.rule import RULES, Rule
from difftest.lint.sdk import Release
from difftest.lint.source import Source, Spot

_SOURCE = ("housekeeping", "language", "tracing", "placed", "hazards", "upgrade", "performance")
for _name in (*_SOURCE, "instructions", "accesses", "device_loops"):  # which enter their rules
    import_module(f"difftest.lint.{_name}")


def _nothing() -> None:
    return None


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One place where a rule is broken; ``repair`` thinks of a fix."""

    path: str
    region: TextRange
    id: str
    happened: str
    repair: Callable[[], Fix | None] = field(default=_nothing, compare=False, repr=False)

    @property
    def line(self) -> int:
        """The first line, from 1."""
        return self.region.line

    @cached_property
    def fix(self) -> Fix | None:
        """What would mend it; None where only a person can."""
        return self.repair()

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
    return dict(sorted(RULES.items()))


def lint(
    source: Source, sdk: Release, target: str | None = None, ids: Collection[str] = ()
) -> list[Diagnostic]:
    """What breaks the rules of an SDK in a file; in its own order.

    Parameters
    ----------
    target : a machine; None for the rules of all.
    ids : of rules, if not all are meant.
    """
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
        region = place.source.region(*place.source.span(at))
        repair = partial(fix_of, rule.id, at, place)
        yield Diagnostic(str(place.source.path), region, rule.id, happened, repair)


def _idle(source: Source, comment: Silencing, id: str) -> Diagnostic:
    """A comment that silenced nothing (the rule of ``housekeeping.py``)."""
    line, column = comment.line, comment.column
    happened = f"ignore[{id}] silences nothing"
    region = TextRange(line, column, line, column + 1)
    repair = partial(fix_of_comment, source, comment, id)
    return Diagnostic(str(source.path), region, "NKX001", happened, repair)
