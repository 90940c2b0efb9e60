"""Index expressions (``nl.arange``, ``nl.mgrid``, ``nl.ds``) and masks, as arrays of integers.

What the compiler could not trace is refused here too: it takes affine expressions only.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.frontend.classic.conjunction import awaits_other, joined
from difftest.simulator.frontend.classic.shapes import whole
from difftest.simulator.plain.rounding import Array
from difftest.simulator.strictness import note

Shape = tuple[int, ...]


def integer(value: Any, what: str) -> int:
    """``value`` as a Python integer; a float, even a whole one, is refused."""
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise KernelError(
            f"{what} is an integer",
            happened=f"{what} is a {type(value).__name__}",
            received=f"{value!r:.80}",
        ) from None


def integers(values: Any, what: str) -> Shape:
    """One integer or several as a tuple."""
    several = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(integer(value, what) for value in several)


def whole_numbers(values: Any, where: str) -> Shape:
    """:func:`integers`; a float that is a whole number too."""
    several = values if isinstance(values, (tuple, list)) else (values,)
    sizes = tuple(whole(value, f"{several!r}", where) for value in several)
    return integers(sizes, f"{where}'s shape")


def is_integer(value: object) -> bool:
    """Whether a value can be an index by itself."""
    return hasattr(value, "__index__")


def inside(value: Any) -> Any:
    """An index, a mask or a slice that was made outside the kernel, as this mode has it.

    Where no kernel runs the fast mode makes them. They are told by their form: an index is
    ``start + sum(steps[k] * i_k)`` over ``shape``, a mask the ``terms`` that are at least 0, a loop
    its ``numbers``.
    """
    if hasattr(value, "steps"):
        axes = np.indices(value.shape, dtype=np.int64)
        along = [step * axis for step, axis in zip(value.steps, axes, strict=True)]
        return PlainIndex(np.asarray(sum(along, start=np.int64(value.start))))
    if hasattr(value, "terms"):
        terms = [PlainMask(inside(term).values >= 0) for term in value.terms]
        return functools.reduce(operator.and_, terms)
    if hasattr(value, "numbers"):
        return value.numbers
    if hasattr(value, "start") and hasattr(value, "size"):
        return Slice(value.start, value.size, least=0)  # its own mode has checked it
    return value


def common_shape(*shapes: Shape) -> Shape:
    """NumPy's broadcast shape."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            "shapes broadcast", happened="shapes that do not broadcast met", received=f"{shapes}"
        ) from None


class Slice:
    """``nl.ds(start, size)``, where ``size`` is ``least`` or more."""

    def __init__(self, start: Any, size: Any, least: int = 1) -> None:
        self.start, self.size = integer(start, "nl.ds' start"), integer(size, "nl.ds' size")
        if self.size < least:
            raise ShapeError(
                "nl.ds selects at least one element",
                happened=f"nl.ds selected {self.size} elements",
                received=f"size {self.size}",
            )


class PlainIndex:
    """The values of an affine expression of indices, int64."""

    def __init__(self, values: Array) -> None:
        self.values = values

    @property
    def shape(self) -> Shape:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def __getitem__(self, key: Any) -> PlainIndex:
        items = key if isinstance(key, tuple) else (key,)
        if not all(item is None or item is Ellipsis or item == slice(None) for item in items):
            raise KernelError(
                "an index expression takes only ':' and None",
                happened="an index expression was indexed with more than ':' and None",
                received=f"[{key!r}]",
            )
        try:
            return PlainIndex(self.values[key])
        except IndexError as error:
            raise KernelError(
                "an index has no more ':' than axes",
                happened="an index expression was indexed by more ':' than it has axes",
                received=f"{error}",
            ) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        raise KernelError(
            "an index is not assigned to",
            happened="something was assigned to an index expression",
            received=f"[{key!r}] = {value!r:.80}",
        )

    def __bool__(self) -> bool:
        raise KernelError(
            "control flow cannot depend on an index",
            happened="an index expression was used as a condition",
            received="a condition",
        )

    def _with(self, other: Any, sign: int) -> Any:
        other = inside(other)
        if isinstance(other, PlainIndex):
            common_shape(self.shape, other.shape)
            return PlainIndex(self.values + sign * other.values)
        return PlainIndex(self.values + sign * int(other)) if is_integer(other) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._with(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._with(other, 1)

    def __neg__(self) -> PlainIndex:
        return PlainIndex(-self.values)

    def __mul__(self, other: Any) -> Any:
        if isinstance(inside(other), PlainIndex):
            raise _not_affine("the product of two indices")
        return PlainIndex(self.values * int(other)) if is_integer(other) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        raise _not_affine("//")

    def __mod__(self, other: Any) -> Any:
        raise _not_affine("%")

    def _compare(self, other: Any, comparison: Any, parts: int = 1) -> Any:
        difference = self._with(other, -1)
        if difference is NotImplemented:
            return NotImplemented
        return joined(PlainMask(*(comparison(difference.values, 0) for _ in range(parts))))

    def __le__(self, other: Any) -> Any:
        return self._compare(other, np.less_equal)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, np.less)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, np.greater_equal)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, np.greater)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, np.equal, 2)

    def __ne__(self, other: object) -> Any:
        raise _not_affine("!=")

    __hash__ = None  # type: ignore[assignment]


