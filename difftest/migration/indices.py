"""Index grids of the classic dialect: ``nl.arange`` and ``nl.mgrid`` and what is made of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import NamedTuple

from difftest.migration.imports import Names
from difftest.migration.rules import GONE, LOST, NOT_AFFINE, NotMechanicalError
from difftest.migration.terms import ONE, ZERO, Term

AXES = {"p": 0, "x": 1, "y": 2, "z": 3}
"""The attributes of what ``nl.mgrid[...]`` returns, and the axis that each stands for."""


class GridAxis(NamedTuple):
    """An axis of a grid in an index: ``step`` times 0, 1, ... ``size`` - 1."""

    step: Term
    size: Term


@dataclass(frozen=True)
class GridIndex:
    """``offset`` plus its axes, by their places in the shape that the index has.

    Attributes
    ----------
    offset : added to all.
    axes : place -> axis. A place counts from the last dimension, -1, as shapes are broadcast.
    ndim : dimensions of the index.
    """

    offset: Term
    axes: dict[int, GridAxis]
    ndim: int

    @classmethod
    def scalar(cls, node: ast.expr) -> GridIndex:
        return cls(Term.of(node), {}, 0)

    def names(self) -> set[str]:
        """The names that its terms use."""
        terms = [self.offset, *(term for axis in self.axes.values() for term in axis)]
        return set().union(*(term.names() for term in terms))

    def plus(self, other: GridIndex) -> GridIndex:
        if set(self.axes) & set(other.axes):
            raise NotMechanicalError(*NOT_AFFINE)
        return GridIndex(
            self.offset + other.offset, self.axes | other.axes, max(self.ndim, other.ndim)
        )

    def times(self, factor: Term) -> GridIndex:
        axes = {place: GridAxis(axis.step * factor, axis.size) for place, axis in self.axes.items()}
        return GridIndex(self.offset * factor, axes, self.ndim)

    def at(self, items: list[ast.expr]) -> GridIndex:
        """With new dimensions: ``index[:, None]``."""
        slices = [n - len(items) for n, one in enumerate(items) if isinstance(one, ast.Slice)]
        new = [one for one in items if isinstance(one, ast.Constant) and one.value is None]
        if len(slices) != self.ndim or self.ndim > 1 or len(slices) + len(new) != len(items):
            raise NotMechanicalError(*GONE["nl.arange"])
        return GridIndex(self.offset, dict.fromkeys(slices, self.axes[-1]), len(items))


Grid = GridIndex | tuple[GridIndex, ...]
"""What a name stands for: an index, or all those of an ``nl.mgrid``."""


class Grids:
    """The indices that the names of a function stand for."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.known: dict[str, Grid] = {}
        self.masks: dict[str, ast.expr] = {}
        self.lost: set[str] = set()
        """Names of indices that depend on what has changed since."""

    def define(self, name: str, meant: Grid | ast.expr) -> None:
        """A name stands for an index, or for a mask."""
        self.forget({name})
        self.lost.discard(name)
        if isinstance(meant, ast.expr):
            self.masks[name] = meant
        else:
            self.known[name] = meant

    def forget(self, changed: set[str]) -> None:
        """Names were bound anew: what they and all that depends on them stood for is lost."""
        for name, mask in list(self.masks.items()):
            used = {one.id for one in ast.walk(mask) if isinstance(one, ast.Name)}
            if name in changed or used & (changed | self.lost):
                del self.masks[name]
                self.lost.add(name)
        for name, grid in list(self.known.items()):
            parts = (grid,) if isinstance(grid, GridIndex) else grid
            if name in changed or any(part.names() & changed for part in parts):
                del self.known[name]
                self.lost.add(name)

    def uses(self, node: ast.AST) -> bool:
        """Whether an expression has an index in it."""
        return any(
            (isinstance(one, ast.Name) and one.id in {*self.known, *self.masks, *self.lost})
            or self.names.meant(one) in ("nl.arange", "nl.mgrid")
            for one in ast.walk(node)
        )

    def is_index(self, node: ast.expr) -> bool:
        """Whether an expression is an index or a grid, and no use of one."""
        if isinstance(node, ast.Name):
            return node.id in {*self.known, *self.lost}
        if isinstance(node, ast.BinOp):
            return self.is_index(node.left) or self.is_index(node.right)
        if isinstance(node, ast.Call):
            return self.names.meant(node.func) == "nl.arange"
        if not isinstance(node, (ast.Attribute, ast.Subscript)):
            return False
        return self.names.meant(node.value) == "nl.mgrid" or self.is_index(node.value)

    def defined(self, node: ast.expr) -> Grid | None:
        """What an expression makes: one index, or all of a grid; None if it is no index."""
        if isinstance(node, ast.Subscript) and self.names.meant(node.value) == "nl.mgrid":
            return _mgrid(node)
        if isinstance(node, ast.Name) and isinstance(self.known.get(node.id), tuple):
            return self.known[node.id]
        index = self.parse(node)
        return index if index.axes or self.uses(node) else None

    def parse(self, node: ast.expr) -> GridIndex:
        """The index that an expression is; one without axes for a number."""
        if not self.uses(node):
            return GridIndex.scalar(node)
        if isinstance(node, ast.Name):
            known = self.known.get(node.id)
            if isinstance(known, GridIndex):
                return known
            if node.id in self.lost:
                raise NotMechanicalError(*LOST)
        if isinstance(node, ast.Attribute) and node.attr in AXES:
            grid = self.defined(node.value)
            if grid is not None and not isinstance(grid, GridIndex) and AXES[node.attr] < len(grid):
                return grid[AXES[node.attr]]
        if isinstance(node, ast.Call) and self.names.meant(node.func) == "nl.arange":
            return _arange(node)
        if isinstance(node, ast.Subscript) and not self.uses(node.slice):
            return self.parse(node.value).at(items_of(node))
        if isinstance(node, ast.BinOp):
            return self._combined(node)
        raise NotMechanicalError(*NOT_AFFINE)

    def _combined(self, node: ast.BinOp) -> GridIndex:
        left, right = self.parse(node.left), self.parse(node.right)
        if isinstance(node.op, ast.Add):
            return left.plus(right)
        if isinstance(node.op, ast.Sub) and not right.axes:
            return left.plus(right.times(Term.number(-1)))
        if isinstance(node.op, ast.Mult):
            for index, number in ((left, right), (right, left)):
                if not number.axes and not number.ndim:
                    return index.times(number.offset)
        raise NotMechanicalError(*NOT_AFFINE)


def items_of(node: ast.Subscript) -> list[ast.expr]:
    """What stands between the brackets, one for each dimension."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _arange(node: ast.Call) -> GridIndex:
    bounds = [Term.of(one) for one in node.args]
    if node.keywords or not 1 <= len(bounds) <= 2:
        raise NotMechanicalError(*GONE["nl.arange"])
    first, last = (ZERO, *bounds) if len(bounds) == 1 else bounds
    return GridIndex(first, {-1: GridAxis(ONE, last - first)}, 1)


def _mgrid(node: ast.Subscript) -> tuple[GridIndex, ...]:
    items = items_of(node)
    made = []
    for number, item in enumerate(items):
        if not isinstance(item, ast.Slice) or item.step is not None or item.upper is None:
            raise NotMechanicalError(*GONE["nl.mgrid"])
        first = ZERO if item.lower is None else Term.of(item.lower)
        axis = GridAxis(ONE, Term.of(item.upper) - first)
        made.append(GridIndex(first, {number - len(items): axis}, len(items)))
    return tuple(made)
