"""Index expressions of ``nl.arange`` and ``nl.mgrid``, and masks over them.

An expression stays affine (:class:`~difftest.simulator.index.Index`) and never becomes an array of
indices. A :class:`Mask` is a conjunction of comparisons between such expressions.
"""

from __future__ import annotations

from typing import Any, SupportsIndex, Union

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.dispatch import entering
from difftest.simulator.frontend.loops import awaits_other, joined
from difftest.simulator.index import (
    Index,
    Shape,
    as_integer,
    broadcast_shapes,
    is_index_integer,
)
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.misuses import (
    AND_OF_MASKS,
    ASSIGNMENT_TO_INDEX,
    OR_OF_MASKS,
    PART_OF_INDEX,
    SHAPE_OF_MASK,
)
from difftest.simulator.strictness import report_violation

Operand = Union["IndexExpression", SupportsIndex]


def _is_affine(value: object) -> bool:
    return isinstance(value, IndexExpression) or is_index_integer(value)


class IndexExpression(Index):
    """The result of ``nl.arange`` and ``nl.mgrid``: an index with Python's operators.

    Sums, and products with integers, are index expressions; comparisons are masks.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> IndexExpression:
        """Insert axes with ``None``; whole axes with ``:`` or ``...``."""
        items = self._without_ellipsis(key if isinstance(key, tuple) else (key,))
        axes = zip(self.shape, self.steps, strict=True)
        walk: list[tuple[int, int]] = []
        axis: tuple[int, int] | None
        for item in items:
            if item is None:
                axis = (1, 0)
            elif item == slice(None):
                axis = next(axes, None)
            else:
                axis = None
            if axis is None:
                raise PART_OF_INDEX(f"{item!r} on an index of shape {self.shape}")
            walk.append(axis)
        walk += axes
        shape = tuple(n for n, _ in walk)
        steps = tuple(step for _, step in walk)
        return IndexExpression(shape, self.start, steps)

    def _without_ellipsis(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the items with whole axes in place of an ellipsis."""
        if Ellipsis not in items:
            return items
        at = items.index(Ellipsis)
        kept = sum(isinstance(item, slice) for item in items)
        return items[:at] + (slice(None),) * (self.ndim - kept) + items[at + 1 :]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ASSIGNMENT_TO_INDEX(
            "an assignment to the result of nl.arange or nl.mgrid"
        )

    def _combine(self, other: Operand, sign: int) -> IndexExpression:
        """Return the sum or the difference of this expression and another operand."""
        if not isinstance(other, IndexExpression):
            return IndexExpression(
                self.shape, self.start + sign * int(other), self.steps
            )
        shape = broadcast_shapes(self.shape, other.shape, "index expressions")
        mine = self.spread(shape)
        theirs = other.spread(shape)
        steps = tuple(
            a + sign * b for a, b in zip(mine.steps, theirs.steps, strict=True)
        )
        return IndexExpression(shape, self.start + sign * other.start, steps)

    def __add__(self, other: Operand) -> IndexExpression:
        if _is_affine(other):
            return self._combine(other, 1)
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Operand) -> IndexExpression:
        if _is_affine(other):
            return self._combine(other, -1)
        return NotImplemented

    def __rsub__(self, other: Operand) -> IndexExpression:
        if _is_affine(other):
            return (-self)._combine(other, 1)
        return NotImplemented

    def __neg__(self) -> IndexExpression:
        return self * -1

    def __mul__(self, other: object) -> IndexExpression:
        if isinstance(other, IndexExpression):
            raise self._not_affine("the product of two indices")
        if not is_index_integer(other):
            return NotImplemented
        k = int(other)  # type: ignore[call-overload]
        return IndexExpression(
            self.shape, self.start * k, tuple(step * k for step in self.steps)
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> IndexExpression:
        raise self._not_affine("//")

    def __mod__(self, other: object) -> IndexExpression:
        raise self._not_affine("%")

    def _not_affine(self, what: str) -> KernelError:
        return KernelError(
            "index expressions must be affine in nl.arange and nl.mgrid",
            happened=f"{what} made an index expression that is not affine",
            received=f"{what} on an index of shape {self.shape}",
            limit="sums of indices, and products with integers",
            remedy="split the axis into two (nl.mgrid with one more dimension), "
            "or put // and % on the loop variable",
        )

    def __bool__(self) -> bool:
        raise _as_condition(
            "an index expression", "use the instruction's mask argument"
        )

    def __le__(self, other: Operand) -> Mask:
        if _is_affine(other):
            return joined(Mask((other - self,)))
        return NotImplemented

    def __lt__(self, other: Operand) -> Mask:
        if _is_affine(other):
            return joined(Mask((other - self - 1,)))
        return NotImplemented

    def __ge__(self, other: Operand) -> Mask:
        if _is_affine(other):
            return joined(Mask((self - other,)))
        return NotImplemented

    def __gt__(self, other: Operand) -> Mask:
        if _is_affine(other):
            return joined(Mask((self - other - 1,)))
        return NotImplemented

    def __eq__(self, other: object) -> Mask:  # type: ignore[override]
        if not _is_affine(other):
            return NotImplemented
        difference = self._combine(other, -1)  # type: ignore[arg-type]
        return joined(Mask((difference, -difference)))

    def __ne__(self, other: object) -> Mask:  # type: ignore[override]
        raise self._not_affine("!=")

    __hash__ = None  # type: ignore[assignment]


def _as_condition(what: str, remedy: str) -> KernelError:
    return KernelError(
        "control flow cannot depend on nl.arange or nl.mgrid",
        happened=f"{what} was used as a condition",
        received=f"{what} used as a condition",
        remedy=remedy,
    )


class Mask:
    """A conjunction: every term, an affine expression, is at least 0."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[IndexExpression, ...]) -> None:
        self.terms = terms

    def __and__(self, other: object) -> Mask | bool:
        if isinstance(other, Mask):
            return Mask(self.terms + other.terms)
        if isinstance(other, (bool, np.bool_)):
            if other:
                return self
            return False
        return NotImplemented

    __rand__ = __and__

    def __or__(self, other: object) -> Mask:
        raise OR_OF_MASKS("| between masks")

    def __bool__(self) -> bool:
        if awaits_other(self):
            report_violation(AND_OF_MASKS("a mask on the left of 'and'"))
            return True
        remedy = "use the instruction's mask argument, and & instead of 'and'"
        raise _as_condition("a mask", remedy)

    @property
    def shape(self) -> Shape:
        shape: Shape = ()
        for term in self.terms:
            shape = broadcast_shapes(shape, term.shape, "mask terms")
        return shape

    def array(self, shape: Shape) -> Array:
        """Return the mask's values, bool, over an instruction of ``shape``."""
        result: Array = np.ones((), dtype=np.bool_)
        for term in self.terms:
            result = result & (term.array() >= 0)
        check_partitions_first(result.shape, shape, "a mask")
        try:
            return np.broadcast_to(result, shape)
        except ValueError:
            received = f"mask of shape {result.shape}, instruction of shape {shape}"
            raise SHAPE_OF_MASK(received) from None


class MGrid(tuple[IndexExpression, ...]):
    """The result of ``nl.mgrid[...]``: an index for each dimension, also as ``.p``, ``.x``, ...

    The names are ``p``, ``x``, ``y``, ``z`` and ``w``.
    """

    __slots__ = ()
    _AXES = ("p", "x", "y", "z", "w")

    def __getattr__(self, name: str) -> IndexExpression:
        if name in self._AXES and self._AXES.index(name) < len(self):
            return self[self._AXES.index(name)]
        raise AttributeError(
            f"a grid of {len(self)} dimensions has {', '.join(self._AXES[: len(self)])}, not {name}"
        )


class MGridMaker:
    """The maker of index grids: ``nl.mgrid``, indexed with slices of integers, as NumPy's."""

    @entering
    def __getitem__(self, key: Any) -> MGrid:
        ranges = []
        for item in key if isinstance(key, tuple) else (key,):
            if not isinstance(item, slice):
                raise wrong_kind(item, "slices", "nl.mgrid")
            start = 0 if item.start is None else item.start
            step = 1 if item.step is None else item.step
            ranges.append(_range("nl.mgrid", start, item.stop, step))
        shape = tuple(map(len, ranges))
        return MGrid(
            IndexExpression(
                shape, r.start, tuple(r.step * (k == at) for k in range(len(shape)))
            )
            for at, r in enumerate(ranges)
        )


def check_partitions_first(shape: Shape, over: Shape, what: str) -> None:
    """Raise if indices of fewer dimensions would put their partitions on a free axis.

    NumPy aligns shapes from the right. The first axis of a tile and of its indices is the partition
    axis (``nki.api.shared.rst`` at tag v2.26.0).

    Raises
    ------
    ShapeError : they have as many rows as ``over`` has partitions, but on another axis.
    """
    if 2 <= len(shape) < len(over) and shape[0] == over[0] > 1:
        raise ShapeError(
            f"the first axis of {what}'s indices is the partitions, as it is of a tile",
            happened=f"{what} over [partitions, ...] has fewer dimensions than its tile",
            received=f"indices of shape {list(shape)} over a tile of shape {list(over)}",
            remedy="give them the tile's dimensions: nl.arange(n)"
            f"[:, {', '.join(['None'] * (len(over) - 1))}]",
        )


def _range(where: str, *args: object) -> range:
    """Return Python's range, which must not be empty."""
    numbers = [as_integer(arg, f"{where} with") for arg in args]
    is_range = 1 <= len(numbers) <= 3 and numbers[2:] != [0]
    if not is_range or not range(*numbers):
        received = ", ".join(map(str, numbers)) or "no argument"
        raise not_taken(
            where,
            "([start,] stop[, step]) with at least one index",
            "a range without an index",
            received,
            error=ShapeError,
            remedy="a size of 0 often comes from M // TILE with M smaller than TILE",
        )
    return range(*numbers)


def arange(*args: int) -> IndexExpression:
    """Return a 1-D index: ``nl.arange([start,] stop[, step])``."""
    r = _range("nl.arange", *args)
    return IndexExpression((len(r),), r.start, (r.step,))
