"""The exact run's values of one tensor: planes next to its data, and an owner for each byte.

Each tensor has exact values of its own. Another tensor on the same bytes may have overwritten the
data behind them. So each byte of such a memory has a number. It names the tensor that last wrote a
rounded value there, or says that the machine's own bits are exact.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.capacity import partition_bytes
from difftest.simulator.core import current
from difftest.simulator.dtypes import Array, from_bits
from difftest.simulator.errors import Location, Stack
from difftest.simulator.exact.bounded import (
    Bounded,
    ExactValues,
    Float64,
    element_bounds,
)
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.gate import fit
from difftest.simulator.lifted import broadcast_mask as over
from difftest.simulator.memory import PlacedMemory, PlacedStorage
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Area
from difftest.support.file_arrays import float64_copy, release, zeros

_BYTE = np.dtype(np.uint8)
_OWNER = np.dtype(np.uint32)
_BEFORE = 0
_MACHINE = 1
_FIRST = 2
"""Owners of bytes: unwritten since tensors share them, exact in the machine's own bits, or last
written with rounded values by the tensor with the id 0.
"""


class ByteOwners:
    """The owners of bytes in a launch's memories where placed tensors overlap."""

    def __init__(self) -> None:
        self._maps: dict[PlacedMemory, Array] = {}

    def note(self, tile: Any, where: Array | None, *, rounded: bool) -> None:
        """Note a write to a tensor that shares its bytes."""
        storage = tile._storage
        if storage.in_hbm:
            return
        if isinstance(tile, IndirectTile):
            tile, where = tile._base, tile.there(where)
        number = _FIRST + storage.allocation.id if rounded else _MACHINE
        chosen = None if where is None else over(where, tile.shape)[..., None]
        tile._give(self._bytes(storage, tile), number, chosen)

    def own(self, tile: Tile) -> Array | str:
        """Return the elements with exact values of the tensor; elsewhere the machine is exact.

        Return a reason instead if rounded values of other tensors are, or may be, among the bits.
        """
        storage: Any = tile._storage
        if storage.in_hbm:
            return "tensors share the bytes of an address"
        owners = tile._take(self._bytes(storage, tile))
        held = storage.exact is not None
        before = owners == _BEFORE
        own = (before & held) | (owners == _FIRST + storage.allocation.id)
        clean = (owners == _MACHINE) | (before & (not held and not storage.may_hide()))
        whole: Array = own.all(axis=-1)
        if (whole | clean.all(axis=-1)).all():
            return whole
        return "the bits of rounded values are read as another tensor's"

    def _bytes(self, storage: PlacedStorage, tile: Tile) -> Array:
        """Return the owner of each byte of a tile, along a new last axis, as a view."""
        machine = current().machine
        size = partition_bytes(storage.space, machine)
        if storage.memory not in self._maps:
            self._maps[storage.memory] = np.zeros((machine.partitions, size), _OWNER)
        owners = self._maps[storage.memory]
        area = Area(0, machine.partitions, 0, size)
        pattern = tile._pattern.finer(tile.dtype.itemsize)
        like = storage.placed(owners, area, pattern, _BYTE)
        # counted as if an owner took one byte
        first = like.ctypes.data - owners.ctypes.data
        steps = [step * _OWNER.itemsize for step in like.strides]
        return np.ndarray(like.shape, _OWNER, owners, first * _OWNER.itemsize, steps)


class RoundingSites(NamedTuple):
    """The lines and calls that rounded a tensor's numbers: see :class:`ExactValues`."""

    sum: Location | None = None
    product: Location | None = None
    narrowed: frozenset[Stack] = frozenset()


def holding(
    tile: Tile,
    numbers: Bounded,
    where: Array | None,
    lines: RoundingSites,
    first: int = 0,
) -> ExactValues:
    """Return the exact values of a tile's tensor after a write of these numbers.

    ``first`` is the id of the tensor's first element, if its elements get ids of their own.
    """
    if where is not None or not tile._is_whole():
        before = tile._storage.exact
        held = _in_part(tile, numbers, where, lines)
        if _has_ids(numbers) or (before is not None and _has_ids(before)):
            return held._replace(ids=_ids_in_part(tile, before, numbers.ids, where))
        return held._replace(ids=first)
    shape = tile._storage.allocation.shape
    sums = None
    value, error = [_own(plane, tile.shape) for plane in _planes(tile, numbers)]
    if tile.shape != shape:
        value = value.reshape(shape)
        error = error.reshape(shape)
    if numbers.sums:
        sums = np.full(shape, numbers.sums, np.uint8)
    own: Any = first
    if _has_ids(numbers):
        own = _own_ids(numbers.ids, tile).reshape(shape)
    return ExactValues(
        value,
        error,
        sums,
        lines.sum,
        lines.product,
        numbers.partial,
        ids=own,
        narrowed=lines.narrowed,
    )


