"""Masks of the classic dialect that are boxes: what they leave of each axis."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_

from difftest.migration.indices import Grids
from difftest.migration.rules import MASK, NotMechanicalError
from difftest.migration.terms import ONE, Term, largest, least

_SWAPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


@dataclass(frozen=True)
class MaskBox:
    """What a mask leaves of a grid: for each place the ends that its comparisons set.

    Attributes
    ----------
    ndim : dimensions of the grid.
    sizes : of the grid's axes, by place.
    uppers, lowers : by place, what 0, 1, ... of the axis stays below, and is not below.
    """

    ndim: int
    sizes: dict[int, Term]
    uppers: dict[int, tuple[Term, ...]]
    lowers: dict[int, tuple[Term, ...]]

    def limits(self, place: int) -> bool:
        """Whether the mask leaves something out at a place."""
        return place in self.uppers or place in self.lowers

    def end(self, place: int) -> Term:
        """How many of an axis, from its first element, are not cut off at the end."""
        return least([self.sizes[place], *self.uppers.get(place, ())])

    def range(self, place: int, first: Term, step: Term, size: Term) -> tuple[Term, Term]:
        """Start and stop of the slice that is left of ``first``, ``first + step``, ..."""
        end = self.end(place) if place in self.uppers else size
        lowers = self.lowers.get(place, ())
        if step == ONE:
            start = largest([first, *(first + low for low in lowers)]) if lowers else first
            return start, first + end
        if lowers:
            raise NotMechanicalError(*MASK)
        return first, first + (end - ONE) * step + ONE

    def __and__(self, other: MaskBox) -> MaskBox:
        """What both leave."""
        return MaskBox(
            max(self.ndim, other.ndim),
            self.sizes | other.sizes,
            _both(self.uppers, other.uppers),
            _both(self.lowers, other.lowers),
        )

    def with_ends(self, named: Callable[[Term], Term]) -> MaskBox:
        """The same with other terms for the ends."""
        ends = {place: named(self.end(place)) for place in self.uppers}
        uppers = {place: (end,) for place, end in ends.items()}
        return MaskBox(self.ndim, self.sizes | ends, dict(uppers), self.lowers)


EVERYTHING = MaskBox(0, {}, {}, {})
"""No mask."""


def _both(
    first: dict[int, tuple[Term, ...]], second: dict[int, tuple[Term, ...]]
) -> dict[int, tuple[Term, ...]]:
    return {place: first.get(place, ()) + second.get(place, ()) for place in {**first, **second}}


def box(mask: ast.expr, grids: Grids) -> MaskBox:
    """The box that a mask is."""
    if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
        return box(mask.left, grids) & box(mask.right, grids)
    if isinstance(mask, ast.BoolOp) and isinstance(mask.op, ast.And):
        return reduce(and_, [box(one, grids) for one in mask.values])
    if isinstance(mask, ast.Name) and mask.id in grids.masks:
        return box(grids.masks[mask.id], grids)
    if isinstance(mask, ast.Constant) and mask.value is None:
        return EVERYTHING
    if not isinstance(mask, ast.Compare):
        raise NotMechanicalError(*MASK)
    sides = [mask.left, *mask.comparators]
    triples = zip(sides, mask.ops, sides[1:], strict=False)
    return reduce(and_, [_compared(*triple, grids) for triple in triples])


def _compared(left: ast.expr, operator: ast.cmpop, right: ast.expr, grids: Grids) -> MaskBox:
    """``left < right`` and its kin, where one side is an index of one axis."""
    kind = type(operator)
    if kind not in _SWAPPED:
        raise NotMechanicalError(*MASK)
    index, bound = grids.parse(left), grids.parse(right)
    if bound.axes:
        index, bound, kind = bound, index, _SWAPPED[kind]
    if len(index.axes) != 1 or bound.axes:
        raise NotMechanicalError(*MASK)
    [(place, axis)] = index.axes.items()
    if axis.step != ONE:
        raise NotMechanicalError(*MASK)
    end = bound.offset - index.offset
    ends: dict[int, tuple[Term, ...]] = {place: (end if kind in (ast.Lt, ast.GtE) else end + ONE,)}
    if kind in (ast.Lt, ast.LtE):
        return MaskBox(index.ndim, {place: axis.size}, ends, {})
    return MaskBox(index.ndim, {place: axis.size}, {}, ends)
