"""Index expressions: what ``nl.arange``, ``nl.mgrid`` and ``nl.ds`` make, and masks over them.

The hardware walks memory by a start and one step for each axis, so every static index is affine.
:class:`Index` keeps that form and never makes an array of indices; a :class:`Mask` is a
conjunction of comparisons between such expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, Union

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, ShapeError

if TYPE_CHECKING:
    from difftest.simulator.tile import Tile

Shape = tuple[int, ...]
Affine = Union["Index", SupportsIndex]


def as_integer(value: object, what: str) -> int:
    """``value`` as a Python integer.

    Raises
    ------
    KernelError : it is none; a float is refused, not cut off.
    """
    if type(value) is int:
        return value
    if isinstance(value, SupportsIndex):
        try:
            return value.__index__()
        except TypeError:  # an array of several elements has __index__ too
            pass
    raise KernelError(
        "indices and sizes are integers known when the kernel is traced",
        received=f"{what} {value!r:.80} ({type(value).__name__})",
        remedy="use // instead of / in index arithmetic; for an offset held in a tile use "
        "nisa.tensor_copy_dynamic_src",
    )


def as_integers(values: object, what: str) -> Shape:
    """``values``, a sequence or one integer, as Python integers; see :func:`as_integer`."""
    given = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(as_integer(value, what) for value in given)


class DynamicSlice:
    """``nl.ds(start, size)``: ``size`` elements from ``start``."""

    __slots__ = ("size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start = as_integer(start, "nl.ds with start")
        self.size = as_integer(size, "nl.ds with size")
        if self.size < 1:
            raise ShapeError("nl.ds selects at least one element", received=f"size {self.size}")


def broadcast_shapes(a: Shape, b: Shape, what: str) -> Shape:
    """NumPy's broadcast shape of ``a`` and ``b``; ``what`` names the operands in the error."""
    if a == b:
        return a
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(
            f"{what} must have shapes that broadcast", received=f"shapes {a} and {b}"
        ) from None


def is_integer(value: object) -> bool:
    """Whether a value is an integer: Python's, NumPy's, or anything with ``__index__``."""
    return type(value) is int or hasattr(value, "__index__")


def _is_affine(value: object) -> bool:
    return isinstance(value, Index) or is_integer(value)


class Index:
    """An affine expression over index axes: ``start + sum(steps[k] * i_k)``, ``i_k < shape[k]``."""

    __slots__ = ("shape", "start", "steps")

    def __init__(self, shape: Shape, start: int, steps: Shape) -> None:
        self.shape = shape
        self.start = start
        self.steps = steps

    def __repr__(self) -> str:
        return f"Index(shape={self.shape}, start={self.start}, steps={self.steps})"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def array(self) -> Array:
        """The values, int64, of shape ``self.shape``."""
        total = np.full(self.shape, self.start, dtype=np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.steps, strict=True)):
            line = np.arange(size, dtype=np.int64) * step
            total += line.reshape((-1,) + (1,) * (self.ndim - axis - 1))
        return total

    def __getitem__(self, key: Any) -> Index:
        """Insert axes with ``None``; whole axes with ``:`` or ``...``."""
        items = key if isinstance(key, tuple) else (key,)
        if Ellipsis in items:
            at = items.index(Ellipsis)
            kept = sum(1 for item in items if isinstance(item, slice))
            items = items[:at] + (slice(None),) * (self.ndim - kept) + items[at + 1 :]
        shape: list[int] = []
        steps: list[int] = []
        axis = 0
        for item in items:
            if item is None:
                shape.append(1)
                steps.append(0)
            elif item == slice(None) and axis < self.ndim:
                shape.append(self.shape[axis])
                steps.append(self.steps[axis])
                axis += 1
            else:
                raise KernelError(
                    "an index expression takes only ':' and None between its brackets",
                    received=f"{item!r} on an index of shape {self.shape}",
                    remedy="make another nl.arange of the range you want",
                )
        shape.extend(self.shape[axis:])
        steps.extend(self.steps[axis:])
        return Index(tuple(shape), self.start, tuple(steps))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise KernelError(
            "an index does not support item assignment",
            received="an assignment to the result of nl.arange or nl.mgrid",
            remedy="make a tile of it first: nisa.iota(index, dtype=nl.int32)",
        )

    def _combine(self, other: Affine, sign: int) -> Index:
        if not isinstance(other, Index):
            return Index(self.shape, self.start + sign * int(other), self.steps)
        shape = broadcast_shapes(self.shape, other.shape, "index expressions")
        mine, theirs = self.spread(shape), other.spread(shape)
        steps = tuple(a + sign * b for a, b in zip(mine.steps, theirs.steps, strict=True))
        return Index(shape, self.start + sign * other.start, steps)

    def spread(self, shape: Shape) -> Index:
        """The same values broadcast to ``shape``: step 0 along the axes that repeat."""
        missing = len(shape) - self.ndim
        steps = (0,) * missing + tuple(
            step if size == self.shape[axis] else 0
            for axis, (size, step) in enumerate(zip(shape[missing:], self.steps, strict=True))
        )
        return Index(shape, self.start, steps)

    def __add__(self, other: Affine) -> Index:
        return self._combine(other, 1) if _is_affine(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Affine) -> Index:
        return self._combine(other, -1) if _is_affine(other) else NotImplemented

    def __rsub__(self, other: Affine) -> Index:
        return (-self)._combine(other, 1) if _is_affine(other) else NotImplemented

    def __neg__(self) -> Index:
        return self * -1

    def __mul__(self, other: object) -> Index:
        if is_integer(other):
            k = int(other)  # type: ignore[call-overload]
            return Index(self.shape, self.start * k, tuple(step * k for step in self.steps))
        if isinstance(other, Index):
            raise self._not_affine("the product of two indices")
        return NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Index:
        raise self._not_affine("//")

    def __mod__(self, other: object) -> Index:
        raise self._not_affine("%")

    def _not_affine(self, what: str) -> KernelError:
        return KernelError(
            "index expressions must be affine in nl.arange and nl.mgrid",
            received=f"{what} on an index of shape {self.shape}",
            limit="sums of indices, and products with integers",
            remedy="split the axis into two (nl.mgrid with one more dimension), "
            "or put // and % on the loop variable",
        )

    def __bool__(self) -> bool:
        raise KernelError(
            "control flow cannot depend on nl.arange or nl.mgrid",
            received=f"an index of shape {self.shape} used as a condition",
            remedy="use the instruction's mask argument",
        )

    def __le__(self, other: Affine) -> Mask:
        return Mask((other - self,)) if _is_affine(other) else NotImplemented

    def __lt__(self, other: Affine) -> Mask:
        return Mask((other - self - 1,)) if _is_affine(other) else NotImplemented

    def __ge__(self, other: Affine) -> Mask:
        return Mask((self - other,)) if _is_affine(other) else NotImplemented

    def __gt__(self, other: Affine) -> Mask:
        return Mask((self - other - 1,)) if _is_affine(other) else NotImplemented

    def __eq__(self, other: object) -> Mask:  # type: ignore[override]
        if not _is_affine(other):
            return NotImplemented
        difference = self._combine(other, -1)  # type: ignore[arg-type]
        return Mask((difference, -difference))

    def __ne__(self, other: object) -> Mask:  # type: ignore[override]
        raise self._not_affine("!=")

    __hash__ = None  # type: ignore[assignment]


