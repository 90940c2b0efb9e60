"""Machine values with marks as array-likes: on them a record's meaning says what follows from what.

A mark says from which operands' undefined elements an element follows. So one run of the meaning
gives the values, and which of them are not defined either. A result follows from all that it was
computed from, also where the values cancel; but for what a logical or bitwise operator decides by
its other side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.lifted import STEPS, Lifted

PLANE = np.dtype(np.int64)
"""Of marks, which are bits: one for each operand's place, and each kind of what is not defined."""
_KIND = 31
NEVER = (1 << _KIND) - 1
"""The marks of what nothing wrote."""
LEFT = NEVER << _KIND
"""Those of what masks left out."""
REGISTERS = _KIND - 1
"""The place of an engine's registers, beside those of the operands."""

_DECISIVE: dict[Any, Callable[[Any], Any]] = {
    np.logical_and: np.logical_not,
    np.logical_or: lambda side: side != 0,
    np.bitwise_and: lambda side: side == 0,
    np.bitwise_or: lambda side: np.invert(side) == 0,
}
"""Which values of one side decide, whatever the other one is."""


class Reads(Protocol):
    """What marks tell of an instruction (:class:`.definedness.Gapped`).

    Attributes
    ----------
    named : the marks of what names elements.
    decided : the marks of what decides, so that everything follows from it.
    """

    named: int
    decided: int


def mark(place: int, kind: int) -> int:
    """That of an operand by its place."""
    return (kind & -kind) << place


def bits_of(plane: Array) -> int:
    """The marks that a plane has somewhere."""
    return int(np.bitwise_or.reduce(plane, axis=None))


def _values(operand: Any) -> Any:
    return operand.values if isinstance(operand, Marks) else operand


def _plane(operand: Any) -> Any:
    return operand.plane if isinstance(operand, Marks) else np.zeros(np.shape(operand), PLANE)


def _one_plane(operands: Sequence[Any]) -> Any:
    planes = [operand.plane for operand in operands if isinstance(operand, Marks)]
    return functools.reduce(np.bitwise_or, planes)


