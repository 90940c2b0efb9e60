"""What a rewritten statement still breaks, and the comments that say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst as cst
from libcst import matchers as m

from difftest.migration.calls import INSTRUCTIONS
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


def rules_broken(node: cst.CSTNode, scope: Scope) -> list[Rule]:
    """The rules that a statement still breaks."""
    names = scope.names
    broken: list[Rule] = []
    for one in nodes(node, m.Import() | m.ImportFrom()):
        broken += names.rules_broken(one)
    for one in nodes(node, m.Attribute()):
        broken += _of_name(names.of(one))
    for one in nodes(node, m.Call()):
        broken += _of_call(one, names.of(one.func) or "")
    for one in nodes(node, m.BinaryOperation() | m.UnaryOperation() | m.AugAssign()):
        if any(_is_tile(side, scope) for side in one.children):
            broken.append(OPERATOR)
    return broken


def _of_name(name: str | None) -> Iterator[Rule]:
    if name in GONE:
        yield GONE[name]
    elif name is not None and _is_unknown(name):
        yield f"today's dialect has no {name}", "`difftest api` lists what it has"


def _of_call(call: cst.Call, name: str) -> Iterator[Rule]:
    keywords = {a.keyword.value for a in call.args if a.keyword}
    returns = name in INSTRUCTIONS and "dst" not in keywords and name != "nl.copy"
    if name == "nki.jit" and "platform_target" in keywords:
        yield PLATFORM
    if name.startswith(("nl.", "nisa.")) and "mask" in keywords:
        yield MASK
    elif name == "nl.store" or returns:
        yield INSIDE
    elif name.startswith("nisa.") and "dst" not in keywords and _is_issue(name):
        yield UNKNOWN_CALL


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
