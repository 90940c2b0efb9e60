"""What stands between a tensor's brackets: from a tile and its indices to the pattern they name.

Each dimension is walked by itself, so that an index beyond its end can be told by its dimension,
and a mask may still cut it back. What else a dialect takes as an index is in its frontend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from difftest.simulator.brackets import expand_ellipsis, slice_bounds, spell
from difftest.simulator.errors import KernelError, OutOfBoundsError, ShapeError
from difftest.simulator.index import as_integer, is_integer
from difftest.simulator.pattern import Pattern
from difftest.simulator.walk import Axis, leaves, span

if TYPE_CHECKING:
    from difftest.simulator.tile import Tile


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


class _Walks(NamedTuple):
    """What a basic index makes of a tile: the pattern, and how it walks each of its dimensions."""

    pattern: Pattern
    partition: int | None
    ndim: int
    each: list[tuple[int, int, int | None, int]]
    """Of each dimension of the tile its size, the first index, the result's axis and its step."""
    overrun: bool


def basic(tile: Tile, items: tuple[Any, ...]) -> Named:
    """Integers, slices, None and Ellipsis, in bounds or not."""
    walks = _walks(tile, items)
    axes = None
    if walks.overrun:
        axes = tuple(
            Axis(size, start, tuple(step if k == where else 0 for k in range(walks.ndim)))
            for size, start, where, step in walks.each
        )
    return walks.pattern, walks.partition, axes


def back_inside(tile: Tile, outer: tuple[Axis, ...], items: tuple[Any, ...]) -> Named:
    """A basic index of a tile that leaves its tensor, and of which a part may lie inside.

    Raises
    ------
    OutOfBoundsError : the index leaves this tile too.
    """
    walks = _walks(tile, items)
    if walks.overrun:
        raise out_of_bounds(tile, outer)
    axes = []
    for axis in outer:
        steps = [0] * walks.ndim
        begin = axis.start
        for step, (_, start, where, own) in zip(axis.steps, walks.each, strict=True):
            begin += step * start
            if where is not None:
                steps[where] = step * own
        axes.append(Axis(axis.size, begin, tuple(steps)))
    over = any(leaves(axis, walks.pattern.shape) for axis in axes)
    return walks.pattern, walks.partition, tuple(axes) if over else None


def _walks(tile: Tile, items: tuple[Any, ...]) -> _Walks:
    items = expand_ellipsis(items, tile.ndim, tile)
    pattern, partition_axis = tile.pattern, tile.partition_axis
    partition: int | None = None
    overrun = False
    walks: list[tuple[int, int, int | None, int]] = []
    at = 0  # the axis of the result that comes next
    for item in items:
        if item is None:
            pattern = pattern.expand(at)
            at += 1
            continue
        axis = len(walks)
        size = pattern.shape[at]
        if is_integer(item):
            start = as_integer(item, "index")
            walks.append((size, start, None, 0))
            overrun = overrun or not 0 <= start < size
            pattern = pattern.select(at, start)
            continue
        start, count, step = _slice(item, size, axis, tile)
        overrun = overrun or start < 0 or start + (count - 1) * step >= size
        if axis == partition_axis:
            partition = at
        walks.append((size, start, at, step))
        pattern = pattern.slice(at, start, count, step)
        at += 1
    return _Walks(pattern, partition, at, walks, overrun)


def _slice(item: Any, size: int, axis: int, tile: Tile) -> tuple[int, int, int]:
    """Start, count and step of a slice."""
    if not isinstance(item, slice):
        raise KernelError(
            "a tensor is indexed with integers, slices, None and '...', or as its dialect has it",
            happened=f"a tensor was indexed with a {type(item).__name__}",
            received=f"{type(item).__name__} at axis {axis} of {tile!r}",
        )
    start, stop, step = slice_bounds(item, size)
    count = -(-(stop - start) // step)
    if count <= 0:
        raise ShapeError(
            "a slice selects at least one element",
            happened="a slice selected no element",
            received=f"{spell(item)} on axis {axis} of {tile!r}",
        )
    return start, count, step


def out_of_bounds(tile: Tile, axes: tuple[Axis, ...]) -> OutOfBoundsError:
    """The error for a tile whose walks leave their dimensions."""
    number = next(k for k, axis in enumerate(axes) if leaves(axis, tile.shape))
    axis = axes[number]
    low, high = span(axis, tile.shape)
    return OutOfBoundsError(
        "an access stays inside its tensor",
        happened=f"an access left its tensor: index {low if low < 0 else high} of {axis.size}",
        received=f"indices {low} to {high} on axis {number} of {tile.storage.allocation}",
        limit=f"0 to {axis.size - 1}",
        remedy="correct the loop's bounds, or give the instruction a mask "
        "(NKI does not wrap negative indices)",
    )
