"""Machine values with marks as array-likes: a record's meaning, applied to them, gives dependences.

A mark names the operands whose undefined elements an element depends on. So one run of the meaning
gives both the values and their undefined elements. A result depends on all of its inputs, also if
values cancel. The exception is a logical or bitwise operator decided by its other side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from difftest.simulator.dtypes import Array, DType
from difftest.simulator.lifted import STEPS, Lifted
from difftest.simulator.pattern import Shape

TAINT_DTYPE = np.dtype(np.int64)
"""The dtype of marks. A mark is a bit for an operand's place and a kind."""
_KIND = 31
UNWRITTEN_BITS = (1 << _KIND) - 1
"""The marks of unwritten elements."""
MASKED_BITS = UNWRITTEN_BITS << _KIND
"""The marks of masked-out elements."""
REGISTERS = _KIND - 1
"""The place of an engine's registers, after the operands' places."""

_DECISIVE: dict[Any, Callable[[Any], Any]] = {
    np.logical_and: np.logical_not,
    np.logical_or: lambda side: side != 0,
    np.bitwise_and: lambda side: side == 0,
    np.bitwise_or: lambda side: np.invert(side) == 0,
}
"""The values of one side that decide the result, for any values of the other side."""


class TaintSink(Protocol):
    """A receiver of an instruction's marks (:class:`.definedness.UndefinedOperands`).

    Attributes
    ----------
    named : the marks of indices.
    decided : the marks of decisions; all results depend on them.
    """

    named: int
    decided: int


def taint_bit(place: int, kind: int) -> int:
    """Return the mark of an operand by its place."""
    return (kind & -kind) << place


def taint_bits(plane: Array) -> int:
    """Return the union of a plane's marks."""
    return int(np.bitwise_or.reduce(plane, axis=None))


def _values(operand: Any) -> Any:
    if isinstance(operand, TaintedArray):
        return operand.values
    return operand


def _plane(operand: Any) -> Any:
    if isinstance(operand, TaintedArray):
        return operand.taint
    return np.zeros(np.shape(operand), TAINT_DTYPE)


def _one_plane(operands: Sequence[Any]) -> Any:
    planes = [
        operand.taint for operand in operands if isinstance(operand, TaintedArray)
    ]
    return functools.reduce(np.bitwise_or, planes)


