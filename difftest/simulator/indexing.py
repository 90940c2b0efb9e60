"""Indexing: the pattern that a tile and its indices select.

Each dimension is walked by itself, so that an error can name the dimension that an index leaves. A
mask may still limit such an index. A dialect's other kinds of indices are in its frontend. No
pattern copies data. A selection that has no pattern is an error with the reason.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from difftest.simulator.dtypes import DType, dtype_name
from difftest.simulator.errors import NkiError, OutOfBoundsError, ShapeError
from difftest.simulator.index import left_tensor, no_element, slice_bounds
from difftest.simulator.memory import Storage
from difftest.simulator.misuses import RESHAPE_OF_SLICE
from difftest.simulator.pattern import Pattern, Shape


class Axis(NamedTuple):
    """The walk of one dimension of the indexed tile: a start, and a step for each result axis."""

    size: int
    start: int
    steps: Shape


def span(axis: Axis, shape: Shape) -> tuple[int, int]:
    """Return the lowest and the highest index of the walk of one dimension."""
    reach = [step * (n - 1) for step, n in zip(axis.steps, shape, strict=True)]
    low = axis.start + sum(min(0, r) for r in reach)
    high = axis.start + sum(max(0, r) for r in reach)
    return low, high


def leaves_bounds(axis: Axis, shape: Shape) -> bool:
    """Return whether the walk of one dimension goes below 0 or beyond its size."""
    low, high = span(axis, shape)
    return low < 0 or high >= axis.size


class Patterned:
    """The elements that a pattern of a tensor selects, in units of ``dtype``."""

    __slots__ = ()

    if TYPE_CHECKING:
        _axes: Any
        """None; or, if the pattern leaves its tensor, the walks, or the error of any use."""
        dtype: DType
        _partition_axis: int | None
        _pattern: Pattern
        shape: Shape
        _storage: Storage

    @property
    def offset(self) -> int:
        """The first element of the pattern, in its storage."""
        return self._pattern[0]

    @property
    def strides(self) -> Shape:
        """The pattern's steps, in elements."""
        return self._pattern[2]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def _itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize


# a NamedTuple's own __new__ takes twice the time, for each access
_make = tuple.__new__

Named = tuple[Pattern, int | None, tuple[Axis, ...] | None]
"""The result of indexing a tile: the pattern, its partition axis, and the walks of the tile's
dimensions if one of them leaves its dimension.
"""


