"""Tensors that the kernel places: where they lie, and what they share.

A tensor with an address takes certain bytes of its memory. Where two of them overlap, each reads
what the other wrote, bit for bit, as on the machine, also when the kernel has no name for the other
any more. A placed tensor is like any other until a second one overlaps it. From then on both are
views of one piece of the memory's bytes.
"""

from __future__ import annotations

import numpy as np

from difftest.simulator.dtypes import Array, DType
from difftest.simulator.errors import LimitError, ShapeError
from difftest.simulator.machine import Machine
from difftest.simulator.memory import DEFINED, LEFT, NEVER, UNTOUCHED, Gaps, Storage, poison
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import Allocation, Area, Space

_BYTE = np.dtype(np.uint8)


class Piece:
    """A part of a memory that tensors share: its bytes, and what is known of each."""

    def __init__(self, area: Area) -> None:
        self.area = area
        shape = (area.last - area.first, area.high - area.low)
        self.bytes = np.zeros(shape, _BYTE)
        self.codes = np.full(shape, NEVER, _BYTE)
        self.merged: Piece | None = None
        """The larger piece that has taken this one in."""

    def take_in(self, area: Area, held: Array, codes: Array) -> None:
        """Hold what was written in an area, with what is known of it."""
        rows = slice(area.first - self.area.first, area.last - self.area.first)
        columns = slice(area.low - self.area.low, area.high - self.area.low)
        for own, new in ((self.bytes, held), (self.codes, codes)):
            np.copyto(own[rows, columns], new, where=codes != NEVER)


class PlacedMemory:
    """One memory as far as kernels place tensors in it."""

    def __init__(self, machine: Machine, space: Space) -> None:
        self.machine = machine
        self.space = space
        in_psum = space is Space.PSUM
        self.partition_bytes = (
            machine.psum_partition_bytes if in_psum else machine.sbuf_usable_bytes
        )
        self.alone: list[PlacedStorage] = []
        """The tensors that no other one has overlapped."""
        self.pieces: list[Piece] = []
        self.rounded: list[Area] = []
        """Where tensors had exact values other than the machine's when they began to share."""

    def check(self, allocation: Allocation) -> None:
        """Raise unless a tensor's address lies in this memory.

        Raises
        ------
        LimitError : it reaches beyond the last partition, or the last byte of each.
        ShapeError : the tensor has block dimensions, which have no single address.
        """
        if allocation.partition_axis:
            raise ShapeError(
                "a tensor with an address has its partitions first",
                happened="a tensor with block dimensions was given an address",
                received=f"{allocation}",
            )
        area = allocation.area
        machine = self.machine
        if area is not None and not Area(0, machine.partitions, 0, self.partition_bytes).covers(
            area
        ):
            raise LimitError(
                f"a tensor with an address lies in {self.space.value}",
                happened=f"a tensor with an address leaves {self.space.value}",
                received=f"{allocation} at address {allocation.address}: partitions {area.first} "
                f"to {area.last - 1}, bytes {area.low} to {area.high - 1} of each",
                limit=f"partitions 0 to {machine.partitions - 1}, bytes 0 to "
                f"{self.partition_bytes - 1} ({machine.name})",
                remedy="an address is (first partition, first byte in each partition)",
            )

    def place(self, storage: PlacedStorage) -> None:
        """Let a new tensor share the bytes of all that it overlaps."""
        area = storage.area
        alone = [one for one in self.alone if one.area.overlaps(area)]
        pieces = [one for one in self.pieces if one.area.overlaps(area)]
        self.alone = [one for one in self.alone if one not in alone]
        if not alone and not pieces:
            self.alone.append(storage)
            return
        piece = pieces[0] if pieces else None
        if piece is None or len(pieces) > 1 or alone or not piece.area.covers(area):
            areas = [area, *(one.area for one in alone), *(one.area for one in pieces)]
            low = [min(ends) for ends in zip(*areas, strict=True)]
            high = [max(ends) for ends in zip(*areas, strict=True)]
            piece = Piece(Area(low[0], high[1], low[2], high[3]))
            for old in pieces:
                piece.take_in(old.area, old.bytes, old.codes)
                old.merged = piece
            self.pieces = [one for one in self.pieces if one not in pieces] + [piece]
        for one in alone:
            piece.take_in(one.area, *one.held())
            if one.exact is not None:
                self.rounded.append(one.area)
        for one in (*alone, storage):
            one.share(piece)


