"""What stands between a tensor's brackets: from a tile and its indices to the pattern they name.

Each dimension is walked by itself, so that an index beyond its end can be told by its dimension,
and a mask may still cut it back. What else a dialect takes as an index is in its frontend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from difftest.simulator.dtypes import DType
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.index import left_tensor, no_element, slice_bounds
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


class Patterned:
    """What a pattern of a tensor names, in elements of ``dtype``."""

    __slots__ = ()

    if TYPE_CHECKING:
        _axes: Any
        """None, how a pattern that leaves its tensor was walked, or the error of any use."""
        dtype: DType
        _partition_axis: int | None
        _pattern: Pattern
        shape: Shape
        _storage: Storage

    @property
    def offset(self) -> int:
        """The pattern's first element, in its storage."""
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


_make = tuple.__new__  # a NamedTuple's own __new__ takes twice the time, for each access

Named = tuple[Pattern, int | None, tuple[Axis, ...] | None]
"""What an index names of a tile: the pattern, its partition axis, and the walks of the tile's
dimensions if one of them leaves its dimension."""


def named(tile: Patterned, items: tuple[Any, ...]) -> Named | None:
    """What integers, slices and None name, in bounds or not; None if there is something else."""
    offset, sizes, strides = tile._pattern
    partition_axis, ndim = tile._partition_axis, len(sizes)
    if len(items) > ndim and sum(item is not None for item in items) > ndim:
        return None
    counts: list[int] = []
    steps: list[int] = []
    partition, axis, inside = None, 0, tile._axes is None
    for item in items:
        if item is None:
            counts.append(1)
            steps.append(0)
            continue
        start = last = item
        if type(item) is slice:
            start, last, step = item.start, item.stop, 1
            if start is last is item.step is None:
                start, last = 0, sizes[axis]
            elif item.step is not None or type(start) is not int or type(last) is not int:
                start, last, step = slice_bounds(item, sizes[axis])
            count = last - start if step == 1 else -(-(last - start) // step)
            if count < 1:
                raise no_element(item, f"axis {axis} of {tile!r}")
            last = start + (count - 1) * step
            if axis == partition_axis:
                partition = len(counts)
            counts.append(count)
            steps.append(strides[axis] * step)
        elif type(item) is not int:
            return None
        if start < 0 or last >= sizes[axis]:
            inside = False
        offset += start * strides[axis]
        axis += 1
    if partition_axis is not None and partition_axis >= axis:
        partition = len(counts) + partition_axis - axis
    if axis < ndim:
        counts += sizes[axis:]
        steps += strides[axis:]
    shape = tuple(counts)
    if inside:
        return _make(Pattern, (offset, shape, tuple(steps))), partition, None
    return walked(tile, _walks(sizes, items, shape), shape, partition)


def _walks(sizes: Shape, items: tuple[Any, ...], shape: Shape) -> list[tuple[int, Shape]]:
    """For each dimension its first index, and a step for each axis of what the indices name."""
    items += (slice(None),) * (len(sizes) - sum(item is not None for item in items))
    walks: list[tuple[int, Shape]] = []
    at = 0
    for item in items:
        if type(item) is int:
            walks.append((item, (0,) * len(shape)))
            continue
        if item is not None:
            start, _, step = slice_bounds(item, sizes[len(walks)])
            walks.append((start, tuple([step * (k == at) for k in range(len(shape))])))
        at += 1
    return walks


def names_two(items: tuple[Any, ...]) -> bool:
    """Whether an index names two dimensions."""
    return sum(1 for item in items if item is not None and item is not Ellipsis) == 2


def walked(
    tile: Patterned, walks: list[tuple[int, Shape]], shape: Shape, partition: int | None
) -> Named:
    """What a walk of each dimension names: a start, and a step for each axis of the result.

    Of a tile that leaves its tensor a part may lie inside.
    """
    offset, sizes, strides = tile._pattern
    for stride, (start, _) in zip(strides, walks, strict=True):
        offset += start * stride
    axes = [Axis(size, start, steps) for size, (start, steps) in zip(sizes, walks, strict=True)]
    over = any(leaves(axis, shape) for axis in axes)
    if isinstance(tile._axes, tuple):
        if over:
            raise out_of_bounds(tile, tile._axes)
        axes = [
            Axis(
                outer.size,
                outer.start
                + sum(s * start for s, (start, _) in zip(outer.steps, walks, strict=True)),
                _along(outer.steps, walks, shape),
            )
            for outer in tile._axes
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


def out_of_bounds(tile: Patterned, axes: tuple[Axis, ...]) -> OutOfBoundsError:
    """The error for a tile whose walks leave their dimensions."""
    number = next(k for k, axis in enumerate(axes) if leaves(axis, tile.shape))
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