def indexed_view(tile: Patterned, items: tuple[Any, ...]) -> Named | None:
    """Return the result of integers, slices and None, in bounds or not; None for other indices."""
    offset, sizes, strides = tile._pattern
    if len(items) > len(sizes):
        return _view_with_new_axes(tile, items)
    counts: list[int] = []
    steps: list[int] = []
    partition = tile._partition_axis
    inside = tile._axes is None
    axis = 0
    for item in items:
        kind = type(item)
        size = sizes[axis]
        stride = strides[axis]
        axis += 1
        if kind is int:
            inside &= 0 <= item < size
            offset += item * stride
            if partition is not None:
                partition = _axis_without(len(counts), partition)
            continue
        if kind is not slice:
            return _view_with_new_axes(tile, items)
        start = item.start
        end = item.stop
        step = item.step
        if not start is end is step is None:
            if step is None and type(start) is type(end) is int:
                count = end - start
            else:
                start, end, step = slice_bounds(item, size)
                count = -(-(end - start) // step)
                end = start + (count - 1) * step + 1
                stride *= step
            inside &= 0 <= start < end <= size
            offset += start * strides[axis - 1]
            size = count
        counts.append(size)
        steps.append(stride)
    if axis < len(sizes):
        counts += sizes[axis:]
        steps += strides[axis:]
    shape = tuple(counts)
    if inside:
        return _make(Pattern, (offset, shape, tuple(steps))), partition, None
    return _view_outside(tile, items, shape, partition)


def _view_outside(
    tile: Patterned, items: tuple[Any, ...], shape: Shape, partition: int | None
) -> Named:
    """Return the result of an index that leaves the tile, or of a tile that leaves its tensor."""
    if isinstance(tile._axes, NkiError):
        raise tile._axes
    return strided_view(tile, _walks(tile, items, shape), shape, partition)


def _axis_without(removed: int, axis: int) -> int | None:
    """Return the number of an axis after the removal of another; None for the removed one."""
    if axis == removed:
        return None
    return axis - (axis > removed)


def _view_with_new_axes(tile: Patterned, items: tuple[Any, ...]) -> Named | None:
    """Return the result of indices among which None adds an axis; None for other indices."""
    others = tuple([item for item in items if item is not None])
    if len(others) == len(items) or len(others) > tile.ndim:
        return None
    part = indexed_view(tile, others)
    axis = 0
    for item in items:
        if item is None and part is not None:
            part = _with_new_axis(part, axis)
        axis += type(item) is not int
    return part


def _with_new_axis(part: Named, axis: int) -> Named:
    """Return the result of indexing with one more axis, of one element."""
    (offset, shape, strides), partition, walks = part
    pattern = Pattern(offset, _inserted(shape, axis, 1), _inserted(strides, axis, 0))
    if partition is not None and partition >= axis:
        partition += 1
    if walks is not None:
        walks = tuple(
            [walk._replace(steps=_inserted(walk.steps, axis, 0)) for walk in walks]
        )
    return pattern, partition, walks


def _inserted(numbers: Shape, place: int, number: int) -> Shape:
    return numbers[:place] + (number,) + numbers[place:]


def _walks(
    tile: Patterned, items: tuple[Any, ...], shape: Shape
) -> list[tuple[int, Shape]]:
    """Return the first index of each dimension, and a step for each axis of the result."""
    walks: list[tuple[int, Shape]] = []
    at = 0
    for axis, size in enumerate(tile.shape):
        item = items[axis] if axis < len(items) else slice(None)
        if type(item) is int:
            walks.append((item, (0,) * len(shape)))
            continue
        start, end, step = slice_bounds(item, size)
        if end <= start:
            raise no_element(item, f"axis {axis} of {tile!r}")
        walks.append((start, tuple([step * (k == at) for k in range(len(shape))])))
        at += 1
    return walks


def names_two(items: tuple[Any, ...]) -> bool:
    """Return whether an index covers two dimensions."""
    return sum(1 for item in items if item is not None and item is not Ellipsis) == 2


def strided_view(
    tile: Patterned, walks: list[tuple[int, Shape]], shape: Shape, partition: int | None
) -> Named:
    """Return the result of a walk of each dimension: a start, and a step for each result axis.

    A part of a tile that leaves its tensor may be inside the tensor.
    """
    offset, sizes, strides = tile._pattern
    for stride, (start, _) in zip(strides, walks, strict=True):
        offset += start * stride
    axes = [
        Axis(size, start, steps)
        for size, (start, steps) in zip(sizes, walks, strict=True)
    ]
    over = any(leaves_bounds(axis, shape) for axis in axes)
    if isinstance(tile._axes, tuple):
        if over:
            raise out_of_bounds(tile, tile._axes)
        axes = [_axis_of_part(axis, walks, shape) for axis in tile._axes]
        over = any(leaves_bounds(axis, shape) for axis in axes)
    pattern = Pattern(offset, shape, _along(strides, walks, shape))
    return pattern, partition, tuple(axes) if over else None


def _axis_of_part(axis: Axis, walks: list[tuple[int, Shape]], shape: Shape) -> Axis:
    """Return the walk of a tensor's dimension by a part of a tile, for the tile's own walk."""
    start = axis.start
    for step, (first, _) in zip(axis.steps, walks, strict=True):
        start += step * first
    return Axis(axis.size, start, _along(axis.steps, walks, shape))


def _along(strides: Shape, walks: list[tuple[int, Shape]], shape: Shape) -> Shape:
    """Return the steps along a result's axes, for ``strides`` along the walks."""
    totals = [0] * len(shape)
    for stride, (_, steps) in zip(strides, walks, strict=True):
        for k, step in enumerate(steps):
            totals[k] += stride * step
    return tuple(totals)


def out_of_bounds(tile: Patterned, axes: tuple[Axis, ...]) -> OutOfBoundsError:
    """Return the error for a tile whose walks leave their dimensions."""
    number = next(k for k, axis in enumerate(axes) if leaves_bounds(axis, tile.shape))
    axis = axes[number]
    low, high = span(axis, tile.shape)
    return left_tensor(
        "an access",
        f"index {low if low < 0 else high} of {axis.size}",
        f"indices {low} to {high} on axis {number} of {tile._storage.allocation}",
        f"0 to {axis.size - 1}",
        "correct the loop's bounds, or give the instruction a mask "
        "(NKI does not wrap negative indices)",
    )


# -- other patterns: reshaped, repeated, of another dtype, made by hand ----------------------------


def reshaped(view: Patterned, shape: Shape, head: int = 0) -> Pattern:
    """Return the pattern of the elements in another shape of equal size.

    The first ``head`` dimensions are kept. One size may be -1.
    """
    size = math.prod(view.shape)
    shape = completed(shape, size)
    if math.prod(shape) != size or min(shape, default=1) < 1:
        raise ShapeError(
            "reshape keeps the number of elements",
            happened=f"reshape was to make {size} elements {math.prod(shape)}",
            received=f"{view!r} to {list(shape)}: {size} to {math.prod(shape)} elements",
            remedy="a size of 0 often comes from M // TILE" if 0 in shape else None,
        )
    if head or not (view._storage.in_hbm or view._partition_axis is None):
        _check_partitions_stay(view, 0 if head else view._partition_axis or 0, shape)
    return adjacent(view, shape, head)


def completed(shape: Shape, total: int) -> Shape:
    """Return a shape of ``total`` elements with -1 replaced by its size."""
    rest = math.prod(size for size in shape if size != -1)
    return tuple([total // max(rest, 1) if size == -1 else size for size in shape])


def adjacent(view: Patterned, shape: Shape, head: int = 0) -> Pattern:
    """Return the pattern of the elements in another shape, wherever its partitions are."""
    _, sizes, strides = view._pattern
    inner = Pattern(0, sizes[head:], strides[head:]).reshape(shape[head:])
    if inner is None:
        raise RESHAPE_OF_SLICE(f"{view!r} with strides {strides} to {list(shape)}")
    return view._pattern.splice(head, len(sizes), inner.shape, inner.strides)


def _check_partitions_stay(tile: Patterned, axis: int, shape: Shape) -> None:
    """Raise unless the partition dimension keeps place and size, and the blocks their number."""
    blocks = math.prod(tile.shape[:axis])
    stays = len(shape) > axis and shape[axis] == tile.shape[axis]
    if not stays or math.prod(shape[:axis]) != blocks:
        raise ShapeError(
            "reshape of an on-chip tile keeps its partition dimension",
            happened="reshape would move or resize the partition dimension",
            received=f"{tile!r} to {list(shape)}",
            limit=f"dimension {axis} stays {tile.shape[axis]}",
            remedy="reshape the free dimensions only, or reshape the tensor in HBM",
        )


def broadcast(tile: Patterned, shape: Shape) -> Pattern:
    """Return the pattern with dimensions of size 1 repeated (stride 0), as NumPy does."""
    moved = (
        len(shape) > len(tile.shape) and not tile._storage.in_hbm and tile.shape[0] != 1
    )
    moved = moved or min(shape, default=1) < 1
    pattern = None if moved else tile._pattern.broadcast_to(shape)
    if pattern is None:
        raise ShapeError(
            "broadcast_to repeats dimensions of size 1",
            happened=f"broadcast_to was to repeat {list(tile.shape)} to {list(shape)}",
            received=f"{tile!r} to {list(shape)}",
        )
    return pattern


def reinterpreted(tile: Patterned, dtype: DType) -> Pattern:
    """Return the tile's bytes as elements of ``dtype``: the last dimension is scaled."""
    old = tile._itemsize
    new = dtype.itemsize
    if old == new:
        return tile._pattern
    offset, _, strides = tile._pattern
    last = len(tile.shape) - 1
    free = last >= 0 and (tile._storage.in_hbm or tile._partition_axis != last)
    pattern: Pattern | None = None
    if free and new > old:
        pattern = tile._pattern.coarser(new // old)
    elif free and (tile.shape[-1] == 1 or strides[-1] == 1):
        parts = tile._pattern.finer(old // new)
        scaled = (*parts.shape[:last], parts.shape[last] * parts.shape[-1])
        pattern = Pattern(parts.offset, scaled, (*parts.strides[:last], 1))
    if pattern is None:
        raise ShapeError(
            "a view of another element size scales the last dimension, a free one of adjacent "
            "elements",
            happened=f"a view takes {old} bytes an element for {dtype_name(dtype)}, of {new}",
            received=f"{tile!r} with offset {offset} and strides {strides} as {dtype_name(dtype)}: "
            f"{old} to {new} bytes an element",
            limit=f"a last dimension, an offset and strides of whole {dtype_name(dtype)} elements",
            remedy="slice with a step, or move the dimension, after the view instead of before it",
        )
    return pattern


def by_hand(tile: Patterned, pattern: Pattern, dtype: DType) -> Pattern:
    """Check and return ``pattern``, in elements of ``dtype`` on the tile's storage.

    Strides of 0 repeat. On chip the first axis walks consecutive partitions. The other axes stay in
    the tensor's own bytes of each partition.
    """
    storage = tile._storage
    allocation = storage.allocation
    _, shape, strides = pattern
    total, rest = divmod(storage.size * storage.dtype.itemsize, dtype.itemsize)
    row, part = divmod(
        storage.allocation.partition_step * storage.dtype.itemsize, dtype.itemsize
    )
    if storage.in_hbm:
        low, high = pattern.extent()
        if not pattern.fits(total):
            raise _leaves(
                tile, pattern, f"elements {low} to {high}", f"0 to {total - 1}"
            )
        return pattern
    if allocation.partition_axis or rest or part:
        raise ShapeError(
            "an access pattern needs a tensor without block dimensions whose partitions are "
            f"whole {dtype_name(dtype)} elements",
            happened=f"an access pattern of {dtype_name(dtype)} does not fit its tensor's "
            f"partitions",
            received=f"{allocation} as {dtype_name(dtype)}",
        )
    first, free = divmod(pattern.offset, row)
    if first < 0 or first + shape[0] > allocation.partitions:
        reached = f"partitions {first} to {first + shape[0] - 1}"
        raise _leaves(tile, pattern, reached, f"0 to {allocation.partitions - 1}")
    inside = Pattern(free, shape[1:], strides[1:])
    if not inside.fits(row):
        low, high = inside.extent()
        raise _leaves(
            tile, pattern, f"elements {low} to {high} of a partition", f"0 to {row - 1}"
        )
    return pattern


def _leaves(
    tile: Patterned, pattern: Pattern, reached: str, limit: str
) -> OutOfBoundsError:
    """Return the error of a pattern that leaves its tensor."""
    pairs = [list(pair) for pair in zip(pattern.strides, pattern.shape, strict=True)]
    by = f"by [step, count] {pairs} from offset {pattern.offset}"
    return left_tensor(
        "an access pattern",
        reached,
        f"{reached} of {tile._storage.allocation}, {by}",
        limit,
        "correct the counts, the steps or the offset (steps are in elements)",
    )
