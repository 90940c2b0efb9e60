"""Index grids of the classic dialect: ``nl.arange``, ``nl.mgrid``, and expressions of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add, and_, mul, sub
from typing import NamedTuple, cast

from difftest.simulator.frontend.levels import GONE
from difftest.tools.migration.imports import ModuleNames
from difftest.tools.migration.rules import LOST, MASK, NOT_AFFINE, NotMechanicalError
from difftest.tools.syntax import indices_of, is_none, names_in


class Monomial(tuple[str, ...]):
    """The symbolic factors of a product; empty for a constant. Equality ignores their order."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Monomial) and sorted(self) == sorted(other)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self)))


@dataclass(frozen=True)
class Term:
    """An integer expression: its monomials with their integer factors, in source order.

    An expression other than a sum, difference or product is one factor, identified by its text.
    """

    parts: tuple[tuple[Monomial, int], ...]

    @classmethod
    def number(cls, value: int) -> Term:
        return cls(((Monomial(), value),) if value else ())

    @classmethod
    def of(cls, node: ast.expr) -> Term:
        """Return the term of an expression."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return cls.number(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return Term.number(-1) * cls.of(node.operand)
        if isinstance(node, ast.BinOp):
            sides = cls.of(node.left), cls.of(node.right)
            operation = {ast.Add: add, ast.Sub: sub, ast.Mult: mul}.get(type(node.op))
            if operation is not None:
                return cast(Term, operation(*sides))
        return cls(((Monomial([ast.unparse(node)]), 1),))

    @classmethod
    def parse(cls, text: str) -> Term:
        """Return the term of an expression's text."""
        return cls.of(ast.parse(text, mode="eval").body)

    @property
    def constant(self) -> int | None:
        """The term's value if it is constant, else None."""
        if not self.parts:
            return 0
        [(first, factor), *others] = self.parts
        return None if first or others else factor

    def __add__(self, other: Term) -> Term:
        return _summed([*self.parts, *other.parts])

    def __sub__(self, other: Term) -> Term:
        return self + Term.number(-1) * other

    def __mul__(self, other: Term) -> Term:
        return _summed(
            (Monomial([*first, *second]), factor * two)
            for first, factor in self.parts
            for second, two in other.parts
        )

    def text(self) -> str:
        """Return the term as a Python expression."""
        written = ""
        # Positive parts come first, so that a sum does not begin with a minus sign.
        for monomial, factor in sorted(self.parts, key=lambda part: part[1] < 0):
            factors = [_wrapped(name) for name in monomial]
            if abs(factor) != 1 or not factors:
                factors.append(str(abs(factor)))
            sign = " - " if factor < 0 else " + "
            written += (sign if written else sign.strip(" +")) + " * ".join(factors)
        return written or "0"

    def names(self) -> set[str]:
        """Return the names that occur in the term."""
        return names_in(ast.parse(self.text(), mode="eval"))


def _summed(parts: Iterable[tuple[Monomial, int]]) -> Term:
    totals: dict[Monomial, int] = {}
    for monomial, factor in parts:
        totals[monomial] = totals.get(monomial, 0) + factor
    return Term(
        tuple((monomial, factor) for monomial, factor in totals.items() if factor)
    )


def _wrapped(text: str) -> str:
    """Return a factor, in parentheses if its operators bind less tightly than a product."""
    node = ast.parse(text, mode="eval").body
    loose = isinstance(
        node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp)
    )
    return f"({text})" if loose else text


def min_or_max(function: Callable[[list[int]], int], terms: Iterable[Term]) -> Term:
    """Return ``min`` or ``max`` of terms: a number if all are constant, else a call."""
    different = list(dict.fromkeys(terms))
    numbers = [term.constant for term in different if term.constant is not None]
    others = [term for term in different if term.constant is None]
    if numbers:
        others.insert(0, Term.number(function(numbers)))
    if len(others) == 1:
        return others[0]
    text = f"{function.__name__}({', '.join(map(Term.text, others))})"
    return Term(((Monomial([text]), 1),))