class Mask:
    """A conjunction: every term, an affine expression, is at least 0."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[Index, ...]) -> None:
        self.terms = terms

    def __and__(self, other: object) -> Mask | bool:
        if isinstance(other, Mask):
            return Mask(self.terms + other.terms)
        if isinstance(other, (bool, np.bool_)):
            return self if other else False
        return NotImplemented

    __rand__ = __and__

    def __or__(self, other: object) -> Mask:
        raise KernelError(
            "a mask is a conjunction of comparisons",
            received="| between masks",
            limit="comparisons of affine expressions, joined with &",
            remedy="issue the instruction once for each part",
        )

    def __bool__(self) -> bool:
        raise KernelError(
            "control flow cannot depend on nl.arange or nl.mgrid",
            received="a mask used as a condition",
            remedy="use the instruction's mask argument, and & instead of 'and'",
        )

    @property
    def shape(self) -> Shape:
        shape: Shape = ()
        for term in self.terms:
            shape = broadcast_shapes(shape, term.shape, "mask terms")
        return shape

    def array(self, shape: Shape) -> Array:
        """The mask's values, bool, over an instruction of ``shape``."""
        result = np.ones((), dtype=np.bool_)
        for term in self.terms:
            result = result & (term.array() >= 0)
        try:
            return np.broadcast_to(result, shape)
        except ValueError:
            raise ShapeError(
                "a mask must broadcast to the shape of its instruction",
                received=f"mask of shape {result.shape}, instruction of shape {shape}",
            ) from None


class MGrid(tuple[Index, ...]):
    """``nl.mgrid[...]``: one Index for each dimension, also as ``.p``, ``.x``, ``.y``, ``.z``."""

    __slots__ = ()
    _AXES = ("p", "x", "y", "z", "w")

    def __getattr__(self, name: str) -> Index:
        if name in self._AXES and self._AXES.index(name) < len(self):
            return self[self._AXES.index(name)]
        raise AttributeError(
            f"a grid of {len(self)} dimensions has {', '.join(self._AXES[: len(self)])}, not {name}"
        )


class MGridMaker:
    """``nl.mgrid``: indexed with slices of integers, as NumPy's."""

    def __getitem__(self, key: Any) -> MGrid:
        items = key if isinstance(key, tuple) else (key,)
        ranges = []
        for item in items:
            if not isinstance(item, slice):
                raise KernelError("nl.mgrid takes slices", received=f"{item!r}")
            start = 0 if item.start is None else item.start
            step = 1 if item.step is None else item.step
            ranges.append(_range("nl.mgrid", start, item.stop, step))
        shape = tuple(len(r) for r in ranges)
        axes = []
        for axis, r in enumerate(ranges):
            steps = tuple(r.step if k == axis else 0 for k in range(len(shape)))
            axes.append(Index(shape, r.start, steps))
        return MGrid(axes)


def _range(where: str, *args: object) -> range:
    """Python's range of at least one integer."""
    numbers = [as_integer(arg, f"{where} with") for arg in args]
    if not 1 <= len(numbers) <= 3 or not (len(numbers) < 3 or numbers[2]) or not range(*numbers):
        raise ShapeError(
            f"{where} takes ([start,] stop[, step]) and has at least one index",
            received=", ".join(map(str, numbers)) or "no argument",
            remedy="a size of 0 often comes from M // TILE with M smaller than TILE",
        )
    return range(*numbers)


def arange(*args: int) -> Index:
    """``nl.arange([start,] stop[, step])``: a 1-D index."""
    r = _range("nl.arange", *args)
    return Index((len(r),), r.start, (r.step,))


class DynamicIndex:
    """An index held in a tile, plus an affine part: known only when the kernel runs."""

    __slots__ = ("offset", "tile")

    def __init__(self, tile: Tile, offset: Affine = 0) -> None:
        self.tile = tile
        self.offset = offset
