"""Tiles with block dimensions: which of them can have their partitions first."""

from __future__ import annotations

import ast

from difftest.migration.calls import MAKERS
from difftest.migration.imports import Names
from difftest.migration.indices import items_of


def blocks_of(function: ast.AST, names: Names) -> dict[str, int]:
    """Tiles of a function whose every use names its blocks, and how many dimensions those are."""
    found: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            place = _place(node.value, names)
            target = node.targets[0]
            if place and isinstance(target, ast.Name):
                before = found.get(target.id, place)
                found[target.id] = place if before == place else 0
    return {
        name: place
        for name, place in found.items()
        if place and _is_always_indexed(function, name, place)
    }


def _place(call: ast.Call, names: Names) -> int:
    """The place of ``par_dim`` in the shape of an allocation; 0 if it has none."""
    if names.meant(call.func) not in MAKERS:
        return 0
    shapes = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "shape")]
    for shape in shapes:
        for place, size in enumerate(getattr(shape, "elts", [])):
            if isinstance(size, ast.Call) and names.meant(size.func) == "nl.par_dim":
                return place
    return 0


def _is_always_indexed(function: ast.AST, name: str, place: int) -> bool:
    """Whether each use has an index for each block dimension, or asks for the dtype."""
    uses = sum(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(function)
    ) - sum(
        isinstance(node, ast.Attribute) and ast.unparse(node) == f"{name}.dtype"
        for node in ast.walk(function)
    )
    indexed = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
    ]
    return uses == len(indexed) and all(_names_blocks(items_of(node), place) for node in indexed)


def _names_blocks(items: list[ast.expr], place: int) -> bool:
    """Whether an index picks one of each block dimension."""
    picks = (ast.Name, ast.BinOp)
    return len(items) >= place and all(
        isinstance(item, picks) or (isinstance(item, ast.Constant) and type(item.value) is int)
        for item in items[:place]
    )