ZERO = Term.number(0)
ONE = Term.number(1)


AXES = {"p": 0, "x": 1, "y": 2, "z": 3}
"""The attributes of an ``nl.mgrid[...]``, and the axis that each selects."""


class GridAxis(NamedTuple):
    """An axis of a grid in an index: ``step`` times 0, 1, ... ``size`` - 1."""

    step: Term
    size: Term


@dataclass(frozen=True)
class GridIndex:
    """An affine index: an offset plus one axis for each place in the index's shape.

    Attributes
    ----------
    offset : added to all elements.
    axes : the axes by place. A place counts from the last dimension, -1, as in broadcasting.
    ndim : the number of dimensions of the index.
    """

    offset: Term
    axes: dict[int, GridAxis]
    ndim: int

    @classmethod
    def scalar(cls, node: ast.expr) -> GridIndex:
        return cls(Term.of(node), {}, 0)

    def names(self) -> set[str]:
        """Return the names that the index's terms use."""
        names = self.offset.names()
        for axis in self.axes.values():
            names |= axis.step.names() | axis.size.names()
        return names

    def plus(self, other: GridIndex) -> GridIndex:
        if set(self.axes) & set(other.axes):
            raise NotMechanicalError(NOT_AFFINE)
        return GridIndex(
            self.offset + other.offset,
            self.axes | other.axes,
            max(self.ndim, other.ndim),
        )

    def times(self, factor: Term) -> GridIndex:
        axes = {
            place: GridAxis(axis.step * factor, axis.size)
            for place, axis in self.axes.items()
        }
        return GridIndex(self.offset * factor, axes, self.ndim)

    def at(self, items: list[ast.expr]) -> GridIndex:
        """Return the index with new dimensions, as in ``index[:, None]``."""
        axes: dict[int, GridAxis] = {}
        for place, item in enumerate(items, -len(items)):
            if isinstance(item, ast.Slice):
                axes[place] = self.axes[-1]
            elif not is_none(item):
                raise NotMechanicalError(GONE["nl.arange"])
        if len(axes) != self.ndim or self.ndim > 1:
            raise NotMechanicalError(GONE["nl.arange"])
        return GridIndex(self.offset, axes, len(items))


Grid = GridIndex | tuple[GridIndex, ...]
"""The value of a name: one index, or all indices of an ``nl.mgrid``."""