def _not_affine(what: str) -> KernelError:
    return KernelError(
        "index expressions are affine",
        happened=f"{what} made an index expression that is not affine",
        received=what,
    )


class PlainMask:
    """Comparisons of index expressions joined by ``&``: the bools of each inequality."""

    def __init__(self, *parts: Array) -> None:
        self.parts = parts

    @property
    def values(self) -> Array:
        return functools.reduce(operator.and_, self.parts)

    def __and__(self, other: Any) -> Any:
        other = inside(other)
        if isinstance(other, PlainMask):
            common_shape(self.values.shape, other.values.shape)
            return PlainMask(*self.parts, *other.parts)
        if isinstance(other, (bool, np.bool_)):
            return self if other else False
        return NotImplemented

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        raise KernelError(
            "a mask is a conjunction of comparisons",
            happened="two masks were joined with |",
            received="|",
        )

    def __bool__(self) -> bool:
        if awaits_other(self):
            error = KernelError(
                "comparisons of indices are joined with &",
                happened="two masks were joined with 'and'",
                received="a mask on the left of 'and'",
            )
            note(error)
            return True
        raise KernelError(
            "control flow cannot depend on a mask",
            happened="a mask was used as a condition",
            received="a condition",
        )


class PlainMaskedOperand:
    """``tile[mask]``: what of a matrix product's operand takes part in it."""

    def __init__(self, tile: Any, mask: PlainMask) -> None:
        self.tile, self.mask = tile, mask

    def __repr__(self) -> str:
        return f"{self.tile!r} under a mask"

    def __getitem__(self, key: Any) -> PlainMaskedOperand:
        error = KernelError(
            "a product's operand has one mask between its brackets",
            happened="a tile under a mask was indexed once more",
            received=f"{key!r:.80}",
        )
        if not isinstance(key, PlainMask):
            raise error
        note(error)
        return PlainMaskedOperand(self.tile, self.mask & key)


class Offset:
    """An index held in a tile plus an affine part."""

    def __init__(self, tile: Any, index: PlainIndex) -> None:
        self.tile, self.index = tile, index


class Grid(tuple[PlainIndex, ...]):
    """What ``nl.mgrid[...]`` gives: dense indices, also by the names of their axes."""

    def __getattr__(self, name: str) -> PlainIndex:
        if len(name) == 1 and name in "pxyzw"[: len(self)]:
            return self["pxyzw".index(name)]
        raise AttributeError(f"a grid of {len(self)} dimensions has no {name!r}")


def _range(where: str, *args: Any) -> range:
    numbers = [integer(arg, f"{where}'s argument") for arg in args]
    if not 1 <= len(numbers) <= 3 or numbers[2:] == [0] or not range(*numbers):
        raise ShapeError(
            f"{where} has at least one index",
            happened=f"{where} was given a range without an index",
            received=f"{numbers}",
        )
    return range(*numbers)


def arange(*args: Any) -> PlainIndex:
    """``nl.arange``: NumPy's."""
    return PlainIndex(np.array(_range("nl.arange", *args), dtype=np.int64))


def mgrid(key: Any) -> Grid:
    """``nl.mgrid[key]``: NumPy's dense grid of ranges."""
    ranges = []
    for item in key if isinstance(key, tuple) else (key,):
        if not isinstance(item, slice):
            raise KernelError(
                "nl.mgrid takes slices",
                happened=f"nl.mgrid was indexed with a {type(item).__name__}",
                received=f"{item!r}",
            )
        step = 1 if item.step is None else item.step
        ranges.append(_range("nl.mgrid", item.start or 0, item.stop, step))
    dense = np.meshgrid(*(np.array(r, dtype=np.int64) for r in ranges), indexing="ij")
    return Grid(PlainIndex(values) for values in dense)


