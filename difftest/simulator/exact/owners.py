"""Whose exact values an on-chip byte has, where the kernel places tensors on the same bytes.

Each tensor has exact values of its own, but another one that shares its bytes may have overwritten
what they were of. So each byte of such a memory has a number: of the tensor that wrote something
rounded there last, or one that says that the machine's own bits are exact.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from difftest.simulator.addresses import Memory, PlacedStorage
from difftest.simulator.dtypes import Array
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Area

_BYTE = np.dtype(np.uint8)
_BEFORE, _MACHINE, _GONE = 0, 1, 255
"""Of bytes that nothing wrote since tensors share them; whose bits are exact; whose tensor with
rounded values no longer is."""


class Owners:
    """The bytes of a launch's memories in which placed tensors share."""

    def __init__(self) -> None:
        self._maps: dict[Memory, Array] = {}
        self._numbers: WeakKeyDictionary[PlacedStorage, int] = WeakKeyDictionary()
        self._free: list[int] = []

    def note(self, tile: Tile, where: Array | None, *, rounded: bool) -> bool | None:
        """Note what was written to a tensor that shares its bytes; None if it shares none.

        False if there are more such tensors than numbers.
        """
        storage = tile.storage
        if not isinstance(storage, PlacedStorage) or not storage.shared or storage.in_hbm:
            return None
        number = self._number(storage) if rounded else _MACHINE
        if number is None:
            return False
        chosen = None
        if where is not None:
            chosen = where.reshape(tile.shape) if where.size == tile.size else where
            chosen = np.broadcast_to(chosen, tile.shape)[..., None]
        tile.give(self._bytes(storage, tile), number, chosen)
        return True

    def own(self, tile: Tile) -> Array | str | None:
        """Which elements have the tensor's own exact values; the machine's are exact elsewhere.

        None for all elements; why it is not known where other tensors' rounded values are, or may
        be, among their bits.
        """
        storage = tile.storage
        if not isinstance(storage, PlacedStorage) or not storage.shared:
            return None
        if storage.in_hbm:
            return "tensors share the bytes of an address"
        owners = tile.take(self._bytes(storage, tile))
        held = storage.exact is not None
        before = owners == _BEFORE
        number = self._numbers.get(storage, _GONE)
        own = (before & held) | ((owners == number) & (number != _GONE))
        clean = (owners == _MACHINE) | (before & (not held and not storage.may_hide()))
        whole: Array = own.all(axis=-1)
        if (whole | clean.all(axis=-1)).all():
            return whole
        return "the bits of rounded values are read as another tensor's"

    def _bytes(self, storage: PlacedStorage, tile: Tile) -> Array:
        """The numbers of a tile's bytes, along a new last axis: a view."""
        memory = storage.memory
        if memory not in self._maps:
            shape = (memory.machine.partitions, memory.partition_bytes)
            self._maps[memory] = np.zeros(shape, np.uint8)
        area = Area(0, memory.machine.partitions, 0, memory.partition_bytes)
        pattern = tile.pattern.finer(tile.dtype.itemsize)
        return storage.placed(self._maps[memory], area, pattern, _BYTE, tile.partition_axis)

    def _number(self, storage: PlacedStorage) -> int | None:
        if storage not in self._numbers:
            self._free = self._free or self._left_over()
            if not self._free:
                return None
            self._numbers[storage] = self._free.pop()
        return self._numbers[storage]

    def _left_over(self) -> list[int]:
        """Numbers of no tensor that is left; bytes that still have them are nobody's any more."""
        free = sorted(set(range(_MACHINE + 1, _GONE)) - set(self._numbers.values()))
        new = np.arange(256, dtype=np.uint8)
        new[free] = _GONE
        for owners in self._maps.values():
            owners[...] = new[owners]
        return free
