"""Whose exact values an on-chip byte has, where the kernel places tensors on the same bytes.

Each tensor has exact values of its own, but another one that shares its bytes may have overwritten
what they were of. So each byte of such a memory has a number: of the tensor that wrote something
rounded there last, or one that says that the machine's own bits are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.addresses import PlacedMemory, PlacedStorage
from difftest.simulator.dtypes import Array
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Area

_BYTE, _OWNER = np.dtype(np.uint8), np.dtype(np.uint32)
_BEFORE, _MACHINE, _FIRST = 0, 1, 2
"""Of bytes that nothing wrote since tensors share them; whose bits are exact; of the tensor with
the id 0 that wrote something rounded there."""


class Owners:
    """The bytes of a launch's memories in which placed tensors share."""

    def __init__(self) -> None:
        self._maps: dict[PlacedMemory, Array] = {}

    def note(self, tile: Any, where: Array | None, *, rounded: bool) -> None:
        """Note what was written to a tensor that shares its bytes."""
        storage = tile.storage
        if storage.in_hbm:
            return
        if isinstance(tile, IndirectTile):
            tile, where = tile.base, tile.there(where)
        number = _FIRST + storage.allocation.id if rounded else _MACHINE
        chosen = None
        if where is not None:
            chosen = where.reshape(tile.shape) if where.size == tile.size else where
            chosen = np.broadcast_to(chosen, tile.shape)[..., None]
        tile.give(self._bytes(storage, tile), number, chosen)

    def own(self, tile: Tile) -> Array | str | None:
        """Which elements have the tensor's own exact values; the machine's are exact elsewhere.

        None for all elements; why it is not known where other tensors' rounded values are, or may
        be, among their bits.
        """
        storage: Any = tile.storage
        if not storage.shared:
            return None
        if storage.in_hbm:
            return "tensors share the bytes of an address"
        owners = tile.take(self._bytes(storage, tile))
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
        machine, size = storage.memory.machine, storage.memory.partition_bytes
        if storage.memory not in self._maps:
            self._maps[storage.memory] = np.zeros((machine.partitions, size), _OWNER)
        owners = self._maps[storage.memory]
        area = Area(0, machine.partitions, 0, size)
        pattern = tile.pattern.finer(tile.dtype.itemsize)
        like = storage.placed(owners, area, pattern, _BYTE, tile.partition_axis)
        first = like.ctypes.data - owners.ctypes.data  # counted as if an owner took one byte
        steps = [step * _OWNER.itemsize for step in like.strides]
        return np.ndarray(like.shape, _OWNER, owners, first * _OWNER.itemsize, steps)
