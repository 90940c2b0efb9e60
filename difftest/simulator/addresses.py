"""On-chip tensors that the kernel places: where they lie, and what they share.

A tensor with an address takes the same bytes of a number of partitions. Where two of them overlap,
each reads what the other wrote, bit for bit, as on the machine; and what a tensor wrote stays when
the kernel has no name for it any more. Both are rare, so a placed tensor is like any other until it
has to share: until another one that is alive overlaps it, or it is read where it wrote nothing
itself. From then on its data are a part of the memory's own bytes.
"""

from __future__ import annotations

from weakref import WeakSet

import numpy as np

from difftest.simulator.capacity import Occupancy
from difftest.simulator.dtypes import BOOL, Array, DType
from difftest.simulator.errors import LimitError, ShapeError
from difftest.simulator.machine import Machine
from difftest.simulator.memory import Storage, poison
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import Allocation, Area, Space


class PlacedMemory:
    """SBUF or PSUM as far as kernels place tensors in it."""

    def __init__(self, machine: Machine, space: Space) -> None:
        self.machine = machine
        self.space = space
        in_psum = space is Space.PSUM
        self.partition_bytes = (
            machine.psum_partition_bytes if in_psum else machine.sbuf_usable_bytes
        )
        self.alive: WeakSet[PlacedStorage] = WeakSet()
        self.left: list[Storage] = []
        """What tensors that are gone wrote, oldest first, and that ``bytes`` has not yet."""
        self.bytes: Array | None = None
        """[partitions, bytes], uint8; made when tensors share for the first time."""
        self.written: Array | None = None
        self.rounded = False
        """Whether tensors that are gone had exact values other than the machine's."""

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

    def place(
        self, allocation: Allocation, data: Array, occupancy: Occupancy | None, occupied: int
    ) -> PlacedStorage:
        """A new tensor at its address, nothing of it written by itself."""
        storage = PlacedStorage(self, allocation, data, occupancy, occupied)
        overlapping = [one for one in self.alive if one.area.overlaps(storage.area)]
        self.alive.add(storage)
        if overlapping:
            for one in sorted(overlapping, key=lambda one: one.allocation.id):
                one.share()
            storage.share()
        return storage

    def leave(self, storage: PlacedStorage) -> None:
        """Keep what a tensor that nobody can name any more wrote."""
        self.rounded |= storage.exact is not None
        if storage.shared or storage.unwritten == storage.units():
            return
        kept = Storage(storage.allocation, storage.data, unwritten=storage.unwritten)
        kept.kept, kept.unit, kept.written = storage.kept, storage.unit, storage.written
        if not storage.unwritten:
            self.left = [one for one in self.left if not storage.area.covers(_area(one))]
        self.left.append(kept)

    def has_written(self, area: Area) -> bool:
        """Whether tensors that are gone, or that share, wrote something in an area."""
        if any(_area(one).overlaps(area) for one in self.left):
            return True
        return self.written is not None and bool(_part(self.written, area).any())

    def take_in(self, storage: Storage) -> None:
        """Make the memory's bytes what was written there, by a tensor and those before it."""
        if self.bytes is None or self.written is None:
            shape = (self.machine.partitions, self.partition_bytes)
            self.bytes = np.zeros(shape, np.uint8)
            self.written = np.zeros(shape, np.bool_)
        older = [one for one in self.left if _area(one).overlaps(_area(storage))]
        self.left = [one for one in self.left if one not in older]
        for one in (*older, storage):
            target, written = (_part(each, _area(one)) for each in (self.bytes, self.written))
            rows = one.allocation.partitions
            where: Array = np.full(target.shape, not one.unwritten)
            if one.written is not None:
                where = one.written.repeat(one.unit).reshape(rows, -1)
            np.copyto(target, one.bits().view(np.uint8).reshape(rows, -1), where=where)
            written |= where


class PlacedStorage(Storage):
    """A tensor with an address. ``shared`` once its data are the memory's own bytes."""

    __slots__ = ("__weakref__", "area", "memory", "shared")

    def __init__(
        self,
        memory: PlacedMemory,
        allocation: Allocation,
        data: Array,
        occupancy: Occupancy | None,
        occupied: int,
    ) -> None:
        super().__init__(
            allocation, data, unwritten=data.size, occupancy=occupancy, occupied=occupied
        )
        self.area = area = _area(self)
        self.start = (area.first, area.low)
        self.memory = memory
        self.shared = False

    def __del__(self) -> None:
        super().__del__()
        self.memory.leave(self)

    def share(self) -> None:
        """Hold the data in the memory's own bytes from now on."""
        if self.shared:
            return
        self.memory.take_in(self)
        assert self.memory.bytes is not None
        self.shared = True
        self.holds_bits = True
        self.kept = self.dtype
        self.data = self.memory.bytes
        self.written = self.memory.written
        self.unit = 1
        self.unwritten = 1  # not counted: others write here too
        if self.masked:
            self.poison()

    def poison(self) -> None:
        if not self.shared:
            super().poison()
            return
        whole = self.whole
        missing = ~self.shared_flags(whole, self.dtype, 0)
        blank = poison(self.allocation.shape, self.dtype)[..., None].view(np.uint8)
        size = self.dtype.itemsize
        target = self.placed(self.data, whole.finer(size), np.dtype(np.uint8), 0)
        np.copyto(target, blank, where=missing)

    def elements(self, pattern: Pattern, dtype: DType, partition_axis: int | None) -> Array:
        if not self.shared:
            return super().elements(pattern, dtype, partition_axis)
        return self.placed(self.data, pattern, dtype, partition_axis)

    def replace(self, values: Array) -> bool:
        return not self.shared and super().replace(values)

    def hold_bits(self, itemsize: int) -> None:
        if not self.shared:
            super().hold_bits(itemsize)

    def unwritten_in(
        self, pattern: Pattern, *, dtype: DType | None = None, partition_axis: int | None = 0
    ) -> Array | None:
        missing = super().unwritten_in(pattern, dtype=dtype, partition_axis=partition_axis)
        if self.shared or missing is None or not self.memory.has_written(self.area):
            return missing
        self.share()
        return super().unwritten_in(pattern, dtype=dtype, partition_axis=partition_axis)

    def shared_flags(
        self, pattern: Pattern, dtype: DType | None, partition_axis: int | None
    ) -> Array:
        assert self.written is not None
        size = (self.dtype if dtype is None else dtype).itemsize
        return self.placed(self.written, pattern.finer(size), BOOL, partition_axis)

    def placed(
        self, base: Array, pattern: Pattern, dtype: DType, partition_axis: int | None
    ) -> Array:
        """A pattern's elements in [partitions, bytes]: a view.

        A pattern counts as if the partitions of the tensor lay one after the other, with the bytes
        that the tensor has of each; in ``base`` they are as far apart as the memory's.
        """
        row = self.allocation.partition_bytes
        pitch = base.shape[1]
        offset, shape, strides = pattern
        steps = [stride * dtype.itemsize for stride in strides]
        if partition_axis is not None and partition_axis < len(steps):
            steps[partition_axis] = steps[partition_axis] // row * pitch
        number, byte = divmod(offset * dtype.itemsize, row)
        partition, first = self.start
        return np.ndarray(shape, dtype, base, (partition + number) * pitch + first + byte, steps)


def _area(storage: Storage) -> Area:
    area = storage.allocation.area
    assert area is not None
    return area


def _part(base: Array, area: Area) -> Array:
    """An area of [partitions, bytes]: a view."""
    return base[area.first : area.last, area.low : area.high]
