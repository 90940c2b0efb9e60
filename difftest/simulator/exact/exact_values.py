"""What the exact run holds of one tensor: planes beside its data, and whose the bytes are.

Each tensor has exact values of its own, but another one that the kernel places on the same bytes
may have overwritten what they were of. So each byte of such a memory has a number: of the tensor
that wrote something rounded there last, or one that says that the machine's own bits are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.capacity import partition_bytes
from difftest.simulator.core import current
from difftest.simulator.dtypes import Array, from_bits
from difftest.simulator.errors import Location, Stack
from difftest.simulator.exact.bounded import Bounded, ExactValues, Float64, element_bounds
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.gate import fit
from difftest.simulator.lifted import broadcast_mask as over
from difftest.simulator.memory import PlacedMemory, PlacedStorage
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Area

_BYTE = np.dtype(np.uint8)
_OWNER = np.dtype(np.uint32)
_BEFORE, _MACHINE, _FIRST = 0, 1, 2
"""Of bytes that nothing wrote since tensors share them; whose bits are exact; of the tensor with
the id 0 that wrote something rounded there."""


class ByteOwners:
    """The bytes of a launch's memories in which placed tensors share."""

    def __init__(self) -> None:
        self._maps: dict[PlacedMemory, Array] = {}

    def note(self, tile: Any, where: Array | None, *, rounded: bool) -> None:
        """Note what was written to a tensor that shares its bytes."""
        storage = tile._storage
        if storage.in_hbm:
            return
        if isinstance(tile, IndirectTile):
            tile, where = tile._base, tile.there(where)
        number = _FIRST + storage.allocation.id if rounded else _MACHINE
        chosen = None if where is None else over(where, tile.shape)[..., None]
        tile._give(self._bytes(storage, tile), number, chosen)

    def own(self, tile: Tile) -> Array | str:
        """Which elements have the tensor's own exact values; the machine's are exact elsewhere.

        Why it is not known where other tensors' rounded values are, or may be, among their bits.
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
        """Of each byte of a tile, along a new last axis, who wrote it: a view."""
        machine = current().machine
        size = partition_bytes(storage.space, machine)
        if storage.memory not in self._maps:
            self._maps[storage.memory] = np.zeros((machine.partitions, size), _OWNER)
        owners = self._maps[storage.memory]
        area = Area(0, machine.partitions, 0, size)
        pattern = tile._pattern.finer(tile.dtype.itemsize)
        like = storage.placed(owners, area, pattern, _BYTE)
        first = like.ctypes.data - owners.ctypes.data  # counted as if an owner took one byte
        steps = [step * _OWNER.itemsize for step in like.strides]
        return np.ndarray(like.shape, _OWNER, owners, first * _OWNER.itemsize, steps)


class RoundingSites(NamedTuple):
    """The lines and the calls that rounded a tensor's numbers: see :class:`ExactValues`."""

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
    """What a tile's tensor holds with these numbers; before they were the machine's own.

    ``first`` is the id of the tensor's first element, where its elements get ids of their own.
    """
    error = np.zeros(()) if numbers.error is None else element_bounds(numbers)
    planes = [p if p.shape == tile.shape else fit(p, tile) for p in (numbers.value, error)]
    if where is not None or not tile._is_whole():
        before = tile._storage.exact
        ids = numbers.ids
        held = _in_part(tile, (*planes, numbers.sums), where, (numbers.partial, lines))
        if isinstance(ids, np.ndarray) or isinstance(before and before.ids, np.ndarray):
            return held._replace(ids=_ids_in_part(tile, before, ids, where))
        return held._replace(ids=first)
    shape = tile._storage.allocation.shape
    sums = None
    owned = [_own(plane, tile.shape) for plane in planes]
    value, error = owned if tile.shape == shape else [p.reshape(shape) for p in owned]
    if numbers.sums:
        sums = np.full(shape, numbers.sums, np.uint8)
    own: Any = first
    if isinstance(numbers.ids, np.ndarray):
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


def ids_of(tile: Tile, held: ExactValues) -> Array:
    """Return the ids of the numbers that a tile names, of what its tensor held."""
    gathered: Array = tile._gather(_ids_plane(held))
    return gathered


def _ids_plane(held: ExactValues) -> Array:
    if isinstance(held.ids, np.ndarray):
        plane: Array = held.ids
        return plane
    if not held.ids:
        return np.zeros(held.value.shape, np.int64)
    return np.arange(held.ids, held.ids + held.value.size).reshape(held.value.shape)


def _own_ids(ids: Array, tile: Tile) -> Array:
    """Return ids of a tile's shape in an array that nobody else has."""
    return np.array(ids if ids.shape == tile.shape else fit(ids, tile))


def _ids_in_part(tile: Tile, before: ExactValues | None, ids: Any, where: Array | None) -> Array:
    """Return a tensor's ids after a write to a part of it: 0 where the part has none."""
    shape = tile._storage.allocation.shape
    plane = np.zeros(shape, np.int64) if before is None else _ids_plane(before).copy()
    part = _own_ids(ids, tile) if isinstance(ids, np.ndarray) else 0
    if where is not None and where.size == tile.size:
        where = where.reshape(tile.shape)
    tile._scatter(plane, part, where)
    return plane


def _in_part(tile: Tile, parts: Any, where: Array | None, last: Any) -> ExactValues:
    storage = tile._storage
    sums = parts[2]
    exact = storage.exact
    if exact is None:
        filled = np.ascontiguousarray(raw_values(Tile._whole(storage)), np.float64)
        exact = ExactValues(filled, np.zeros(filled.shape), None)
    planes = exact[:3]
    if sums and exact.sums is None:
        planes = (*planes[:2], np.zeros(exact.value.shape, np.uint8))
    if where is not None and where.size == tile.size:
        where = where.reshape(tile.shape)
    for plane, part in zip(planes, parts, strict=True):
        if plane is not None:
            tile._scatter(plane, part, where)
    partial, lines = last
    narrowed = lines.narrowed | exact.narrowed
    return ExactValues(*planes, lines.sum or exact.line, lines.product, partial, narrowed=narrowed)


def _own(array: Float64, shape: tuple[int, ...]) -> Float64:
    """An array of a shape that nobody else has."""
    if array.base is None and array.shape == shape and array.flags.c_contiguous:
        return array
    full = np.empty(shape)
    full[...] = array
    return full


def raw_values(tile: Tile) -> Array:
    """The values of a tensor, whatever was never written."""
    held = tile._elements()
    return from_bits(held, tile.dtype) if tile._holds_bits else held
