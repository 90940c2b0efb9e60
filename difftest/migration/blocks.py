"""Tiles with block dimensions: which of them can have their partitions first."""

from __future__ import annotations

import ast

from difftest.migration.calls import MAKERS
from difftest.migration.imports import Names
from difftest.migration.indices import items_of


def blocks_of(function: ast.AST, names: Names) -> dict[str, int]:
    """Tiles of a function whose every use names its blocks, and how many dimensions those are."""
    found: dict[str, set[int]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            place = _place(node.value, names)
            if place and isinstance(node.targets[0], ast.Name):
                found.setdefault(node.targets[0].id, set()).add(place)
    return {
        name: max(places)
        for name, places in found.items()
        if len(places) == 1 and _is_always_indexed(function, name, max(places))
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
    nodes = list(ast.walk(function))
    uses = [one for one in nodes if _is_use(one, name)]
    dtypes = [one for one in nodes if isinstance(one, ast.Attribute) and _is_use(one.value, name)]
    dtypes = [one for one in dtypes if one.attr == "dtype"]
    indexed = [one for one in nodes if isinstance(one, ast.Subscript) and _is_use(one.value, name)]
    return len(uses) == len(dtypes) + len(indexed) and all(
        _names_blocks(items_of(one), place) for one in indexed
    )


def _is_use(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _names_blocks(items: list[ast.expr], place: int) -> bool:
    """Whether an index picks one of each block dimension."""
    picks = (ast.Name, ast.BinOp)
    return len(items) >= place and all(
        isinstance(item, picks) or (isinstance(item, ast.Constant) and type(item.value) is int)
        for item in items[:place]
    )