class TaintedArray(Lifted):
    """A machine's values, with a plane of marks."""

    __slots__ = ("reads", "taint", "values")

    def __init__(self, reads: TaintSink, values: Any, plane: Any) -> None:
        self.reads = reads
        self.values = values
        self.taint = (
            plane
            if plane.shape == values.shape
            else np.broadcast_to(plane, values.shape)
        )

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        shape: Shape = self.values.shape
        return shape

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        dtype: DType = self.values.dtype
        return dtype

    def _made(self, values: Any, plane: Any) -> TaintedArray:
        return TaintedArray(self.reads, values, plane)

    def moved(self, change: Callable[[Any], Any]) -> TaintedArray:
        return self._made(change(self.values), change(self.taint))

    def astype(self, dtype: Any) -> TaintedArray:
        return self._made(self.values.astype(dtype), self.taint)

    def view(self, dtype: Any) -> TaintedArray:
        """Return the same bits as another dtype of their size."""
        return self._made(self.values.view(dtype), self.taint)

    def settled(self) -> Array:
        self.reads.decided |= taint_bits(self.taint)
        values: Array = self.values
        return values

    def max(self) -> Any:
        """Return the largest value, for a bounds check of indices."""
        self.reads.named |= taint_bits(self.taint)
        return self.values.max()

    def __setitem__(self, index: Any, values: Any) -> None:
        self.values[index], self.taint[index] = _values(values), _plane(values)

    def computed(self, ufunc: Any, *operands: Any) -> TaintedArray:
        sides = [_values(operand) for operand in operands]
        if ufunc is np.matmul:
            return self._product(*map(_plane, operands))
        plane = _one_plane(operands)
        decides = _DECISIVE.get(ufunc)
        if decides is not None:
            for side, values in zip(operands, sides, strict=True):
                plane = np.where(decides(values) & (_plane(side) == 0), 0, plane)
        return self._made(ufunc(*sides), plane)

    def _product(self, left: Array, right: Array) -> TaintedArray:
        """Return the marks of a product; its values are written elsewhere."""
        by_row = np.bitwise_or.reduce(left, axis=1)
        by_column = np.bitwise_or.reduce(right, axis=0)
        plane = by_row[:, None] | by_column
        return self._made(np.broadcast_to(np.float32(0), plane.shape), plane)

    def reduced(self, ufunc: Any, axes: Any, *, keepdims: bool) -> TaintedArray:
        plane = self._all(axes, keepdims=keepdims)
        decides = _DECISIVE.get(ufunc)
        if decides is not None:
            sure = decides(self.values) & (self.taint == 0)
            plane = np.where(sure.any(axis=axes, keepdims=keepdims), 0, plane)
        return self._made(
            ufunc.reduce(self.values, axis=axes, keepdims=keepdims), plane
        )

    def _all(self, axes: Any, *, keepdims: Any = False) -> Any:
        return np.bitwise_or.reduce(self.taint, axis=axes, keepdims=keepdims)

    def sum(
        self, axis: int, dtype: Any = None, *, keepdims: bool = False
    ) -> TaintedArray:
        values = self.values.sum(axis=axis, dtype=dtype, keepdims=keepdims)
        return self._made(values, self._all(axis, keepdims=keepdims))

    def mean(self, axis: int, dtype: Any = None) -> TaintedArray:
        return self._made(self.values.mean(axis=axis, dtype=dtype), self._all(axis))

    # -- other NumPy functions ---------------------------------------------------------------------

    def do_where(self, condition: Any, yes: Any, no: Any) -> TaintedArray:
        chosen = _values(condition)
        plane = np.where(chosen, _plane(yes), _plane(no)) | _plane(condition)
        return self._made(np.where(chosen, _values(yes), _values(no)), plane)

    def do_zeros(self, shape: Shape) -> TaintedArray:
        return self._made(np.zeros(shape, self.dtype), np.zeros(shape, TAINT_DTYPE))

    def do_full_like(self, like: Any, number: float) -> TaintedArray:
        return self._made(
            np.full_like(like.values, number), np.zeros(like.shape, TAINT_DTYPE)
        )

    def do_concatenate(self, parts: Sequence[Any], axis: int) -> TaintedArray:
        values, plane = (
            np.concatenate(list(map(of, parts)), axis=axis) for of in (_values, _plane)
        )
        return self._made(values, plane)

    def _ordered(
        self, order: Any, array: TaintedArray, axis: int, kind: Any = None
    ) -> TaintedArray:
        """Order an array; each place may get any element, so it gets all marks."""
        plane = array._all(axis, keepdims=True)
        return self._made(order(array.values, axis=axis, kind=kind), plane)

    def _taken(self, take: Any, array: Any, places: Any, axis: int) -> TaintedArray:
        named = _plane(places)
        at = _values(places)
        values, plane = (
            take(plane, at, axis=axis) for plane in (array.values, array.taint)
        )
        return self._made(values, plane | named)

    do_sort = functools.partialmethod(_ordered, np.sort)
    do_argsort = functools.partialmethod(_ordered, np.argsort)
    do_take_along_axis = functools.partialmethod(_taken, np.take_along_axis)
    do_take = functools.partialmethod(_taken, np.take)

    def do_put_along_axis(
        self, array: TaintedArray, places: Any, values: Any, axis: int
    ) -> None:
        np.put_along_axis(array.values, _values(places), values, axis=axis)
        array.taint = array.taint | np.bitwise_or.reduce(
            _plane(places), axis=axis, keepdims=True
        )

    # -- steps -------------------------------------------------------------------------------------

    def do(self, name: str, *args: Any, **how: Any) -> Any:
        if name not in _BY_ELEMENT:
            return super().do(name, *args, **how)
        values = STEPS[name](*map(_values, args), **how)
        if values is None:
            return None
        return self._made(values, _one_plane(args))

    def do_sum_in_order(
        self, lines: TaintedArray, start: TaintedArray | None = None
    ) -> TaintedArray:
        plane = lines._all(1)
        if start is not None:
            plane = plane | start.taint
        return self._made(
            STEPS["sum_in_order"](lines.values, start=_values(start)), plane
        )

    def do_matches(
        self, data: TaintedArray, vals: TaintedArray, *how: Any, **options: Any
    ) -> TaintedArray:
        """Find places, which depend on their whole row; an unwritten row finds nothing."""
        lines = [side.taint.reshape(len(side), -1) for side in (data, vals)]
        plane = np.bitwise_or.reduce(
            np.concatenate(lines, axis=1), axis=1, keepdims=True
        )
        lost = (plane[:, 0] & UNWRITTEN_BITS) != 0
        if lost.all():
            return self._made(np.zeros(vals.shape, np.int64), plane)
        # another row in its place
        rows = np.where(lost, np.argmin(lost), np.arange(len(lost)))
        places = STEPS["matches"](data.values[rows], vals.values[rows], *how, **options)
        return self._made(places, plane)

    def do_quantized(
        self, groups: TaintedArray, dtype: Any
    ) -> tuple[TaintedArray, TaintedArray]:
        """Quantize groups; each element depends on its whole group, by the common scale."""
        packed, exponents = STEPS["quantized"](groups.values, dtype)
        plane = groups._all((1, 3))
        return self._made(packed, plane[:, None, :]), self._made(exponents, plane)


_BY_ELEMENT = frozenset(
    (
        "activated",
        "check_range",
        "in_integers",
        "multiply_add",
        "rounded_integers",
        "rsqrt",
    )
)
"""Steps whose results depend only on the operands' elements at the same place, or without results.
"""
