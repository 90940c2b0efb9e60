"""What a rewritten statement still breaks, and the comments that say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst as cst
from libcst import matchers as m

from difftest.migration.calls import INSTRUCTIONS
from difftest.migration.imports import Names
from difftest.migration.rules import (
    GONE,
    INSIDE,
    MASK,
    OPERATOR,
    PLATFORM,
    UNKNOWN_CALL,
    Rule,
)
from difftest.migration.scope import Scope
from difftest.simulator.frontend.nki import isa, language

COMMENT = "# difftest migrate: {}; {}"
TODAYS_MODULES = {"nl": language, "nisa": isa}


class Leftovers:
    """The rules that statements of a file still break.

    Parameters
    ----------
    names : what the file calls NKI's modules.
    """

    def __init__(self, names: Names) -> None:
        self.names = names

    def rules(self, node: cst.CSTNode, scope: Scope) -> list[Rule]:
        """Of one statement."""
        found: list[Rule] = []
        for one in nodes(node, m.Import() | m.ImportFrom()):
            found += self.names.rules_broken(one)
        for one in nodes(node, m.Attribute()):
            found += self._of_name(self.names.of(one))
        for one in nodes(node, m.Call()):
            found += self._of_call(one)
        found += self._of_operators(node, scope)
        return found

    def _of_name(self, name: str | None) -> Iterator[Rule]:
        if name in GONE:
            yield GONE[name]
        elif name is not None and _is_unknown(name):
            yield f"today's dialect has no {name}", "`difftest api` lists what it has"

    def _of_call(self, call: cst.Call) -> Iterator[Rule]:
        name = self.names.of(call.func) or ""
        keywords = {a.keyword.value for a in call.args if a.keyword}
        if name == "nki.jit" and "platform_target" in keywords:
            yield PLATFORM
        if name.startswith(("nl.", "nisa.")) and "mask" in keywords:
            yield MASK
        elif name == "nl.store" or (
            name in INSTRUCTIONS and "dst" not in keywords and name != "nl.copy"
        ):
            yield INSIDE
        elif name.startswith("nisa.") and "dst" not in keywords and _is_issue(name):
            yield UNKNOWN_CALL

    def _of_operators(self, node: cst.CSTNode, scope: Scope) -> Iterator[Rule]:
        operators = m.BinaryOperation() | m.UnaryOperation() | m.AugAssign()
        for one in nodes(node, operators):
            if any(_is_tile(side, scope) for side in one.children):
                yield OPERATOR


def commented(statement: Any, rules: list[Rule]) -> Any:
    """The statement under a comment for each rule that it breaks."""
    comments = [
        cst.EmptyLine(comment=cst.Comment(COMMENT.format(*rule))) for rule in dict.fromkeys(rules)
    ]
    if not comments:
        return statement
    return statement.with_changes(leading_lines=[*statement.leading_lines, *comments])


def nodes(node: cst.CSTNode, matcher: Any) -> list[Any]:
    """The nodes of a kind in a tree."""
    return list(m.findall(node, matcher))


def _is_tile(node: cst.CSTNode, scope: Scope) -> bool:
    base = node.value if isinstance(node, cst.Subscript) else node
    return isinstance(base, cst.Name) and base.value in scope.tiles


def _is_unknown(name: str) -> bool:
    """Whether today's modules lack a name, as ``nl.load`` or ``nisa.engine.vector``."""
    module, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    return module in TODAYS_MODULES and not hasattr(TODAYS_MODULES[module], first)


def _is_issue(name: str) -> bool:
    """Whether a name of ``nisa`` is an instruction's, and not a query's or an enum's."""
    return not name.startswith("nisa.get_") and name.count(".") == 1
