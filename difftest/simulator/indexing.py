"""What stands between a tensor's brackets: from a tile and its indices to the pattern they name.

Each dimension is walked by itself, so that an index beyond its end can be told by its dimension,
and a mask may still cut it back. What else a dialect takes as an index is in its frontend.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from difftest.simulator.errors import NkiError, OutOfBoundsError
from difftest.simulator.index import (
    as_integer,
    expand_ellipsis,
    is_integer,
    left_tensor,
    no_element,
    no_index,
    slice_bounds,
)
from difftest.simulator.memory import Storage
from difftest.simulator.pattern import Pattern, Shape


class Axis(NamedTuple):
    """How one dimension of the indexed tile is walked: a start, a step for each result axis."""

    size: int
    start: int
    steps: Shape


def span(axis: Axis, shape: Shape) -> tuple[int, int]:
    """The lowest and the highest index that the walk of one dimension reaches."""
    reach = [step * (n - 1) for step, n in zip(axis.steps, shape, strict=True)]
    return axis.start + sum(min(0, r) for r in reach), axis.start + sum(max(0, r) for r in reach)


def leaves(axis: Axis, shape: Shape) -> bool:
    """Whether the walk of one dimension goes below 0 or beyond its size."""
    low, high = span(axis, shape)
    return low < 0 or high >= axis.size


class Patterned(Protocol):
    """A tile, as far as its pattern goes."""

    axes: tuple[Axis, ...] | NkiError | None
    pattern: Pattern
    partition_axis: int | None
    shape: Shape
    storage: Storage

    @property
    def itemsize(self) -> int: ...


_make = tuple.__new__  # a NamedTuple's own __new__ takes twice the time, for each access

Named = tuple[Pattern, int | None, tuple[Axis, ...] | None]
"""What an index names of a tile: the pattern, its partition axis, and the walks of the tile's
dimensions if one of them leaves its dimension."""


def within(pattern: Pattern, partition_axis: int | None, items: tuple[Any, ...]) -> Named | None:
    """The common index: integers and slices without a step, all in bounds. None if it is not."""
    offset, shape, strides = pattern
    ndim = len(shape)
    if len(items) > ndim:
        return None
    counts: list[int] = []
    steps: list[int] = []
    partition = None
    axis = 0
    for item in items:
        size = shape[axis]
        if type(item) is slice:
            start, stop = item.start, item.stop
            if start is None:
                start = 0
            if stop is None:
                stop = size
            if item.step is not None or type(start) is not int or type(stop) is not int:
                return None
            if start < 0 or stop > size or start >= stop:
                return None
            if axis == partition_axis:
                partition = len(counts)
            counts.append(stop - start)
            steps.append(strides[axis])
        elif type(item) is int:
            start = item
            if not 0 <= start < size:
                return None
        else:
            return None
        offset += start * strides[axis]
        axis += 1
    if partition_axis is not None and partition_axis >= axis:
        partition = len(counts) + partition_axis - axis
    if axis < ndim:
        counts += shape[axis:]
        steps += strides[axis:]
    return _make(Pattern, (offset, tuple(counts), tuple(steps))), partition, None


def names_two(items: tuple[Any, ...]) -> bool:
    """Whether an index names two dimensions."""
    return sum(1 for item in items if item is not None and item is not Ellipsis) == 2


def basic(tile: Patterned, items: tuple[Any, ...]) -> Named:
    """Integers, slices, None and Ellipsis, in bounds or not."""
    partition: int | None = None
    walks: list[tuple[int, int | None, int]] = []
    shape: list[int] = []
    for item in expand_ellipsis(items, len(tile.shape), tile, adds=True):
        axis = len(walks)
        if item is None:
            shape.append(1)
        elif is_integer(item):
            walks.append((as_integer(item, "index"), None, 0))
        else:
            start, count, step = _slice(item, tile.shape[axis], axis, tile)
            if axis == tile.partition_axis:
                partition = len(shape)
            walks.append((start, len(shape), step))
            shape.append(count)
    along = range(len(shape))
    steps = [(start, tuple([step * (k == at) for k in along])) for start, at, step in walks]
    return walked(tile, steps, tuple(shape), partition)


def walked(
    tile: Patterned, walks: list[tuple[int, Shape]], shape: Shape, partition: int | None
) -> Named:
    """What a walk of each dimension names: a start, and a step for each axis of the result.

    Of a tile that leaves its tensor a part may lie inside.
    """
    offset, sizes, strides = tile.pattern
    for stride, (start, _) in zip(strides, walks, strict=True):
        offset += start * stride
    axes = [Axis(size, start, steps) for size, (start, steps) in zip(sizes, walks, strict=True)]
    over = any(leaves(axis, shape) for axis in axes)
    if isinstance(tile.axes, tuple):
        if over:
            raise out_of_bounds(tile, tile.axes)
        axes = [
            Axis(
                outer.size,
                outer.start
                + sum(s * start for s, (start, _) in zip(outer.steps, walks, strict=True)),
                _along(outer.steps, walks, shape),
            )
            for outer in tile.axes
        ]
        over = any(leaves(axis, shape) for axis in axes)
    pattern = Pattern(offset, shape, _along(strides, walks, shape))
    return pattern, partition, tuple(axes) if over else None


def _along(strides: Shape, walks: list[tuple[int, Shape]], shape: Shape) -> Shape:
    """The steps along the axes of a result of what has these strides along the walks."""
    totals = [0] * len(shape)
    for stride, (_, steps) in zip(strides, walks, strict=True):
        for k, step in enumerate(steps):
            totals[k] += stride * step
    return tuple(totals)


def _slice(item: Any, size: int, axis: int, tile: Patterned) -> tuple[int, int, int]:
    """Start, count and step of a slice."""
    place = f"axis {axis} of {tile!r}"
    if not isinstance(item, slice):
        raise no_index(item, "integers, slices, None and '...', or as its dialect has it", place)
    start, stop, step = slice_bounds(item, size)
    count = -(-(stop - start) // step)
    if count <= 0:
        raise no_element(item, place)
    return start, count, step


def out_of_bounds(tile: Patterned, axes: tuple[Axis, ...]) -> OutOfBoundsError:
    """The error for a tile whose walks leave their dimensions."""
    number = next(k for k, axis in enumerate(axes) if leaves(axis, tile.shape))
    axis = axes[number]
    low, high = span(axis, tile.shape)
    return left_tensor(
        "an access",
        f"index {low if low < 0 else high} of {axis.size}",
        f"indices {low} to {high} on axis {number} of {tile.storage.allocation}",
        f"0 to {axis.size - 1}",
        "correct the loop's bounds, or give the instruction a mask "
        "(NKI does not wrap negative indices)",
    )
