"""Tensors in HBM, SBUF and PSUM: their data, and which bytes of them were ever written.

A :class:`Storage` is one tensor. HBM holds the dtype's own bits, SBUF and PSUM arrays of
:func:`~difftest.simulator.dtypes.storage_dtype` until a kernel asks for bits there too. Data are
contiguous, so that every :class:`~difftest.simulator.pattern.Pattern` is a view of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from difftest.simulator.capacity import Occupancy
from difftest.simulator.dtypes import (
    BOOL,
    FLOAT32,
    TFLOAT32,
    Array,
    DType,
    is_float,
    to_bits,
)
from difftest.simulator.errors import LimitError, Location
from difftest.simulator.machine import Machine
from difftest.simulator.pattern import Pattern
from difftest.simulator.pattern import Shape as Shape
from difftest.simulator.trace import Allocation, Origin, Space

if TYPE_CHECKING:
    from difftest.simulator.exact.bounded import Held


def pattern_view(base: Array, pattern: Pattern, dtype: DType) -> Array:
    """The elements of ``dtype`` that a pattern names in the contiguous ``base``: a view."""
    size = dtype.itemsize
    offset, shape, strides = pattern
    return np.ndarray(shape, dtype, base, offset * size, [stride * size for stride in strides])


def check_partitions(partitions: int, what: object, machine: Machine) -> None:
    """Raise :class:`LimitError` if a tensor has more partitions than the memory."""
    if partitions > machine.partitions:
        raise LimitError(
            f"the partition size of a tile is at most {machine.partitions}",
            happened=f"a tile has {partitions} partitions",
            received=f"{what}: {partitions} partitions",
            limit=f"{machine.partitions} partitions ({machine.name}, nl.tile_size.pmax)",
            remedy=f"loop over the first dimension in tiles of at most {machine.partitions}, "
            "and put the rest into the free dimension",
        )


def check_tensor_size(allocation: Allocation, block_axes: int, machine: Machine) -> None:
    """Raise :class:`LimitError` if one tensor alone exceeds its memory's partitions."""
    if allocation.partitions > machine.partitions:
        check_partitions(allocation.partitions, allocation, machine)
    in_psum = allocation.space is Space.PSUM
    limit = machine.psum_partition_bytes if in_psum else machine.sbuf_usable_bytes
    received = allocation.partition_bytes
    for size in allocation.shape[:block_axes]:
        received //= size
    if received > limit:
        raise LimitError(
            f"a tile fits the bytes that {allocation.space.value} has in each partition",
            happened=f"a tile has {received} bytes a partition in {allocation.space.value}",
            received=f"{allocation}: {received} bytes a partition",
            limit=f"{limit} bytes a partition ({machine.name})",
            remedy="use a smaller free dimension and loop over the rest",
        )


