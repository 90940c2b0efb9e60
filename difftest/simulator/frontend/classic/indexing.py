"""The classic dialect's advanced indexing: index expressions, tiles of indices and ``nl.ds``.

Advanced indexing has one ``nl.arange`` or ``nl.mgrid`` expression, integer or tile of indices for
each dimension. Without a tile, the result is a pattern. With a tile, it is an indirect access.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.frontend.arguments import DynamicSlice, not_taken
from difftest.simulator.frontend.classic.expressions import IndexExpression, Mask
from difftest.simulator.index import (
    Index,
    broadcast_shapes,
    expand_ellipsis,
    is_index_integer,
    no_element,
    no_index,
    slice_bounds,
    spell,
)
from difftest.simulator.indexing import Named, strided_view
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.checks import check_indices
from difftest.simulator.misuses import (
    INDEX_BEHIND_MASK,
    INDEX_OF_ONE_DIMENSION,
    SLICES_BESIDE_INDICES,
)
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile


class DynamicIndex:
    """An index held in a tile, plus an affine part.

    Its values are unknown before the kernel runs.
    """

    __slots__ = ("offset", "shape", "tile")

    def __init__(self, tile: Tile, offset: Index) -> None:
        self.tile = tile
        self.offset = offset
        self.shape = broadcast_shapes(
            _index_shape(tile), offset.shape, "an index tile and its offset"
        )

    def values(self, where: Array | None) -> Array:
        """Return the indices; only the tile's elements that ``where`` keeps must be written."""
        values = self.tile._values(_of_index(self.tile, where))
        check_indices(self.tile, "a tile of indices")
        held: Array = values.astype(np.int64).reshape(_index_shape(self.tile))
        return held + self.offset.array()


class MaskedOperand:
    """The part of a matrix product's operand that takes part in it: ``tile[mask]``.

    AWS calls it operand masking. Only ``nl.matmul`` and ``nisa.nc_matmul`` accept it
    (``nki.api.shared.rst`` at tag v2.26.0).
    """

    __slots__ = ("mask", "tile")

    def __init__(self, tile: Tile, mask: Mask) -> None:
        self.tile = tile
        self.mask = mask

    def __setitem__(self, key: Any, value: Any) -> None:
        raise INDEX_BEHIND_MASK(f"[{spell(key)}] = ... of {self!r}")

    def __repr__(self) -> str:
        return f"{self.tile!r} under a mask, which matrix products alone take"

    def __getitem__(self, key: Any) -> MaskedOperand:
        error = INDEX_BEHIND_MASK(f"[{spell(key)}] of {self!r}")
        mask = _as_mask(key)
        if mask is None:
            raise error
        report_violation(error)
        return MaskedOperand(self.tile, Mask(self.mask.terms + mask.terms))


def _as_mask(key: Any) -> Mask | None:
    """Return a key as a mask, if it is one or a bool, the result of comparing loop indices."""
    if isinstance(key, (bool, np.bool_)):
        return Mask(() if key else (IndexExpression((), -1, ()),))
    if isinstance(key, Mask):
        return key
    return None


_NO_OFFSET = Index((), 0, ())
_ADVANCED = (Index, Tile, DynamicIndex)
_BASIC = (slice, type(None), type(Ellipsis))
_SLICES = (slice, type(Ellipsis), DynamicSlice)


