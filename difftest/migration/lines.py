"""Statements on lines of their own: what stands behind a colon or a semicolon gets a line."""

from __future__ import annotations

from typing import Any

import libcst as cst


class OneStatementALine(cst.CSTTransformer):
    """Splits ``a = 1; b = 2`` and ``for i in r: a = i``, so that lines can go before each."""

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        """A line of several: comments above stay with the first, its own with the last."""
        statements = updated_node.body
        if len(statements) == 1:
            return updated_node
        lines = _lines(statements)
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        ending = updated_node.trailing_whitespace
        lines[-1] = lines[-1].with_changes(trailing_whitespace=ending)
        return cst.FlattenSentinel(lines)

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> Any:
        """Statements behind a colon: a block."""
        lines = _lines(updated_node.body)
        ending = updated_node.trailing_whitespace
        lines[-1] = lines[-1].with_changes(trailing_whitespace=ending)
        return cst.IndentedBlock(lines)


def _lines(statements: Any) -> list[cst.SimpleStatementLine]:
    bare = cst.MaybeSentinel.DEFAULT
    return [cst.SimpleStatementLine([one.with_changes(semicolon=bare)]) for one in statements]
