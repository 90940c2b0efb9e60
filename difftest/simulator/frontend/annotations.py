"""Find the parameters that a kernel may write to, by their annotations."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable
from typing import Any

from difftest.simulator.frontend.arguments import Annotation

_MUTABLE = ("mutable_tensor", "mutable")
"""Names of ``neuronxcc.nki.typing`` that let a kernel write."""


def mutable_parameters(
    function: Callable[..., Any], signature: inspect.Signature
) -> set[str]:
    """Return the names of the parameters whose annotations let a kernel write to them."""
    names = getattr(inspect.unwrap(function), "__globals__", {})
    parameters = signature.parameters.items()
    return {name for name, one in parameters if is_mutable(one.annotation, names)}


def is_mutable(annotation: object, names: dict[str, Any] | None = None) -> bool:
    """Return whether a parameter's annotation lets the kernel write to it.

    Accepted are ``nt.mutable_tensor`` and ``nt.tensor[nt.mutable]``: alone, with a shape, in a
    union, in another type's brackets, and as text.

    Parameters
    ----------
    names : the names of the function's module, which resolve the names of a text. An unknown name
        is recognized by its last part: ``nt.mutable_tensor`` where ``nt`` was imported for a type
        checker alone.
    """
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return _names_mutable(annotation, names or {})
    if isinstance(annotation, Annotation):
        return annotation.mutable
    return any(is_mutable(part, names) for part in typing.get_args(annotation))


def _names_mutable(text: str, names: dict[str, Any]) -> bool:
    """Return whether an annotation's text names a mutable type."""
    try:
        parsed = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return any(_is_mutable_part(node, names) for node in ast.walk(parsed))


def _is_mutable_part(node: ast.AST, names: dict[str, Any]) -> bool:
    """Return whether a part of an annotation's syntax names a mutable type."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _names_mutable(node.value, names)
    if isinstance(node, ast.Attribute):
        return node.attr in _MUTABLE
    if not isinstance(node, ast.Name):
        return False
    if node.id in names:
        return is_mutable(names[node.id], names)
    return node.id in _MUTABLE