def mask_over(mask: Any, shape: Shape) -> Array:
    """An instruction's ``mask`` as bools over its ``shape``; all true where there is none."""
    if mask is None:
        return np.ones(shape, dtype=np.bool_)
    if isinstance(mask, (bool, np.bool_)):
        return np.full(shape, bool(mask))
    if not isinstance(mask, PlainMask):
        raise KernelError(
            "a mask is made of comparisons of indices",
            happened=f"a {type(mask).__name__} was given as a mask",
            received=f"{mask!r:.80}",
        )
    partitions_first(mask.values.shape, shape, "a mask")
    try:
        return np.array(np.broadcast_to(mask.values, shape))
    except ValueError:
        raise ShapeError(
            "a mask broadcasts to its instruction",
            happened="a mask has a shape that its instruction's does not hold",
            received=f"{mask.values.shape} to {shape}",
        ) from None


def partitions_first(given: Shape, over: Shape, what: str) -> None:
    """Raise where fewer indices than dimensions would align partitions with a free axis."""
    if 2 <= len(given) < len(over) and given[0] == over[0] > 1:
        raise ShapeError(
            f"the first axis of {what}'s indices is the partitions",
            happened=f"{what} over [partitions, ...] has fewer dimensions than its tile",
            received=f"{given} over {over}",
        )


def check_index_shapes(tiles: list[Shape], access: Shape) -> None:
    """A tile of indices has its partitions first in an access, and so as many dimensions."""
    for shape in tiles:
        if len(shape) < len(access) and shape[:1] > (1,):
            raise ShapeError(
                "a tile of indices has the dimensions of the access",
                happened=f"an access of {len(access)} dimensions got a tile of {len(shape)}",
                received=f"{shape} in {access}",
            )


def elements_of(shape: Shape) -> int:
    """How many elements a shape has."""
    return math.prod(shape)


def bytes_of(positions: Array, itemsize: int) -> Array:
    """The positions of the bytes of elements, along a new last axis."""
    numbers: Array = positions[..., None] * itemsize + np.arange(itemsize)
    return numbers


def with_whole_axes(items: tuple[Any, ...], tensor: Any) -> tuple[Any, ...]:
    """Whole axes for the dimensions that no item names, behind those of the indices; HBM only.

    Raises
    ------
    ShapeError : the tensor is on chip, or it is indexed by expressions and tiles at once.
    """
    if len(items) == tensor.ndim:
        return items
    error = ShapeError(
        "advanced indexing names every dimension",
        happened=f"a tensor of {tensor.ndim} dimensions got {len(items)} advanced indices",
        received=repr(tensor),
    )
    kinds = {type(item) for item in items if not is_integer(item)}
    if not tensor.in_hbm or len(items) > tensor.ndim or len(kinds) > 1 or Offset in kinds:
        raise error
    note(error)
    rest = tensor.shape[len(items) :]
    ones, named = (1,) * len(rest), []
    for item in items:
        if isinstance(item, PlainIndex):
            item = PlainIndex(item.values.reshape(*item.shape, *ones))
        elif not is_integer(item):  # a tile; of one index a partition the free one is not kept
            have = item.tile().shape
            item = item.tile().reshape((*(have[:1] if item.size == have[0] else have), *ones))
        named.append(item)
    whole = [
        PlainIndex(np.arange(size).reshape(*(1,) * (axis + 1), -1, *(1,) * (len(rest) - axis - 1)))
        for axis, size in enumerate(rest)
    ]
    return (*named, *whole)


def walks_by_strides(positions: Array) -> bool:
    """Whether each axis steps through memory by one number."""
    expected = np.full(positions.shape, positions.reshape(-1)[0])
    for axis, size in enumerate(positions.shape):
        if size > 1:
            corner = [0] * positions.ndim
            corner[axis] = 1
            step = positions[tuple(corner)] - positions.reshape(-1)[0]
            line = np.arange(size).reshape(-1, *(1,) * (positions.ndim - axis - 1))
            expected = expected + line * step
    return bool((expected == positions).all())


def check_partition_walk(
    arrays: list[Array], shape: Shape, partition: int | None, received: str
) -> None:
    """On chip the result's first axis walks the partitions, and the others do not."""
    if len(shape) < 2:
        raise ShapeError(
            "a tile's index has at least two dimensions, partition and free",
            happened="a tile on chip was indexed with index expressions of one dimension",
            received=received,
        )
    for axis, array in enumerate(arrays):
        whole = np.broadcast_to(array, shape)
        free = (slice(None), *[slice(1)] * (len(shape) - 1))
        first = whole[free] if axis == partition else whole[:1]
        if shape[0] > 1 and (whole != first).any():
            raise KernelError(
                "the first axis of an on-chip access walks the partitions, the others do not",
                happened=f"the index of axis {axis} changes along another axis than its own",
                received=f"axis {axis} of {received}",
            )
