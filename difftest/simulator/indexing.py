"""What stands between a tensor's brackets: from a tile and its indices to the pattern they name.

Classic indexing walks each dimension by itself, so that an index beyond its end can be told by its
dimension, and a mask may still cut it back (``frontend/classic/masking.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from difftest.simulator.brackets import expand_ellipsis, slice_bounds, spell
from difftest.simulator.errors import KernelError, OutOfBoundsError, ShapeError
from difftest.simulator.index import DynamicSlice, Index, as_integer, broadcast_shapes, is_integer
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.strictness import note
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
    """Integers, slices, ``nl.ds``, None and Ellipsis, in bounds or not."""
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
    """Start, count and step of a slice or of ``nl.ds``."""
    if isinstance(item, DynamicSlice):
        return item.start, item.size, 1
    if not isinstance(item, slice):
        raise KernelError(
            "a tensor is indexed with integers, slices, nl.ds, None, '...' or "
            "nl.arange / nl.mgrid expressions",
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


def check_advanced(tile: Tile, items: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
    """Raise unless ``items`` has an integer or one of ``kinds`` for each dimension."""
    for item in items:
        if not (isinstance(item, kinds) or is_integer(item)):
            raise KernelError(
                "basic and advanced indexing do not mix",
                happened="a tensor was indexed with slices and index expressions at once",
                received=f"{spell(item)} beside nl.arange / nl.mgrid on {tile!r}",
                remedy="use an nl.arange (or nl.mgrid) for every dimension, or slices for all",
            )
    if len(items) == tile.ndim:
        return
    error = ShapeError(
        "advanced indexing names every dimension",
        happened=f"a tensor of {tile.ndim} dimensions got {len(items)} advanced indices",
        received=f"{len(items)} indices for {tile!r}",
    )
    affine = all(isinstance(item, Index) or is_integer(item) for item in items)
    if not tile.in_hbm or not affine or len(items) > tile.ndim:
        raise error
    note(error)


def _completed(tile: Tile, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Whole axes for the last dimensions, which no index names: behind those of the indices."""
    missing = tile.shape[len(items) :]
    ndim = max(item.ndim for item in items if isinstance(item, Index))
    named = [
        Index(
            (*item.shape, *(1 for _ in missing)), item.start, (*item.steps, *(0 for _ in missing))
        )
        if isinstance(item, Index)
        else item
        for item in items
    ]
    for axis, size in enumerate(missing):
        shape = [1] * (ndim + len(missing))
        steps = [0] * len(shape)
        shape[ndim + axis], steps[ndim + axis] = size, 1
        named.append(Index(tuple(shape), 0, tuple(steps)))
    return tuple(named)


def advanced(tile: Tile, items: tuple[Any, ...]) -> Named:
    """One index expression or integer for each dimension; in HBM the last may be left out."""
    if len(items) < tile.ndim:
        items = _completed(tile, items)
    shape: Shape = ()
    for item in items:
        if isinstance(item, Index):
            shape = broadcast_shapes(shape, item.shape, "index expressions")
    if len(shape) < 2 and not tile.in_hbm:
        raise _one_dimensional(tile)
    offset, sizes, strides = tile.pattern
    totals = [0] * len(shape)
    axes = []
    for size, stride, item in zip(sizes, strides, items, strict=True):
        if isinstance(item, Index):
            start, steps = item.start, item.spread(shape).steps
        else:
            start, steps = int(item), (0,) * len(shape)
        axes.append(Axis(size, start, steps))
        offset += start * stride
        for k, step in enumerate(steps):
            totals[k] += step * stride
    if not tile.in_hbm:
        _check_partition_walk(tile, axes, shape)
    over = any(leaves(axis, shape) for axis in axes)
    return Pattern(offset, shape, tuple(totals)), 0, tuple(axes) if over else None


def _check_partition_walk(tile: Tile, axes: list[Axis], shape: Shape) -> None:
    """On chip, axis 0 of the result walks the partitions and nothing else does."""
    partition = tile.partition_axis
    for number, axis in enumerate(axes):
        steps = axis.steps if number != partition else (0, *axis.steps[1:])
        wrong = any(steps[1:]) if number == partition else steps[0] != 0
        if wrong and shape[0] > 1:
            raise KernelError(
                "the first axis of an on-chip access walks the partitions, the others do not",
                happened=f"the index of axis {number} changes along "
                f"{'a free axis' if number == partition else 'the partitions'}",
                received=f"axis {number} of {tile!r} walked with steps {axis.steps}",
                remedy="give the partition index shape [:, None] and the free ones [None, :]",
            )


def _one_dimensional(tile: Tile) -> ShapeError:
    return ShapeError(
        "a tile's index has at least two dimensions, partition and free",
        happened="a tile on chip was indexed with index expressions of one dimension",
        received=f"a 1-D nl.arange as an index of {tile!r}",
        remedy="use nl.arange(n)[:, None] for partitions and nl.arange(n)[None, :] for the "
        "free dimension",
    )


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
