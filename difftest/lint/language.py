"""Rules of the language that each frontend compiles: which Python a kernel may be written in."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.sdk import Frontend
from difftest.lint.source import Spot

GUIDE = "nki/get-started/nki-language-guide.rst at v2.32.0"
MIGRATION = "nki/migration/index.rst at v2.32.0"
_PARSER = frozenset({Frontend.PARSER})
_COMPREHENSIONS = {
    ast.ListComp: "a list comprehension",
    ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension",
    ast.GeneratorExp: "a generator expression",
}


@rule(
    "NKL101",
    title="a comprehension in a kernel",
    group=Group.CORRECTNESS,
    rule="the parser of NKI 0.2 to 0.6 knows no comprehensions",
    remedy="write a loop that appends",
    nodes=tuple(_COMPREHENSIONS),
    frontends=_PARSER,
    sources=(GUIDE,),
)
def _comprehension(node: ast.expr, at: Spot) -> Iterator[Refusal]:
    if at.function is not None:
        yield node, f"{_COMPREHENSIONS[type(node)]} in {at.function.name}"


@rule(
    "NKL102",
    title="a keyword-only parameter of a kernel",
    group=Group.CORRECTNESS,
    rule="the parser of NKI 0.3 to 0.6 knows no * between parameters",
    remedy="leave the * out",
    nodes=(ast.FunctionDef,),
    frontends=_PARSER,
    since="2.29",
    sources=(MIGRATION,),
)
def _keyword_only(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    if at.function is node and node.args.kwonlyargs:
        first = node.args.kwonlyargs[0]
        yield first, f"parameter {first.arg!r} of {node.name} can be passed by keyword only"