class Storage:
    """One tensor: its data, its dtype, and what was never written of it.

    ``kept`` is the dtype in which the data are held: in HBM the tensor's own; on chip float32 for
    every float, until :meth:`hold_bits` is called.

    ``written`` is flat, with a bool for each ``unit`` bytes of the tensor, and None while all or
    none were written; ``unwritten`` counts those that were not. A unit is an element, or less once
    a view of a smaller dtype was taken.
    """

    __slots__ = (
        "added",
        "allocation",
        "data",
        "dtype",
        "exact",
        "holds_bits",
        "in_hbm",
        "is_destination",
        "kept",
        "lost",
        "lost_at",
        "masked",
        "mutable",
        "occupancy",
        "occupied",
        "origin",
        "partition_step",
        "producer",
        "products",
        "programs",
        "size",
        "space",
        "start",
        "undefined",
        "undefined_from",
        "unit",
        "unwritten",
        "whole",
        "written",
    )

    def __init__(
        self,
        allocation: Allocation,
        data: Array,
        *,
        unwritten: int,
        mutable: bool = True,
        occupancy: Occupancy | None = None,
        occupied: int = 0,
    ) -> None:
        self.allocation = allocation
        self.data = data
        self.dtype = dtype = allocation.dtype
        self.kept = data.dtype
        self.space = space = allocation.space
        self.in_hbm = self.holds_bits = space.is_hbm
        self.size = data.size
        self.whole = Pattern.whole(allocation.shape)
        """The pattern of all of it, which most instructions use: told by its identity."""
        self.partition_step = allocation.partition_step
        self.start = (0, 0)
        """The partition, and the byte in each, where a tensor with an address begins."""
        self.unit = dtype.itemsize
        self.unwritten = unwritten
        self.written: Array | None = None
        self.mutable = mutable
        self.is_destination = False
        """Whether an instruction was to write to it, whatever the values."""
        self.occupancy = occupancy
        """Of PSUM, which counts this tensor's ``occupied`` bytes while it lives."""
        self.occupied = occupied
        self.masked = False
        """A mask left elements out: reading them gives poison instead of an error."""
        self.undefined: Array | None = None
        """Which elements depend on what a mask left unwritten, flat; None if none do."""
        self.undefined_from: Origin | None = None
        """Whence that came; of a tensor of which a mask left elements out, who read them first."""
        self.origin: Origin | None = None
        """Whence an instruction brought elements that nothing wrote; None if none did."""
        self.lost: Array | None = None
        """Which elements ever were such, flat; None if none were. Some may be written since."""
        self.lost_at: Location | None = None
        """The kernel's line that brought them last."""
        self.producer: object = None
        """What a frontend notes of how the tensor came to be."""
        self.exact: Held | None = None
        """What an exact run would hold, where the data are rounded; None where they are exact."""
        self.programs = 1
        """How many programs of a grid see it."""
        self.products: Array | None = None
        """Where in PSUM the last write was a matmul's, if anyone keeps count."""

    def __del__(self) -> None:
        if self.occupancy is not None:
            self.occupancy.remove(self.occupied)

    def elements(self, pattern: Pattern, dtype: DType, partition_axis: int | None) -> Array:
        """The elements that a pattern (in elements of ``dtype``) names, as they are held: a view.

        A dtype other than the tensor's own needs :meth:`hold_bits` before.
        """
        if pattern is self.whole and dtype is self.dtype:
            return self.data[...]  # a fifth of the time
        if dtype is self.dtype or dtype == self.dtype:
            dtype = self.kept
        return pattern_view(self.data, pattern, dtype)

    def replace(self, values: Array) -> bool:
        """Let an array that nobody else has be the data of the whole tensor, if it can be.

        Of tensors in HBM, which may be the caller's arrays, it cannot.
        """
        if self.in_hbm or values.dtype != self.kept or values.shape != self.data.shape:
            return False
        self.data = values
        self.mark_whole()
        return True

    def hold_bits(self, itemsize: int) -> None:
        """From now on hold the dtype's own bits, and tell what is written by ``itemsize`` bytes.

        Of a float that was held as float32, a NaN loses its payload.
        """
        if not self.holds_bits:
            self.data = self.bits().reshape(self.data.shape)
            self.kept = self.dtype
            self.holds_bits = True
        if itemsize < self.unit:
            finer = self.unit // itemsize
            self.unit = itemsize
            self.unwritten *= finer
            if self.written is not None:
                self.written = self.written.repeat(finer)

    def bits(self) -> Array:
        """The data in the dtype's own bits, flat."""
        if self.kept == self.dtype:
            return np.ascontiguousarray(self.data).reshape(-1)
        with np.errstate(all="ignore"):  # what was never written can be anything
            held = to_bits(self.data, self.dtype)
        return np.ascontiguousarray(held).reshape(-1)

    shared: bool = False
    """Whether other tensors have the same bytes: each byte has a flag then, and what is not written
    is not counted, because others write there too."""

    def shared_flags(
        self, pattern: Pattern, dtype: DType | None, partition_axis: int | None
    ) -> Array:
        """Of a :attr:`shared` tensor whether each byte of a pattern's elements was written.

        The bytes of an element are the last axis.
        """
        raise NotImplementedError

    def mark_written(
        self,
        pattern: Pattern,
        where: Array | None = None,
        *,
        dtype: DType | None = None,
        partition_axis: int | None = 0,
    ) -> None:
        """Record a write through a pattern of elements of ``dtype`` (None for the tensor's own).

        ``where`` limits it to a mask's elements.
        """
        if not self.unwritten:
            return
        if self.shared:
            flags = self.shared_flags(pattern, dtype, partition_axis)
            flags[() if where is None else np.broadcast_to(where, pattern.shape)] = True
            return
        parts = self._parts(dtype)
        repeated = pattern.repeats()
        if where is None and not repeated and pattern.size * parts == self.units():
            self.unwritten = 0
            self.written = None
            return
        if self.written is None:
            self.written = np.zeros(self.units(), dtype=np.bool_)
        region = pattern_view(self.written, pattern if parts == 1 else pattern.finer(parts), BOOL)
        # What is named twice is counted once: in the tensor, not in the pattern.
        counted = self.written if repeated else region
        before = int(np.count_nonzero(counted))
        if where is None:
            region[...] = True
        else:
            region[np.broadcast_to(where, pattern.shape)] = True
        after = region.size if counted is region and where is None else np.count_nonzero(counted)
        self.unwritten -= int(after) - before
        if self.unwritten == 0:
            self.written = None

    def mark_whole(self) -> None:
        """Record a write of all of it, by something else than a matmul."""
        self.products = None
        if self.shared:
            self.mark_written(self.whole, partition_axis=self.allocation.partition_axis)
            return
        self.unwritten = 0
        self.written = None

    def forget_written(
        self,
        pattern: Pattern,
        where: Array,
        *,
        dtype: DType | None = None,
        partition_axis: int | None = 0,
    ) -> None:
        """Note that the elements of a pattern that ``where`` chooses hold what nothing wrote."""
        if not where.any():
            return
        if self.shared:
            self.shared_flags(pattern, dtype, partition_axis)[where] = False
            return
        if self.written is None:
            self.written = np.full(self.units(), not self.unwritten)
        parts = self._parts(dtype)
        region = pattern_view(self.written, pattern if parts == 1 else pattern.finer(parts), BOOL)
        region[where] = False
        self.unwritten = self.units() - int(np.count_nonzero(self.written))
        if self.unwritten == self.units():
            self.written = None

    def unwritten_in(
        self,
        pattern: Pattern,
        *,
        dtype: DType | None = None,
        partition_axis: int | None = 0,
    ) -> Array | None:
        """Which of a pattern's elements were not written, or not all of them; None if all were."""
        if not self.unwritten:
            return None
        if self.shared:
            flags = self.shared_flags(pattern, dtype, partition_axis)
            missing: Array = ~np.all(flags, axis=-1)
            return missing if missing.any() else None
        if self.written is None:
            return np.ones(pattern.shape, dtype=np.bool_)
        parts = self._parts(dtype)
        region = pattern_view(self.written, pattern if parts == 1 else pattern.finer(parts), BOOL)
        if region.all():
            return None
        written: Array = region if parts == 1 else np.all(region, axis=-1)
        return ~written

    def unwritten_box(self) -> tuple[Shape, Shape]:
        """The smallest box that holds what was never written, all of it if that is nothing."""
        missing = self.unwritten_in(self.whole, partition_axis=self.allocation.partition_axis)
        shape = self.allocation.shape
        if missing is None:
            return (0,) * len(shape), shape
        low, high = [], []
        for axis in range(len(shape)):
            others = tuple(k for k in range(len(shape)) if k != axis)
            there = np.flatnonzero(missing.any(axis=others))
            low.append(int(there[0]))
            high.append(int(there[-1]) + 1)
        return tuple(low), tuple(high)

    def _parts(self, dtype: DType | None) -> int:
        """How many units an element of ``dtype`` has."""
        return (self.dtype if dtype is None else dtype).itemsize // self.unit

    def units(self) -> int:
        """How many units the tensor has."""
        return self.size * (self.dtype.itemsize // self.unit)

    def leave_out(self) -> None:
        """Note that a mask leaves elements out; what was never written becomes poison.

        Kernels compute on whole tiles after a masked load and mask again when they store, so
        reading the rest is no error in itself. As NaN it is seen if it reaches an output.
        """
        if not self.masked and self.unwritten:
            self.masked = True
            self.poison()

    def poison(self) -> None:
        """Let what was never written look so: a launch that may go on from there computes NaN."""
        if not self.unwritten:
            return
        if self.written is None:
            self.data[...] = poison((), self.kept)[()]
            return
        unit = self.kept if self._parts(None) == 1 else np.dtype(f"V{self.unit}")
        missing = ~self.written
        self.data.reshape(-1).view(unit)[missing] = poison((self.size,), self.kept).view(unit)[
            missing
        ]


POISON_INTEGER = int(np.frombuffer(b"\xa5" * 4, np.int32)[0])
"""What :func:`poison` fills an int32 with."""


def poison(shape: Shape, dtype: DType) -> Array:
    """An HBM array that looks like nothing anyone computed: NaN, or 0xA5 bytes for integers.

    Unwritten elements keep it, so that they are seen even where only values are compared.
    """
    if is_float(dtype):
        host = FLOAT32 if dtype == TFLOAT32 else dtype
        return np.full(shape, np.array(np.nan, dtype=host)).view(dtype)
    byte = 1 if dtype == BOOL else 0xA5
    return np.full(shape, np.full(dtype.itemsize, byte, dtype=np.uint8).view(dtype)[0])
