"""The table of mutation operators, and the operators for bounds, indices, terms and conditions."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from difftest.tools.mutants.mutant import KernelText
from difftest.tools.syntax import indices_of

Replacement: TypeAlias = tuple[ast.AST, str]
"""A node, and the text that replaces it."""
RANGES = ("range", "affine_range", "sequential_range", "static_range", "dynamic_range")


@dataclass(frozen=True)
class MutationSite:
    """A place in a function.

    Attributes
    ----------
    node : the syntax node.
    parents : the nodes that contain it, the nearest first, up to the function.
    source : the source text of the file.
    language : the file's name for ``nki.language``; empty if the file does not import it.
    """

    node: Any
    parents: tuple[ast.AST, ...]
    source: KernelText
    language: str

    def text(self, node: ast.AST) -> str:
        """Return the source of a node, in parentheses if it has several parts."""
        simple = isinstance(
            node, (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript)
        )
        return self.source.segment(node) if simple else f"({self.source.segment(node)})"

    @property
    def in_check(self) -> bool:
        """True if the node is part of an ``assert``."""
        return any(isinstance(parent, ast.Assert) for parent in self.parents)


Bug: TypeAlias = Callable[[MutationSite], Iterator[Replacement]]
BUGS: list[tuple[str, tuple[type[ast.AST], ...], Bug]] = []
"""The name of each operator, the kinds of nodes that it fits, and its replacements at a node."""


def mutation_operator(name: str, *kinds: type[ast.AST]) -> Callable[[Bug], Bug]:
    """Add a function to the table of operators."""

    def add(function: Bug) -> Bug:
        BUGS.append((name, kinds, function))
        return function

    return add


def called_name(node: ast.AST) -> str:
    """Return the last part of the name of a called function; empty if it has none."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _iterations(site: MutationSite, sign: str) -> Iterator[Replacement]:
    """Yield bounds that end a loop one iteration early, or late."""
    if called_name(site.node) not in RANGES:
        return
    args = site.node.args
    if args and not isinstance(args[0], ast.Starred):
        stop = args[0] if len(args) == 1 else args[1]
        step = site.text(args[2]) if len(args) > 2 else "1"
        yield stop, f"{site.text(stop)} {sign} {step}"


mutation_operator("last tile missing", ast.Call)(
    functools.partial(_iterations, sign="-")
)
mutation_operator("loop one turn too long", ast.Call)(
    functools.partial(_iterations, sign="+")
)


@mutation_operator("bound off by one", ast.Slice, ast.Call)
def _slice_short(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    if isinstance(node, ast.Slice):
        ends = [] if node.upper is None else [node.upper]
    else:
        ends = node.args[1:2] if called_name(node) == "slice" else []
    for upper in ends:
        yield upper, f"{site.text(upper)} - 1"


@mutation_operator("slice shifted", ast.Slice, ast.Call)
def _slice_shifted(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    if isinstance(node, ast.Slice):
        if node.lower is not None and node.upper is not None and node.step is None:
            yield node, f"{site.text(node.lower)} + 1:{site.text(node.upper)} + 1"
    elif called_name(node) == "slice" and len(node.args) == 2:
        start, stop = map(site.text, node.args)
        yield node, f"slice({start} + 1, {stop} + 1)"


@mutation_operator("bound of the last tile dropped", ast.Call)
def _bound_dropped(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    is_bound = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
    if is_bound and len(node.args) == 2:
        for argument in node.args:
            yield node, site.text(argument)


@mutation_operator("indices swapped", ast.Subscript)
def _indices_swapped(site: MutationSite) -> Iterator[Replacement]:
    if "\n" in site.source.segment(site.node.slice):
        return
    texts = list(map(site.source.segment, indices_of(site.node)))
    for at, (text, other) in enumerate(itertools.pairwise(texts)):
        if text != other and ":" not in (text, other):
            swapped = texts[:at] + [other, text] + texts[at + 2 :]
            yield site.node.slice, ", ".join(swapped)


@mutation_operator("index fixed", ast.Subscript)
def _index_fixed(site: MutationSite) -> Iterator[Replacement]:
    if getattr(site.node.value, "attr", "") == "shape":
        return
    for index in indices_of(site.node):
        if not isinstance(index, (ast.Slice, ast.Constant, ast.UnaryOp, ast.Starred)):
            yield index, "0"


@mutation_operator("term dropped", ast.BinOp)
def _term_dropped(site: MutationSite) -> Iterator[Replacement]:
    dropped = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Pow)
    if isinstance(site.node.op, dropped):
        yield site.node, site.text(site.node.left)


@mutation_operator("one short", ast.BinOp)
def _one_short(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    if isinstance(node.op, ast.Add) and not isinstance(node.right, ast.Constant):
        yield node, f"({site.source.segment(node)} - 1)"


@mutation_operator("another sign", ast.BinOp)
def _another_sign(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    sign = {ast.Add: "-", ast.Sub: "+"}.get(type(node.op))
    if sign is not None:
        yield node, f"({site.text(node.left)} {sign} {site.text(node.right)})"


@mutation_operator("constant off by one", ast.Constant)
def _constant(site: MutationSite) -> Iterator[Replacement]:
    value = site.node.value
    if type(value) is int:
        yield site.node, str(value + 1)
    elif type(value) is float:
        yield site.node, repr(value * 2)


@mutation_operator("total overwritten", ast.AugAssign)
def _overwritten(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    if isinstance(node.op, ast.Add):
        target = site.source.segment(node.target)
        yield node, f"{target} = {site.source.segment(node.value)}"


_BOUNDARY = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
}


@mutation_operator("comparison at its boundary", ast.Compare)
def _boundary(site: MutationSite) -> Iterator[Replacement]:
    node = site.node
    equal = isinstance(node.ops[0], (ast.Eq, ast.NotEq))
    operator = _BOUNDARY.get(type(node.ops[0]))
    if operator is not None and len(node.ops) == 1 and not (equal and site.in_check):
        right = site.text(node.comparators[0])
        yield node, f"{site.text(node.left)} {operator} {right}"


@mutation_operator("condition turned round", ast.If, ast.IfExp)
def _negated(site: MutationSite) -> Iterator[Replacement]:
    yield site.node.test, f"not {site.text(site.node.test)}"


@mutation_operator("check removed", ast.Assert)
def _check_removed(site: MutationSite) -> Iterator[Replacement]:
    yield site.node, "pass"


@mutation_operator("check of one thing less", ast.Compare, ast.BoolOp)
def _check_weaker(site: MutationSite) -> Iterator[Replacement]:
    if not site.in_check:
        return
    if isinstance(site.node, ast.BoolOp):
        for value in site.node.values:
            yield site.node, site.text(value)
    elif len(site.node.ops) > 1:
        first = site.node.comparators[0]
        last = site.node.comparators[-2]
        start = site.source.span(site.node)[0]
        (_, end) = site.source.span(last)
        yield site.node, f"({site.source.text[start:end]})"
        start = site.source.span(first)[0]
        end = site.source.span(site.node)[1]
        yield site.node, f"({site.source.text[start:end]})"
