"""Report broken rules of rewritten statements as comments, and remove unused index definitions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import libcst as cst

from difftest.simulator.frontend.levels import GONE
from difftest.simulator.frontend.nki import isa, language
from difftest.tools.migration.calls import INSTRUCTIONS
from difftest.tools.migration.rules import (
    INSIDE,
    MASK,
    OPERATOR,
    PLATFORM,
    UNKNOWN_CALL,
    Rule,
)
from difftest.tools.migration.scope import Scope

COMMENT = "# difftest migrate: {}; {}"
SPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine)
TODAYS_MODULES = {"nl": language, "nisa": isa}


def rules_broken(node: cst.CSTNode, scope: Scope) -> list[Rule]:
    """Return the rules that a statement still breaks."""
    names = scope.names
    broken: list[Rule] = []
    whole = nodes(node)
    for part in _of_kind(whole, cst.Import, cst.ImportFrom):
        broken += names.rules_broken(part)
    for part in _of_kind(whole, cst.Attribute):
        broken += _of_name(names.of(part))
    for part in _of_kind(whole, cst.Call):
        broken += _of_call(part, names.of(part.func))
    for part in _of_kind(whole, cst.BinaryOperation, cst.UnaryOperation, cst.AugAssign):
        if any(_is_tile(side, scope) for side in part.children):
            broken.append(OPERATOR)
    return broken


def _is_tile(node: cst.CSTNode, scope: Scope) -> bool:
    """Return whether a node is a known tile or a part of it."""
    base = node.value if isinstance(node, cst.Subscript) else node
    return isinstance(base, cst.Name) and base.value in scope.tiles


def _of_name(name: str) -> Iterator[Rule]:
    module, *members = name.split(".")
    if name in GONE:
        yield GONE[name]
    elif module in TODAYS_MODULES and not hasattr(TODAYS_MODULES[module], members[0]):
        yield f"the current dialect does not have {name}", "see `difftest api`"


def _of_call(call: cst.Call, name: str) -> Iterator[Rule]:
    keywords = {argument.keyword.value for argument in call.args if argument.keyword}
    if name == "nki.jit" and "platform_target" in keywords:
        yield PLATFORM
    elif "mask" in keywords and name.startswith(("nl.", "nisa.")):
        yield MASK
    elif name == "nl.store":
        yield INSIDE
    elif "dst" not in keywords:
        yield from _without_dst(name)


def _without_dst(name: str) -> Iterator[Rule]:
    """Yield the rule that a call without ``dst`` breaks."""
    if name in INSTRUCTIONS and name != "nl.copy":
        yield INSIDE
    elif name.startswith("nisa.get_") or name.count(".") > 1:
        return  # a hardware query or a member of an enumeration
    elif name.startswith("nisa."):
        yield UNKNOWN_CALL


def commented(statement: Any, rules: list[Rule]) -> Any:
    """Return the statement below one comment for each rule that it breaks."""
    lines = list(statement.leading_lines)
    for rule, remedy in dict.fromkeys(rules):
        comment = cst.Comment(COMMENT.format(rule, remedy))
        lines.append(cst.EmptyLine(comment=comment))
    return statement.with_changes(leading_lines=lines) if rules else statement


def nodes(node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> list[Any]:
    """Return the nodes of some kinds, or all except whitespace; faster than ``m.findall``."""
    pending: list[Any] = [node]
    tree: list[Any] = []
    while pending:
        item = pending.pop()
        kind: Any = type(item)
        if isinstance(item, (list, tuple)):
            pending += reversed(item)
        elif (names := _last_first(kind)) is not None:
            tree.append(item)
            pending += [getattr(item, name) for name in names]
    return _of_kind(tree, *kinds) if kinds else tree


@functools.cache
def _last_first(kind: type[Any]) -> list[str] | None:
    """Return a node's field names from last to first. Decorators are first in source text."""
    if not issubclass(kind, cst.CSTNode) or issubclass(kind, SPACE):
        return None
    return sorted((field.name for field in fields(kind)[::-1]), key="decorators".__eq__)


def _of_kind(tree: list[Any], *kinds: type[cst.CSTNode]) -> list[Any]:
    return [node for node in tree if isinstance(node, kinds)]


class Definitions:
    """The lines of a function that define index grids and masks, in source order."""

    def __init__(self) -> None:
        self.lines: list[cst.SimpleStatementLine] = []

    def settled(self, function: Any) -> tuple[Any, list[Rule]]:
        """Return the function without its unused definitions, and the rules of the others."""
        if not self.lines:
            return function, []
        others = function.visit(_Settling(self.lines, []))
        kept = self._used_by(_names(others))
        rules = [GONE["nl.arange"]] * len(kept)
        return function.visit(_Settling(self.lines, kept)), rules

    def _used_by(self, names: set[str]) -> list[cst.SimpleStatementLine]:
        """Return the definitions of names, and the definitions that they use."""
        kept: list[cst.SimpleStatementLine] = []
        waiting = list(self.lines)
        while new := [line for line in waiting if _targets(line) & names]:
            kept += new
            waiting = [line for line in waiting if line not in new]
            names = names.union(*map(_names, new))
        return kept


def _names(node: Any) -> set[str]:
    return {name.value for name in nodes(node, cst.Name)}


def _targets(line: cst.SimpleStatementLine) -> set[str]:
    [assignment] = line.body
    assert isinstance(assignment, cst.Assign)
    return _names(assignment.targets[0])


class _Settling(cst.CSTTransformer):
    """A transformer that removes lines, or inserts comments above them."""

    def __init__(self, lines: list[Any], kept: list[Any]) -> None:
        super().__init__()
        self.kept = {id(line) for line in kept}
        self.gone = {id(line) for line in lines} - self.kept

    def leave_SimpleStatementLine(
        self,
        original_node: cst.SimpleStatementLine,
        updated_node: cst.SimpleStatementLine,
    ) -> Any:
        if id(original_node) in self.kept:
            return commented(updated_node, [GONE["nl.arange"]])
        return updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> Any:
        body: list[Any] = []
        comments: list[Any] = []
        new: Any
        for old, new in zip(original_node.body, updated_node.body, strict=True):
            if id(old) in self.gone:
                comments += new.leading_lines
                continue
            if comments:
                lines = list(new.leading_lines)
                while (
                    lines and lines[0].comment is None and comments[-1].comment is None
                ):
                    lines = lines[1:]  # keep one blank line only
                new = new.with_changes(leading_lines=comments + lines)
                comments = []
            body.append(new)
        return updated_node.with_changes(body=body or [cst.parse_statement("pass")])
