"""Accesses whose indices lie in a tile: known only when the kernel runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array, name_of
from difftest.simulator.errors import DtypeError, OutOfBoundsError, UnwrittenError
from difftest.simulator.index import DynamicIndex, Index, Shape, broadcast_shapes
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space


class IndirectTile:
    """A tile indexed with at least one tile (or a tile plus an affine expression).

    Only DMA, ``nl.load``/``nl.store``, ``nl.atomic_rmw`` and ``tensor_copy_dynamic_*`` take it.
    """

    __slots__ = ("base", "items", "shape")

    def __init__(self, base: Tile, items: tuple[Any, ...]) -> None:
        base.check_bounds()
        self.base = base
        self.items = items
        shape: Shape = ()
        for item in items:
            shape = broadcast_shapes(shape, _item_shape(item), "indices")
        self.shape = shape

    def __repr__(self) -> str:
        return f"{self.base!r} indexed by a tile, shape {list(self.shape)}"

    @property
    def space(self) -> Space:
        return self.base.space

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.base.dtype

    @property
    def in_hbm(self) -> bool:
        return self.base.in_hbm

    @property
    def holds_bits(self) -> bool:
        return self.base.holds_bits

    def signature(self) -> tuple[object, ...]:
        """As :meth:`Tile.signature`."""
        return ("indirect", self.base.signature(), self.shape)

    def descriptor(self) -> Descriptor:
        """As :meth:`Tile.descriptor`, of the elements that are indexed."""
        shape = self.shape if self.in_hbm or len(self.shape) > 1 else (*self.shape, 1)
        return Descriptor(self.space, self.dtype, shape, 0, None, repr(self))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def index_tiles(self) -> tuple[Tile, ...]:
        """The tiles that hold indices: an instruction reads them too."""
        tiles = [item.tile if isinstance(item, DynamicIndex) else item for item in self.items]
        return tuple(tile for tile in tiles if isinstance(tile, Tile))

    def locate(self, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """Index arrays for every dimension, and which elements they keep in bounds.

        Of index tiles only the elements that ``where`` keeps must have been written.
        """
        arrays = [np.broadcast_to(_item_values(item, where), self.shape) for item in self.items]
        inside = np.ones(self.shape, dtype=np.bool_)
        for array, size in zip(arrays, self.base.shape, strict=True):
            inside &= (array >= 0) & (array < size)
        return tuple(arrays), inside

    def resolve(self, *, skip: bool, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """:meth:`locate`; unless ``skip``, an index out of bounds raises.

        ``where``, a mask's bools, takes elements out as if they were out of bounds.
        """
        kept = None if where is None else where.reshape(self.shape)
        arrays, inside = self.locate(kept)
        outside = ~inside if kept is None else ~inside & kept
        if not skip and outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            index = [int(array[at]) for array in arrays]
            raise OutOfBoundsError(
                "an index held in a tile stays inside its tensor",
                happened=f"an index held in a tile left its tensor: {index}",
                received=f"index {index} into {self.base!r}, at element {list(at)}",
                limit=f"{[size - 1 for size in self.base.shape]}",
                remedy="correct the indices, or pass oob_mode=nisa.oob_mode.skip",
            )
        return arrays, inside if kept is None else inside & kept

    def check_written(self, arrays: tuple[Array, ...], inside: Array) -> None:
        """Raise :class:`UnwrittenError` if an element to be read was never written."""
        base = self.base
        missing = base.unwritten()
        if missing is not None and missing[tuple(a[inside] for a in arrays)].any():
            raise UnwrittenError(
                "an instruction reads only what was written before",
                happened="an instruction read through a tile of indices what nothing had written",
                received=f"an element of {base!r}, through a tile of indices",
            )

    def mark_written(self, arrays: tuple[Array, ...], inside: Array) -> None:
        """Record a scatter's writes."""
        base = self.base
        where = np.zeros(base.shape, dtype=np.bool_)
        where[tuple(a[inside] for a in arrays)] = True
        base.mark_written(where)

    def elements(self) -> Array:
        """The whole indexed tensor's elements, to be fancy-indexed."""
        return self.base.elements()


def _item_shape(item: object) -> Shape:
    if isinstance(item, Index):
        return item.shape
    if isinstance(item, DynamicIndex):
        offset = item.offset.shape if isinstance(item.offset, Index) else ()
        return broadcast_shapes(_index_shape(item.tile), offset, "an index tile and its offset")
    return _index_shape(item) if isinstance(item, Tile) else ()


def _index_shape(tile: Tile) -> Shape:
    """An index tile's shape; one element is a scalar, which broadcasts with everything."""
    return () if tile.size == 1 else tile.tile_shape()


def _item_values(item: Any, where: Array | None) -> Array:
    if isinstance(item, Index):
        return item.array()
    if isinstance(item, DynamicIndex):
        offset = item.offset.array() if isinstance(item.offset, Index) else item.offset
        total: Array = _item_values(item.tile, where) + offset
        return total
    if isinstance(item, Tile):
        values = item.values(_of_index(item, where))
        if values.dtype.kind not in "iu":
            raise DtypeError(
                "indices held in a tile are integers",
                happened=f"a tensor was indexed with a tile of {name_of(item.dtype)}",
                received=f"{item!r}",
                limit="int32, uint32 and smaller integers",
            )
        return values.astype(np.int64).reshape(_index_shape(item))
    return np.asarray(int(item))


def _of_index(tile: Tile, where: Array | None) -> Array | None:
    """Which elements of an index tile a mask over the access keeps: any that it repeats to."""
    if where is None:
        return None
    have = _index_shape(tile)
    aligned = (*(1,) * (where.ndim - len(have)), *have)
    repeated = tuple(k for k, size in enumerate(aligned) if size != where.shape[k])
    return np.asarray(where.any(axis=repeated, keepdims=True))