class PlacedStorage(Storage):
    """A tensor with an address. ``shared`` once its data are bytes that others have too."""

    __slots__ = ("__weakref__", "_piece", "area", "memory", "shared", "start")

    def __init__(self, memory: PlacedMemory, allocation: Allocation, data: Array) -> None:
        super().__init__(allocation, data)
        assert allocation.area is not None
        self.area: Area = allocation.area
        self.start = (self.area.first, self.area.low)
        self.memory = memory
        self.shared = False
        memory.place(self)

    @property
    def piece(self) -> Piece:
        """The bytes that it shares."""
        while self._piece.merged is not None:
            self._piece: Piece = self._piece.merged
        return self._piece

    def may_hide(self) -> bool:
        """Whether others had exact values other than the machine's where it begins to share."""
        return any(area.overlaps(self.area) for area in self.memory.rounded)

    def held(self) -> tuple[Array, Array]:
        """Its bytes and their codes, a row for each partition, while it shares none."""
        rows = self.area.last - self.area.first
        codes: Array = np.full((rows, 1), DEFINED if self.gaps is None else NEVER, _BYTE)
        if self.gaps is not None and self.gaps.codes is not None:
            codes = self.gaps.codes.repeat(self.gaps.unit).reshape(rows, -1)
        held = self.bits().view(_BYTE).reshape(rows, -1)
        return held, np.broadcast_to(codes, held.shape)

    def share(self, piece: Piece) -> None:
        """Hold the data in a piece's bytes from now on."""
        before, self.gaps = self.gaps, Gaps(None, 1, 1)
        if before is not None and before is not UNTOUCHED:
            self.gaps.masked, self.gaps.origin = before.masked, before.origin
            self.gaps.lost_at = before.lost_at
        self._piece = piece
        self.shared = self.holds_bits = True
        self.data = self.elements(self.whole, self.dtype, self.allocation.partition_axis)

    def elements(self, pattern: Pattern, dtype: DType, partition_axis: int | None) -> Array:
        if not self.shared:
            return super().elements(pattern, dtype, partition_axis)
        piece = self.piece
        return self.placed(piece.bytes, piece.area, pattern, dtype, partition_axis)

    def replace(self, values: Array) -> bool:
        return not self.shared and super().replace(values)

    def mark_whole(self) -> None:
        super().mark_whole() if not self.shared else self.mark(self.whole, DEFINED)

    def poison(self) -> None:
        if not self.shared:
            super().poison()
            return
        codes = self._region(UNTOUCHED, self.whole, self.dtype, 0)
        blank = poison(self.allocation.shape, self.dtype)[..., None].view(_BYTE)
        size = self.dtype.itemsize
        piece = self.piece
        target = self.placed(piece.bytes, piece.area, self.whole.finer(size), _BYTE, 0)
        np.copyto(target, blank, where=codes >= LEFT)

    def _region(
        self, gaps: Gaps, pattern: Pattern, dtype: DType, partition_axis: int | None
    ) -> Array:
        if not self.shared:
            return super()._region(gaps, pattern, dtype, partition_axis)
        piece = self.piece
        finer = pattern.finer(dtype.itemsize)
        return self.placed(piece.codes, piece.area, finer, _BYTE, partition_axis)

    def placed(
        self,
        base: Array,
        area: Area,
        pattern: Pattern,
        dtype: DType,
        partition_axis: int | None,
    ) -> Array:
        """A pattern's elements in ``base``, the bytes of an area: a view.

        A pattern counts as if the partitions of the tensor lay one after the other, with the bytes
        that the tensor has of each; in ``base`` they are as far apart as the area's.
        """
        offset, shape, strides = pattern
        steps = [stride * dtype.itemsize for stride in strides]
        first = (self.area.first - area.first) * base.shape[1] + self.area.low - area.low
        number, byte = 0, offset * dtype.itemsize
        if not self.in_hbm:
            row = self.allocation.partition_bytes
            number, byte = divmod(byte, row)
            if partition_axis is not None and partition_axis < len(steps):
                steps[partition_axis] = steps[partition_axis] // row * base.shape[1]
        return np.ndarray(shape, dtype, base, first + number * base.shape[1] + byte, steps)
