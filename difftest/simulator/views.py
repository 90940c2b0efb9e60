"""Other patterns on the memory of a tile: reshaped, repeated, of another dtype, made by hand.

None of them copies. What no pattern can name is an error that says why.
"""

from __future__ import annotations

import math

from difftest.simulator.dtypes import DType, name_of
from difftest.simulator.errors import OutOfBoundsError, ShapeError
from difftest.simulator.index import left_tensor
from difftest.simulator.indexing import Patterned
from difftest.simulator.misuses import RESHAPE_OF_SLICE
from difftest.simulator.pattern import Pattern, Shape


def reshaped(view: Patterned, shape: Shape, head: int = 0) -> Pattern:
    """The elements in another shape of as many, the first ``head`` dimensions as they are.

    One size may be -1.
    """
    size = math.prod(view.shape)
    shape = completed(shape, size)
    if math.prod(shape) != size or min(shape, default=1) < 1:
        raise ShapeError(
            "reshape keeps the number of elements",
            happened=f"reshape was to make {size} elements {math.prod(shape)}",
            received=f"{view!r} to {list(shape)}: {size} to {math.prod(shape)} elements",
        )
    if head or not (view._storage.in_hbm or view._partition_axis is None):
        _check_partitions_stay(view, 0 if head else view._partition_axis or 0, shape)
    return adjacent(view, shape, head)


def completed(shape: Shape, total: int) -> Shape:
    """A shape of ``total`` elements, with what -1 stands for."""
    rest = math.prod(size for size in shape if size != -1)
    return tuple([total // max(rest, 1) if size == -1 else size for size in shape])


def adjacent(view: Patterned, shape: Shape, head: int = 0) -> Pattern:
    """The elements in another shape of as many, wherever its partitions come to lie."""
    _, sizes, strides = view._pattern
    inner = Pattern(0, sizes[head:], strides[head:]).reshape(shape[head:])
    if inner is None:
        raise RESHAPE_OF_SLICE(f"{view!r} with strides {strides} to {list(shape)}")
    return view._pattern.splice(head, len(sizes), inner.shape, inner.strides)


def _check_partitions_stay(tile: Patterned, axis: int, shape: Shape) -> None:
    """The partition dimension keeps its place and size, and the blocks before it their number."""
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
    """The tile with its dimensions of size 1 repeated (stride 0), as NumPy does."""
    moved = len(shape) > len(tile.shape) and not tile._storage.in_hbm and tile.shape[0] != 1
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
    """The tile's bytes as elements of ``dtype``: the last dimension is scaled."""
    old, new = tile._itemsize, dtype.itemsize
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
            happened=f"a view takes {old} bytes an element for {name_of(dtype)}, of {new}",
            received=f"{tile!r} with offset {offset} and strides {strides} as {name_of(dtype)}: "
            f"{old} to {new} bytes an element",
            limit=f"a last dimension, an offset and strides of whole {name_of(dtype)} elements",
            remedy="slice with a step, or move the dimension, after the view instead of before it",
        )
    return pattern


def by_hand(tile: Patterned, pattern: Pattern, dtype: DType) -> Pattern:
    """``pattern``, in elements of ``dtype`` on the storage of the tile, once it is checked.

    Strides of 0 repeat. On chip the first axis walks the partitions, one after the other, and the
    others stay in the bytes that the tensor has of each.
    """
    storage = tile._storage
    allocation = storage.allocation
    _, shape, strides = pattern
    total, rest = divmod(storage.size * storage.dtype.itemsize, dtype.itemsize)
    row, part = divmod(storage.allocation.partition_step * storage.dtype.itemsize, dtype.itemsize)
    if storage.in_hbm:
        low, high = pattern.extent()
        if not pattern.fits(total):
            raise _leaves(tile, pattern, f"elements {low} to {high}", f"0 to {total - 1}")
        return pattern
    if allocation.partition_axis or rest or part:
        raise ShapeError(
            "an access pattern lies on a tensor without block dimensions whose partitions are "
            f"whole {name_of(dtype)} elements",
            happened=f"an access pattern of {name_of(dtype)} does not fit its tensor's partitions",
            received=f"{allocation} as {name_of(dtype)}",
        )
    first, free = divmod(pattern.offset, row)
    if first < 0 or first + shape[0] > allocation.partitions:
        reached = f"partitions {first} to {first + shape[0] - 1}"
        raise _leaves(tile, pattern, reached, f"0 to {allocation.partitions - 1}")
    inside = Pattern(free, shape[1:], strides[1:])
    if not inside.fits(row):
        low, high = inside.extent()
        raise _leaves(tile, pattern, f"elements {low} to {high} of a partition", f"0 to {row - 1}")
    return pattern


def _leaves(tile: Patterned, pattern: Pattern, reached: str, limit: str) -> OutOfBoundsError:
    pairs = [list(pair) for pair in zip(pattern.strides, pattern.shape, strict=True)]
    by = f"by [step, count] {pairs} from offset {pattern.offset}"
    return left_tensor(
        "an access pattern",
        reached,
        f"{reached} of {tile._storage.allocation}, {by}",
        limit,
        "correct the counts, the steps or the offset (steps are in elements)",
    )
