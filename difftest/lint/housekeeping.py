"""Rules about the linter's own comments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.source import Spot


@rule("NKX001", group=Group.PORTABILITY)
def _idle(node: ast.AST, at: Spot) -> Iterator[Refusal]:
    """Nothing: what a comment has silenced is known at the end (see ``check.py``)."""
    return iter(())
