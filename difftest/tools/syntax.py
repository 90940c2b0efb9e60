"""Read Python syntax trees: the names, calls, arguments and indices of a node."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


def names_in(node: ast.AST) -> set[str]:
    """Return the names that occur in a node."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def dotted_name(node: ast.AST) -> str:
    """Return a name such as ``nl.load``, as the source has it; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else ""


def bound_names(node: ast.AST) -> set[str]:
    """Return the names that a statement or a target binds."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {part.id for part in parts if isinstance(part.ctx, ast.Store)}


def annotation_nodes(annotation: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an annotation, and of the annotations that are texts inside it."""
    for node in ast.walk(annotation):
        yield node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError):
                yield from annotation_nodes(ast.parse(node.value, mode="eval"))


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a node, the outermost first."""
    return (part for part in ast.walk(node) if isinstance(part, ast.Call))


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call: positions first, then keywords."""
    return call.args + [keyword.value for keyword in call.keywords]


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Return the keyword argument of a name, or None if the call has none."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return None


def keywords_of(call: ast.Call) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call by name."""
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def has_expansion(call: ast.Call) -> bool:
    """Return whether a call has an argument ``*values`` or ``**values``."""
    if any(keyword.arg is None for keyword in call.keywords):
        return True
    return any(isinstance(argument, ast.Starred) for argument in call.args)


def argument_of(call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
    """Return an argument by keyword, or else by position; None if the call lacks it."""
    value = keyword_of(call, name)
    if value is None and place is not None and place < len(call.args):
        return call.args[place]
    return value


def indices_of(node: ast.Subscript) -> list[ast.expr]:
    """Return the indices of a subscript, one for each dimension."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def base_of(node: Node) -> Node | ast.expr:
    """Return the tensor of a subscript, or else the expression itself."""
    return node.value if isinstance(node, ast.Subscript) else node


def literal_of(node: ast.AST | None) -> object:
    """Return the value of a literal, or None for another node."""
    return node.value if isinstance(node, ast.Constant) else None


def is_none(node: ast.AST) -> bool:
    """Return whether a node is the literal ``None``, which adds a dimension in an index."""
    return isinstance(node, ast.Constant) and node.value is None
