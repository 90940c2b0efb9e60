"""The lines that define index grids: they go where nothing uses the grid any more."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst import matchers as m

from difftest.migration.leftovers import commented, nodes
from difftest.migration.rules import GONE, Rule


class Definitions:
    """The lines of a function that define index grids and masks."""

    def __init__(self) -> None:
        self.lines: list[cst.SimpleStatementLine] = []

    def add(self, line: cst.SimpleStatementLine) -> None:
        """A line that gives an index grid its name."""
        self.lines.append(line)

    def settled(self, function: Any) -> tuple[Any, list[Rule]]:
        """The function without the lines that it needs no more; the others get their rules."""
        kept = self._needed(function)
        rules = [GONE["nl.arange"] for _ in kept]
        made = function.visit(_Settling(self.lines, kept))
        return made, rules

    def _needed(self, function: Any) -> list[cst.SimpleStatementLine]:
        """The definitions whose names other lines still use."""
        used = _names(function.visit(_Settling(self.lines, [])))
        kept: list[cst.SimpleStatementLine] = []
        while new := [one for one in self.lines if one not in kept and _targets(one) & used]:
            kept += new
            used |= set().union(*map(_names, new))
        return kept


def _names(node: Any) -> set[str]:
    return {name.value for name in nodes(node, m.Name())}


def _targets(line: cst.SimpleStatementLine) -> set[str]:
    [assignment] = line.body
    assert isinstance(assignment, cst.Assign)
    return _names(assignment.targets[0])


class _Settling(cst.CSTTransformer):
    """Takes lines out, or puts comments over them."""

    def __init__(self, lines: list[Any], kept: list[Any]) -> None:
        super().__init__()
        self.kept = {id(one) for one in kept}
        self.gone = {id(one) for one in lines} - self.kept

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
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
                new = new.with_changes(leading_lines=[*comments, *_after(comments, new)])
                comments = []
            body.append(new)
        return updated_node.with_changes(body=body or [cst.parse_statement("pass")])


def _after(comments: list[Any], statement: Any) -> list[Any]:
    """The leading lines of a statement that follows lines that went: one gap is enough."""
    lines = list(statement.leading_lines)
    while lines and comments and lines[0].comment is None and comments[-1].comment is None:
        lines = lines[1:]
    return lines
