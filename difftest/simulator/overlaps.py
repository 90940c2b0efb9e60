"""Tensors in HBM that the kernel places at addresses: those that overlap share their bytes.

HBM holds each dtype's own bits, so a tensor that overlaps another one becomes a view of the bytes
of both. What one wrote the other reads, also when the kernel has no name for the first any more.
"""

from __future__ import annotations

import numpy as np

from difftest.simulator.dtypes import BOOL, Array, DType
from difftest.simulator.memory import Storage, pattern_view
from difftest.simulator.pattern import Pattern

_BYTE = np.dtype(np.uint8)


class OverlappingStorage(Storage):
    """A tensor whose data are a part of bytes that others have too.

    ``written`` has a flag for each of its bytes, and is a part of all flags; nothing is counted,
    because others write here.
    """

    __slots__ = ()

    shared = True

    def hold_bits(self, itemsize: int) -> None:
        """Nothing: the bits are held, and each byte has its flag."""

    def shared_flags(
        self, pattern: Pattern, dtype: DType | None, partition_axis: int | None
    ) -> Array:
        assert self.written is not None
        size = (self.dtype if dtype is None else dtype).itemsize
        return pattern_view(self.written, pattern.finer(size), BOOL)


class PlacedTensors:
    """The tensors that a kernel has placed in one kind of HBM."""

    def __init__(self) -> None:
        self._groups: list[tuple[int, int, list[Storage]]] = []
        """First byte, the one after the last, and the tensors that lie there in one piece."""

    def place(self, storage: Storage) -> None:
        """Let a new tensor share the bytes of those that it overlaps."""
        area = storage.allocation.area
        assert area is not None
        touched = [one for one in self._groups if one[0] < area.high and area.low < one[1]]
        self._groups = [one for one in self._groups if one not in touched]
        low = min([area.low, *(one[0] for one in touched)])
        high = max([area.high, *(one[1] for one in touched)])
        members = [member for one in touched for member in one[2]]
        self._groups.append((low, high, [*members, storage]))
        if members:
            _share(low, high, members, storage)


def _share(low: int, high: int, members: list[Storage], new: Storage) -> None:
    """Make the data of tensors parts of the bytes from ``low`` to ``high``.

    Of the new one nothing is written; where the others have bytes it has theirs.
    """
    data, written = np.zeros(high - low, _BYTE), np.zeros(high - low, np.bool_)
    for storage in (new, *members):
        place = _place(storage, low)
        data[place] = storage.bits().view(_BYTE)
        if storage is not new:
            written[place] = _flags_of(storage)
    for storage in (*members, new):
        place = _place(storage, low)
        storage.data = np.ndarray(storage.allocation.shape, storage.dtype, data, place.start)
        storage.written = written[place]
        storage.unit = storage.unwritten = 1
        storage.__class__ = OverlappingStorage


def _place(storage: Storage, low: int) -> slice:
    area = storage.allocation.area
    assert area is not None
    return slice(area.low - low, area.high - low)


def _flags_of(storage: Storage) -> Array:
    """Whether each byte of a tensor was written."""
    if storage.written is None:
        return np.full(storage.size * storage.dtype.itemsize, not storage.unwritten)
    return storage.written.repeat(storage.unit)
