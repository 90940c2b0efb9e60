"""Rules of classic kernels that place their tensors, and of indices that are tiles.

Source: the page of errors, ``general/nki/api/nki.errors.rst`` at v2.26.0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.sdk import Frontend
from difftest.lint.source import Spot

_CLASSIC: dict[str, Any] = {"group": Group.CORRECTNESS, "frontends": frozenset({Frontend.CLASSIC})}
_ALLOCATORS = tuple(
    f"nki.compiler.{memory}.{name}"
    for memory in ("sbuf", "psum")
    for name in ("alloc", "mod_alloc")
)
_WITH_VALUES = ("nl.zeros", "nl.ones", "nl.full")


@rule("NKT210", nodes=(ast.Call,), **_CLASSIC)
def _bias(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    if at.name(node.func) not in ("nisa.activation", "nisa.activation_reduce") or not _places(at):
        return
    if not any(one.arg in ("bias", None) for one in node.keywords) and len(node.args) < 3:
        yield node, f"{ast.unparse(node.func)} got no bias"


@rule("NKT211", nodes=(ast.Call,), **_CLASSIC)
def _transpose(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    name, given = at.name(node.func), {one.arg for one in node.keywords}
    if name not in ("nisa.nc_transpose", "nl.matmul") or not _places(at):
        return
    needed = "engine" if name == "nisa.nc_transpose" else "transpose_x"
    if needed not in given:
        yield node, f"{name} got no {needed}"


@rule("NKT212", nodes=(ast.Call,), **_CLASSIC)
def _value(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    if at.name(node.func) in _WITH_VALUES:
        for one in node.keywords:
            if one.arg == "buffer" and _is_allocator(one.value, at):
                yield node, f"{ast.unparse(node.func)} got {ast.unparse(one)}"


@rule("NKT213", nodes=(ast.Call,), **_CLASSIC)
def _free_index(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    if at.function is None or at.name(node.func) not in ("nl.load", "nl.store"):
        return
    indices = _index_tiles(at)
    for one in node.args[:1]:
        parts = one.slice.elts if _is_indexed(one) else []  # type: ignore[attr-defined]
        for part in parts[1:]:
            used = {name.id for name in ast.walk(part) if isinstance(name, ast.Name)}
            if used & indices:
                yield part, f"{ast.unparse(one)} has a tile of indices behind its first dimension"


def _is_indexed(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple)


def _index_tiles(at: Spot) -> set[str]:
    """The names of tiles that hold integers which were loaded or counted."""
    assert at.function is not None
    return {
        target.id
        for node in ast.walk(at.function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if at.name(node.value.func) in ("nl.load", "nisa.iota")
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _places(at: Spot) -> bool:
    """Whether the function places tensors by itself."""
    return at.function is not None and any(
        _is_allocator(node, at) for node in ast.walk(at.function) if isinstance(node, ast.expr)
    )


def _is_allocator(node: ast.expr, at: Spot) -> bool:
    return isinstance(node, ast.Call) and at.name(node.func) in _ALLOCATORS