class Grids:
    """The indices and masks that are the values of a function's names."""

    def __init__(self, names: ModuleNames) -> None:
        self.names = names
        self.known: dict[str, Grid] = {}
        self.masks: dict[str, ast.expr] = {}
        self.lost: set[str] = set()
        """Names of indices and masks whose inputs have changed since their definition."""

    def define(self, name: str, meant: Grid | ast.expr) -> None:
        """Record an index or a mask as the value of a name."""
        self.forget({name})
        self.lost.discard(name)
        if isinstance(meant, ast.expr):
            self.masks[name] = meant
        else:
            self.known[name] = meant

    def forget(self, changed: set[str]) -> None:
        """Discard the values of rebound names, and of names that depend on them."""
        for name, mask in list(self.masks.items()):
            if not ({name} | names_in(mask)).isdisjoint(changed | self.lost):
                del self.masks[name]
                self.lost.add(name)
        for name, grid in list(self.known.items()):
            if not ({name} | _names_of(grid)).isdisjoint(changed):
                del self.known[name]
                self.lost.add(name)

    def uses(self, node: ast.AST) -> bool:
        """Return whether an expression contains an index or a mask."""
        if names_in(node) & (self.known.keys() | self.masks.keys() | self.lost):
            return True
        functions = ("nl.arange", "nl.mgrid")
        return any(self.names.meant(part) in functions for part in ast.walk(node))

    def is_index(self, node: ast.expr) -> bool:
        """Return whether an expression itself is an index or a grid."""
        if isinstance(node, ast.Name):
            return node.id in self.known or node.id in self.lost
        if isinstance(node, ast.BinOp):
            return self.is_index(node.left) or self.is_index(node.right)
        if isinstance(node, ast.Call):
            return self.names.called(node) == "nl.arange"
        if not isinstance(node, (ast.Attribute, ast.Subscript)):
            return False
        return self.names.meant(node.value) == "nl.mgrid" or self.is_index(node.value)

    def defined(self, node: ast.expr) -> Grid | None:
        """Return the index, or all indices of a grid, that an expression makes; else None."""
        base = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(node, ast.Subscript) and self.names.meant(base) == "nl.mgrid":
            return _mgrid(node)
        if isinstance(node, ast.Name) and isinstance(self.known.get(node.id), tuple):
            return self.known[node.id]
        index = self.parse(node)
        return index if index.axes or self.uses(node) else None

    def parse(self, node: ast.expr) -> GridIndex:
        """Return the index of an expression. A number gives an index without axes."""
        if not self.uses(node):
            return GridIndex.scalar(node)
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.Attribute):
            return self._axis(node)
        if isinstance(node, ast.Call) and self.names.called(node) == "nl.arange":
            return _arange(node)
        if isinstance(node, ast.Subscript) and not self.uses(node.slice):
            return self.parse(node.value).at(indices_of(node))
        if isinstance(node, ast.BinOp):
            return self._combined(node)
        raise NotMechanicalError(NOT_AFFINE)

    def _named(self, name: str) -> GridIndex:
        """Return the index that is the value of a name."""
        index = self.known.get(name)
        if isinstance(index, GridIndex):
            return index
        raise NotMechanicalError(LOST if name in self.lost else NOT_AFFINE)

    def _axis(self, node: ast.Attribute) -> GridIndex:
        """Return the index of ``grid.p``, ``grid.x`` ..."""
        place = AXES.get(node.attr)
        grid = None if place is None else self.defined(node.value)
        if place is None or not isinstance(grid, tuple) or place >= len(grid):
            raise NotMechanicalError(NOT_AFFINE)
        return grid[place]

    def _combined(self, node: ast.BinOp) -> GridIndex:
        left = self.parse(node.left)
        right = self.parse(node.right)
        if isinstance(node.op, ast.Add):
            return left.plus(right)
        if isinstance(node.op, ast.Sub) and not right.axes:
            return left.plus(right.times(Term.number(-1)))
        if isinstance(node.op, ast.Mult):
            for index, number in ((left, right), (right, left)):
                if not number.axes and not number.ndim:
                    return index.times(number.offset)
        raise NotMechanicalError(NOT_AFFINE)


def _names_of(grid: Grid) -> set[str]:
    """Return the names that an index, or the indices of a grid, use."""
    if isinstance(grid, GridIndex):
        return grid.names()
    return set().union(*map(GridIndex.names, grid))


def _arange(node: ast.Call) -> GridIndex:
    bounds = [Term.of(argument) for argument in node.args]
    if node.keywords or not 1 <= len(bounds) <= 2:
        raise NotMechanicalError(GONE["nl.arange"])
    first = bounds[0] if len(bounds) == 2 else ZERO
    return GridIndex(first, {-1: GridAxis(ONE, bounds[-1] - first)}, 1)


def _mgrid(node: ast.Subscript) -> tuple[GridIndex, ...]:
    items = indices_of(node)
    axes = []
    for place, item in enumerate(items, -len(items)):
        if not isinstance(item, ast.Slice) or item.upper is None or item.step:
            raise NotMechanicalError(GONE["nl.mgrid"])
        first = ZERO if item.lower is None else Term.of(item.lower)
        axis = GridAxis(ONE, Term.of(item.upper) - first)
        axes.append(GridIndex(first, {place: axis}, len(items)))
    return tuple(axes)


_SWAPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