class Marks(Lifted):
    """Values of a machine, and a plane of their marks."""

    __slots__ = ("plane", "reads", "values")

    def __init__(self, reads: Reads, values: Any, plane: Any) -> None:
        self.reads, self.values = reads, values
        self.plane = plane if plane.shape == values.shape else np.broadcast_to(plane, values.shape)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        shape: tuple[int, ...] = self.values.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def _made(self, values: Any, plane: Any) -> Marks:
        return Marks(self.reads, values, plane)

    def moved(self, change: Callable[[Any], Any]) -> Marks:
        return self._made(change(self.values), change(self.plane))

    def astype(self, dtype: Any) -> Marks:
        return self._made(self.values.astype(dtype), self.plane)

    def view(self, dtype: Any) -> Marks:
        """The same bits as another dtype of their size."""
        return self._made(self.values.view(dtype), self.plane)

    def settled(self) -> Array:
        self.reads.decided |= bits_of(self.plane)
        values: Array = self.values
        return values

    def max(self) -> Any:
        """The largest of what names elements: whether it is inside."""
        self.reads.named |= bits_of(self.plane)
        return self.values.max()

    def __setitem__(self, index: Any, values: Any) -> None:
        self.values[index], self.plane[index] = _values(values), _plane(values)

    def computed(self, ufunc: Any, *operands: Any) -> Marks:
        sides = [_values(operand) for operand in operands]
        if ufunc is np.matmul:
            return self._product(*map(_plane, operands))
        plane, decides = _one_plane(operands), _DECISIVE.get(ufunc)
        if decides is not None:
            for side, values in zip(operands, sides, strict=True):
                plane = np.where(decides(values) & (_plane(side) == 0), 0, plane)
        return self._made(ufunc(*sides), plane)

    def _product(self, left: Array, right: Array) -> Marks:
        """Of a product the marks alone: who makes one writes its values itself."""
        by_row, by_column = np.bitwise_or.reduce(left, axis=1), np.bitwise_or.reduce(right, axis=0)
        plane = by_row[:, None] | by_column
        return self._made(np.broadcast_to(np.float32(0), plane.shape), plane)

    def reduced(self, ufunc: Any, axes: Any, *, keepdims: bool) -> Marks:
        plane, decides = self._all(axes, keepdims=keepdims), _DECISIVE.get(ufunc)
        if decides is not None:
            sure = decides(self.values) & (self.plane == 0)
            plane = np.where(sure.any(axis=axes, keepdims=keepdims), 0, plane)
        return self._made(ufunc.reduce(self.values, axis=axes, keepdims=keepdims), plane)

    def _all(self, axes: Any, *, keepdims: Any = False) -> Any:
        return np.bitwise_or.reduce(self.plane, axis=axes, keepdims=keepdims)

    def sum(self, axis: int, dtype: Any = None, *, keepdims: bool = False) -> Marks:
        values = self.values.sum(axis=axis, dtype=dtype, keepdims=keepdims)
        return self._made(values, self._all(axis, keepdims=keepdims))

    def mean(self, axis: int, dtype: Any = None) -> Marks:
        return self._made(self.values.mean(axis=axis, dtype=dtype), self._all(axis))

    # -- other functions of NumPy's ----------------------------------------------------------------

    def do_where(self, condition: Any, yes: Any, no: Any) -> Marks:
        chosen = _values(condition)
        plane = np.where(chosen, _plane(yes), _plane(no)) | _plane(condition)
        return self._made(np.where(chosen, _values(yes), _values(no)), plane)

    def do_zeros(self, shape: tuple[int, ...]) -> Marks:
        return self._made(np.zeros(shape, self.dtype), np.zeros(shape, PLANE))

    def do_full_like(self, like: Any, number: float) -> Marks:
        return self._made(np.full_like(like.values, number), np.zeros(like.shape, PLANE))

    def do_concatenate(self, parts: Sequence[Any], axis: int) -> Marks:
        values, plane = (np.concatenate([*map(of, parts)], axis=axis) for of in (_values, _plane))
        return self._made(values, plane)

    def _ordered(self, order: Any, array: Marks, axis: int, kind: Any = None) -> Marks:
        """Any element may come to lie at each place."""
        plane = array._all(axis, keepdims=True)
        return self._made(order(array.values, axis=axis, kind=kind), plane)

    def _taken(self, take: Any, array: Any, places: Any, axis: int) -> Marks:
        named, at = _plane(places), _values(places)
        values, plane = (take(plane, at, axis=axis) for plane in (array.values, array.plane))
        return self._made(values, plane | named)

    do_sort = functools.partialmethod(_ordered, np.sort)
    do_argsort = functools.partialmethod(_ordered, np.argsort)
    do_take_along_axis = functools.partialmethod(_taken, np.take_along_axis)
    do_take = functools.partialmethod(_taken, np.take)

    def do_put_along_axis(self, array: Marks, places: Any, values: Any, axis: int) -> None:
        np.put_along_axis(array.values, _values(places), values, axis=axis)
        array.plane = array.plane | np.bitwise_or.reduce(_plane(places), axis=axis, keepdims=True)

    # -- steps -------------------------------------------------------------------------------------

    def do(self, name: str, *args: Any, **how: Any) -> Any:
        if name not in _BY_ELEMENT:
            return super().do(name, *args, **how)
        values = STEPS[name](*map(_values, args), **how)
        return None if values is None else self._made(values, _one_plane(args))

    def do_sum_in_order(self, lines: Marks, start: Marks | None = None) -> Marks:
        plane = lines._all(1)
        if start is not None:
            plane = plane | start.plane
        return self._made(STEPS["sum_in_order"](lines.values, start=_values(start)), plane)

    def do_matches(self, data: Marks, vals: Marks, *how: Any, **options: Any) -> Marks:
        """Each place follows from all of its row; a row that nothing wrote finds nothing."""
        lines = [side.plane.reshape(len(side), -1) for side in (data, vals)]
        plane = np.bitwise_or.reduce(np.concatenate(lines, axis=1), axis=1, keepdims=True)
        lost = (plane[:, 0] & NEVER) != 0
        if lost.all():
            return self._made(np.zeros(vals.shape, np.int64), plane)
        rows = np.where(lost, np.argmin(lost), np.arange(len(lost)))  # another one in its place
        places = STEPS["matches"](data.values[rows], vals.values[rows], *how, **options)
        return self._made(places, plane)

    def do_quantized(self, groups: Marks, dtype: Any) -> tuple[Marks, Marks]:
        """All elements of a group follow from each of them, by its scale."""
        packed, exponents = STEPS["quantized"](groups.values, dtype)
        plane = groups._all((1, 3))
        return self._made(packed, plane[:, None, :]), self._made(exponents, plane)


_BY_ELEMENT = frozenset(
    ("activated", "check_range", "in_integers", "multiply_add", "rounded_integers", "rsqrt")
)
"""Steps whose results follow from the operands' elements at their places; or have none."""