class IndexedTile(IndirectTile):
    """A tile indexed with at least one tile (or a tile plus an affine expression)."""

    __slots__ = ("_items",)

    def __init__(self, base: Tile, items: tuple[Any, ...]) -> None:
        self._items = tuple(map(_as_index, items))
        shape: Shape = ()
        for item in self._items:
            shape = broadcast_shapes(shape, item.shape, "indices")
        super().__init__(base, shape)
        for tile in self._index_tiles:
            _check_rank(tile, shape)

    @property
    def _index_tiles(self) -> tuple[Tile, ...]:
        """The tiles that hold indices. An instruction reads them, too."""
        return tuple(
            item.tile for item in self._items if isinstance(item, DynamicIndex)
        )

    @property
    def _reach(self) -> Tile:
        """The base's part in reach: whole axes for tiles, the range of values for other indices.

        On chip, and where an index leaves the tensor, the whole base.
        """
        ends = [
            _ends(item, size)
            for item, size in zip(self._items, self._base.shape, strict=True)
        ]
        inside = all(
            0 <= low < high <= size
            for (low, high), size in zip(ends, self._base.shape, strict=True)
        )
        if not self._in_hbm or not inside:
            return self._base
        return self._base[tuple(slice(low, high) for low, high in ends)]

    def _locate(self, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """Return index arrays for every dimension, and which elements are in bounds.

        Only the elements of index tiles that ``where`` keeps must have been written.
        """
        indices = (
            item.values(where) if isinstance(item, DynamicIndex) else item.array()
            for item in self._items
        )
        arrays = [np.broadcast_to(values, self.shape) for values in indices]
        inside = np.ones(self.shape, dtype=np.bool_)
        for array, size in zip(arrays, self._base.shape, strict=True):
            inside &= (array >= 0) & (array < size)
        return tuple(arrays), inside


def _check_rank(tile: Tile, shape: Shape) -> None:
    """Raise if an index tile's partitions would run along a free axis of the access."""
    have = _index_shape(tile)
    if len(have) < len(shape) and have[:1] > (1,):
        raise not_taken(
            "an access",
            f"indices of {len(shape)} dimensions",
            f"a tile of indices of {len(have)}",
            f"{tile!r}",
            error=ShapeError,
            remedy="insert dimensions of size 1 behind its partitions: tile[:, None, :]",
        )


def _ends(item: Index | DynamicIndex, size: int) -> tuple[int, int]:
    """Return the first index of an axis that an item can select, and the one after the last."""
    if isinstance(item, DynamicIndex):
        return 0, size
    low, high = Pattern(item.start, item.shape, item.steps).extent()
    return low, high + 1


def _as_index(item: Any) -> Any:
    """Return an index as an affine expression, or as a dynamic index for a tile."""
    if isinstance(item, Tile):
        return DynamicIndex(item, _NO_OFFSET)
    if isinstance(item, (Index, DynamicIndex)):
        return item
    return Index((), int(item), ())


def advanced(
    tile: Tile, items: tuple[Any, ...]
) -> Named | IndexedTile | MaskedOperand | None:
    """Return the result of ``items``: a pattern, an indirect access, or a masked operand.

    None for basic indexing.

    Raises
    ------
    KernelError, ShapeError : the items cannot be combined.
    """
    if len(items) == 1 and (mask := _as_mask(items[0])) is not None:
        return MaskedOperand(tile, mask)
    if not any(isinstance(item, _ADVANCED) for item in items):
        return None
    if _is_element_beside_slices(items):
        report_violation(
            SLICES_BESIDE_INDICES(f"an element of a tile beside slices on {tile!r}")
        )
        return IndexedTile(tile, _with_walks(tile, items))
    _check_advanced(tile, items)
    if len(items) < tile.ndim:
        items = _completed(tile, items)
    if any(isinstance(item, (Tile, DynamicIndex)) for item in items):
        return IndexedTile(tile, items)
    return _by_expressions(tile, items)


def _is_element_beside_slices(items: tuple[Any, ...]) -> bool:
    """Return whether elements of tiles are mixed only with slices and integers."""
    if not any(isinstance(item, _SLICES) for item in items):
        return False
    for item in items:
        if isinstance(item, _ADVANCED):
            fits = _is_element(item)
        else:
            fits = isinstance(item, _SLICES) or is_index_integer(item)
        if not fits:
            return False
    return True


def _is_element(item: Any) -> bool:
    """Return whether an index is one element of a tile, alone or plus a number."""
    if isinstance(item, Tile):
        return item.size == 1
    return isinstance(item, DynamicIndex) and item.shape == ()


def _with_walks(tile: Tile, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``items`` with an index expression for each slice."""
    items = expand_ellipsis(items, tile.ndim, tile)
    count = sum(isinstance(item, _SLICES) for item in items)
    walks: list[Any] = []
    at = 0
    for axis, item in enumerate(items):
        if not isinstance(item, _SLICES):
            walks.append(item)
            continue
        if isinstance(item, DynamicSlice):
            item = slice(item.start, item.start + item.size)
        start, stop, step = slice_bounds(item, tile.shape[axis])
        size = -(-(stop - start) // step)
        if size < 1:
            raise no_element(item, f"axis {axis} of {tile!r}")
        shape = [1] * count
        steps = [0] * count
        shape[at] = size
        steps[at] = step
        walks.append(Index(tuple(shape), start, tuple(steps)))
        at += 1
    return tuple(walks)


def basic(tile: Tile, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``items`` with a slice for each ``nl.ds``.

    Raises
    ------
    KernelError : an item is not an index of the dialect.
    """
    for axis, item in enumerate(items):
        if not (isinstance(item, (*_BASIC, DynamicSlice)) or is_index_integer(item)):
            kinds = "integers, slices, nl.ds, None, '...' or nl.arange / nl.mgrid expressions"
            raise no_index(item, kinds, f"axis {axis} of {tile!r}")
    return tuple(map(_without_ds, items))


def _without_ds(item: Any) -> Any:
    """Return the slice of an ``nl.ds``; other items unchanged."""
    if type(item) is DynamicSlice:
        return slice(item.start, item.start + item.size)
    return item


def _check_advanced(tile: Tile, items: tuple[Any, ...]) -> None:
    """Raise unless ``items`` has an integer or an advanced index for each dimension."""
    for item in items:
        if not (isinstance(item, _ADVANCED) or is_index_integer(item)):
            raise SLICES_BESIDE_INDICES(
                f"{spell(item)} beside nl.arange / nl.mgrid on {tile!r}"
            )
    if len(items) == tile.ndim:
        return
    takes = "an index for every dimension"
    got = f"{len(items)} of {tile.ndim} advanced indices"
    error = not_taken("advanced indexing", takes, got, f"{tile!r}", error=ShapeError)
    fits = _are_all(Index, items) or _are_all(Tile, items)
    if not tile._in_hbm or not fits or len(items) > tile.ndim:
        raise error
    report_violation(error)


def _are_all(kind: type, items: tuple[Any, ...]) -> bool:
    """Return whether all items are integers or indices of one kind."""
    return all(isinstance(item, kind) or is_index_integer(item) for item in items)


def _completed(tile: Tile, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Append whole axes for the last dimensions, which have no index."""
    missing = tile.shape[len(items) :]
    ones = (1,) * len(missing)
    zeros = (0,) * len(missing)
    named = []
    ndim = 0
    for item in items:
        if isinstance(item, Index):
            ndim = max(ndim, item.ndim)
            item = Index(item.shape + ones, item.start, item.steps + zeros)
        # with one index a partition, the free dimension is not kept
        elif isinstance(item, Tile):
            have = item._tile_shape()
            if item.size == have[0]:
                have = have[:1]
            ndim = max(ndim, len(have))
            item = item._as_tile().reshape(have + ones)
        named.append(item)
    for axis, size in enumerate(missing):
        shape = [1] * (ndim + len(missing))
        steps = [0] * len(shape)
        shape[ndim + axis], steps[ndim + axis] = size, 1
        named.append(Index(tuple(shape), 0, tuple(steps)))
    return tuple(named)


def _by_expressions(tile: Tile, items: tuple[Any, ...]) -> Named:
    """Return the pattern of one index expression or integer for each dimension."""
    shape: Shape = ()
    for item in items:
        if isinstance(item, Index):
            shape = broadcast_shapes(shape, item.shape, "index expressions")
    if len(shape) < 2 and not tile._in_hbm:
        raise INDEX_OF_ONE_DIMENSION(f"a 1-D nl.arange as an index of {tile!r}")
    still = (0,) * len(shape)
    walks: list[tuple[int, Shape]] = []
    for item in items:
        if isinstance(item, Index):
            walks.append((item.start, item.spread(shape).steps))
        else:
            walks.append((int(item), still))
    if not tile._in_hbm:
        _check_partition_walk(tile, walks, shape)
    return strided_view(tile, walks, shape, 0)


def _check_partition_walk(
    tile: Tile, walks: list[tuple[int, Shape]], shape: Shape
) -> None:
    """Raise unless, on chip, axis 0 of the result walks the partitions and no other axis does."""
    partition = tile._partition_axis
    for number, (_, walk) in enumerate(walks):
        steps = walk if number != partition else (0, *walk[1:])
        wrong = any(steps[1:]) if number == partition else steps[0] != 0
        if wrong and shape[0] > 1:
            raise KernelError(
                "the first axis of an on-chip access walks the partitions, the others do not",
                happened=f"the index of axis {number} changes along "
                f"{'a free axis' if number == partition else 'the partitions'}",
                received=f"axis {number} of {tile!r} walked with steps {walk}",
                remedy="give the partition index shape [:, None] and the free ones [None, :]",
            )


def _index_shape(tile: Tile) -> Shape:
    """Return an index tile's shape; one element is a scalar, which broadcasts."""
    if tile.size == 1:
        return ()
    return tile._tile_shape()


def _of_index(tile: Tile, where: Array | None) -> Array | None:
    """Return which elements of an index tile the access's mask keeps at any repetition."""
    if where is None:
        return None
    have = _index_shape(tile)
    aligned = (1,) * (where.ndim - len(have)) + have
    repeated = tuple(k for k, size in enumerate(aligned) if size != where.shape[k])
    return np.asarray(where.any(axis=repeated, keepdims=True))