class MaskBox(NamedTuple):
    """The box that a mask selects from a grid: bounds for each place.

    Attributes
    ----------
    ndim : the number of dimensions of the grid.
    sizes : the sizes of the grid's axes, by place.
    uppers, lowers : exclusive upper bounds and inclusive lower bounds of an axis, by place.
    """

    ndim: int
    sizes: dict[int, Term]
    uppers: dict[int, tuple[Term, ...]]
    lowers: dict[int, tuple[Term, ...]]

    def limits(self, place: int) -> bool:
        """Return whether the mask bounds the axis at a place."""
        return place in self.uppers or place in self.lowers

    def end(self, place: int) -> Term:
        """Return the exclusive end of an axis: the smallest of its size and its upper bounds."""
        return min_or_max(min, [self.sizes[place], *self.uppers.get(place, ())])

    def range(
        self, place: int, first: Term, step: Term, size: Term
    ) -> tuple[Term, Term]:
        """Return start and stop of the selected part of ``first``, ``first + step``, ..."""
        end = self.end(place) if place in self.uppers else size
        lowers = [first + low for low in self.lowers.get(place, ())]
        if step == ONE:
            return min_or_max(max, [first, *lowers]), first + end
        if lowers:
            raise NotMechanicalError(MASK)
        return first, first + (end - ONE) * step + ONE

    def __and__(self, other: MaskBox) -> MaskBox:
        """Return the intersection of both boxes."""
        return MaskBox(
            max(self.ndim, other.ndim),
            self.sizes | other.sizes,
            _both(self.uppers, other.uppers),
            _both(self.lowers, other.lowers),
        )

    def with_ends(self, named: Callable[[Term], Term]) -> MaskBox:
        """Return the box with ``named`` applied to each exclusive end."""
        ends = {place: named(self.end(place)) for place in self.uppers}
        uppers = {place: (end,) for place, end in ends.items()}
        return MaskBox(self.ndim, self.sizes | ends, dict(uppers), self.lowers)


EVERYTHING = MaskBox(0, {}, {}, {})
"""The box without a mask."""


def _both(
    first: dict[int, tuple[Term, ...]], second: dict[int, tuple[Term, ...]]
) -> dict[int, tuple[Term, ...]]:
    return {
        place: first.get(place, ()) + second.get(place, ()) for place in first | second
    }


def box(mask: ast.expr, grids: Grids) -> MaskBox:
    """Return the box that a mask selects."""
    match mask:
        case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
            return box(left, grids) & box(right, grids)
        case ast.BoolOp(op=ast.And(), values=values):
            return reduce(and_, [box(value, grids) for value in values])
        case ast.Name(id=name) if name in grids.masks:
            return box(grids.masks[name], grids)
        case ast.Constant(value=None):
            return EVERYTHING
        case ast.Compare(left=left, ops=operators, comparators=others):
            boxes = []
            for operator, right in zip(operators, others, strict=True):
                boxes.append(_compared(left, operator, right, grids))
                left = right
            return reduce(and_, boxes)
    raise NotMechanicalError(MASK)


def _compared(
    left: ast.expr, operator: ast.cmpop, right: ast.expr, grids: Grids
) -> MaskBox:
    """Return the box of a comparison where one side is an index of one axis."""
    kind = type(operator)
    if kind not in _SWAPPED:
        raise NotMechanicalError(MASK)
    index = grids.parse(left)
    bound = grids.parse(right)
    if bound.axes:
        index, bound, kind = bound, index, _SWAPPED[kind]
    if len(index.axes) != 1 or bound.axes:
        raise NotMechanicalError(MASK)
    [(place, axis)] = index.axes.items()
    if axis.step != ONE:
        raise NotMechanicalError(MASK)
    end = bound.offset - index.offset
    if kind in (ast.LtE, ast.Gt):
        end += ONE
    sizes = {place: axis.size}
    if kind in (ast.Lt, ast.LtE):
        return MaskBox(index.ndim, sizes, {place: (end,)}, {})
    return MaskBox(index.ndim, sizes, {}, {place: (end,)})