def _planes(tile: Tile, numbers: Bounded) -> list[Float64]:
    """Return the values and the bounds of numbers in the shape of a tile."""
    error = np.zeros(()) if numbers.error is None else element_bounds(numbers)
    return [
        p if p.shape == tile.shape else fit(p, tile) for p in (numbers.value, error)
    ]


def _has_ids(numbers: Bounded | ExactValues) -> bool:
    """Return whether each element has an id of its own."""
    return isinstance(numbers.ids, np.ndarray)


def ids_of(tile: Tile, held: ExactValues) -> Array:
    """Return the ids of a tile's numbers from the exact values of its tensor."""
    gathered: Array = tile._gather(_ids_plane(held))
    return gathered


def numbers_of(tile: Tile, exact: ExactValues, own: Array | None) -> Bounded:
    """Return a tile's numbers from the exact values of its tensor.

    ``own`` marks the elements that have these; elsewhere the machine is exact. None for all.
    """
    planes: Any = exact[:2]
    if tile._strided and tile._pattern is tile._storage.whole:  # as most tiles are
        value, error = [plane[...] for plane in planes]
    else:
        value, error = map(tile._gather, planes)
    sums = 0 if exact.sums is None else int(tile._gather(exact.sums).max())
    if own is not None and not own.all():
        value = np.where(own, value, raw_values(tile))
        error = np.where(own, error, 0.0)
    if not _has_bound(error):
        return Bounded(value, None, tile.dtype, sums, partial=exact.partial)
    ids: Any = None
    if own is None:
        ids = functools.partial(ids_of, tile, exact)
        if _has_ids(exact):
            ids = ids()
    return Bounded(value, error, tile.dtype, sums, partial=exact.partial, ids=ids)


def _has_bound(error: Float64) -> bool:
    """Return whether a bound is not 0; the first element decides for most tiles."""
    return bool(error.size and error.item(0)) or bool(error.any())


def _ids_plane(held: ExactValues) -> Array:
    if isinstance(held.ids, np.ndarray):
        plane: Array = held.ids
        return plane
    if not held.ids:
        return np.zeros(held.value.shape, np.int64)
    return np.arange(held.ids, held.ids + held.value.size).reshape(held.value.shape)


def _own_ids(ids: Array, tile: Tile) -> Array:
    """Return ids of a tile's shape in a new array."""
    return np.array(ids if ids.shape == tile.shape else fit(ids, tile))


def _ids_in_part(
    tile: Tile, before: ExactValues | None, ids: Any, where: Array | None
) -> Array:
    """Return a tensor's ids after a write to a part of it: 0 if the new numbers are without ids."""
    shape = tile._storage.allocation.shape
    plane = np.zeros(shape, np.int64) if before is None else _ids_plane(before).copy()
    part = _own_ids(ids, tile) if isinstance(ids, np.ndarray) else 0
    if where is not None and where.size == tile.size:
        where = where.reshape(tile.shape)
    tile._scatter(plane, part, where)
    return plane


def _in_part(
    tile: Tile, numbers: Bounded, where: Array | None, lines: RoundingSites
) -> ExactValues:
    """Return the exact values of a tile's tensor after a write to a part of it."""
    parts: Any = (*_planes(tile, numbers), numbers.sums)
    storage = tile._storage
    exact = storage.exact
    if exact is None:
        filled = float64_copy(raw_values(Tile._whole(storage)))
        exact = ExactValues(filled, zeros(filled.shape), None)
    planes = exact[:3]
    if numbers.sums and exact.sums is None:
        planes = (*planes[:2], np.zeros(exact.value.shape, np.uint8))
    if where is not None and where.size == tile.size:
        where = where.reshape(tile.shape)
    for plane, part in zip(planes, parts, strict=True):
        if plane is not None:
            tile._scatter(plane, part, where)
            release(plane, tile.size * plane.itemsize)
    return ExactValues(
        *planes,
        lines.sum or exact.line,
        lines.product,
        numbers.partial,
        narrowed=lines.narrowed | exact.narrowed,
    )


def _own(array: Float64, shape: tuple[int, ...]) -> Float64:
    """Return an array of a shape that shares no memory: the array itself if it already is one."""
    if array.base is None and array.shape == shape and array.flags.c_contiguous:
        return array
    full = np.empty(shape)
    full[...] = array
    return full


def raw_values(tile: Tile) -> Array:
    """Return the values of a tensor, unwritten elements included."""
    held = tile._elements()
    if tile._holds_bits:
        return from_bits(held, tile.dtype)
    return held
