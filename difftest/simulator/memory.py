"""Tensors in HBM, SBUF and PSUM: their data, and which bytes of them are defined.

A :class:`Storage` is one tensor. HBM holds the dtype's own bits, SBUF and PSUM arrays of
:func:`~difftest.simulator.dtypes.storage_dtype` until a kernel asks for bits there too. Data are
contiguous, so that every :class:`~difftest.simulator.pattern.Pattern` is a view of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from difftest.simulator.dtypes import (
    BOOL,
    FLOAT32,
    TFLOAT32,
    Array,
    DType,
    is_float,
    to_bits,
)
from difftest.simulator.errors import LimitError, Location, UnwrittenError
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


DEFINED, UNSURE, LEFT, NEVER, LOST = range(5)
"""What is known of an element, in this order: it is defined; an instruction made it of what a mask
left out; a mask left it out, so nothing wrote it; nothing wrote it, which is an error for whoever
uses it; an instruction made it of what nothing wrote."""
_CODE = np.dtype(np.uint8)


class Gaps:
    """What of a tensor is not defined: a code for each ``unit`` bytes, and whence that came.

    Attributes
    ----------
    codes : flat; None in :data:`UNTOUCHED` alone.
    count : how many of them are not :data:`DEFINED`.
    unit : an element's bytes, or less once a view of a smaller dtype was written.
    masked : a mask left elements out, so that reading what nothing wrote gives poison.
    origin : whence an instruction brought what is not defined; of what a mask left out, who read it
        first.
    lost_at : the kernel's line that brought it last.
    """

    __slots__ = ("codes", "count", "lost_at", "masked", "origin", "unit")

    def __init__(self, codes: Array | None, count: int, unit: int) -> None:
        self.codes = codes
        self.count = count
        self.unit = unit
        self.masked = False
        self.origin: Origin | None = None
        self.lost_at: Location | None = None


UNTOUCHED = Gaps(None, 1, 1)
"""Of all tensors of which nothing was written yet."""


class Storage:
    """One tensor: its data, its dtype, and what of it is not defined.

    The data are held in the tensor's own dtype in HBM; on chip every float is float32, until
    :meth:`hold_bits` is called.
    """

    __slots__ = (
        "allocation",
        "data",
        "dtype",
        "exact",
        "gaps",
        "holds_bits",
        "in_hbm",
        "mutable",
        "producer",
        "products",
        "programs",
        "whole",
    )

    shared = False
    """Whether other tensors have the same bytes."""
    start = (0, 0)
    """The partition, and the byte in each, where a tensor with an address begins."""

    def __init__(
        self, allocation: Allocation, data: Array, *, written: bool = False, mutable: bool = True
    ) -> None:
        self.allocation = allocation
        self.data = data
        self.dtype = allocation.dtype
        self.in_hbm = self.holds_bits = allocation.space.is_hbm
        self.whole = Pattern.whole(allocation.shape)
        """The pattern of all of it, which most instructions use: told by its identity."""
        self.gaps = None if written else UNTOUCHED
        """None while all of it is defined."""
        self.mutable = mutable
        self.producer: object = None
        """What a frontend notes of how the tensor came to be."""
        self.exact: Held | None = None
        """What an exact run would hold, where the data are rounded; None where they are exact."""
        self.programs = 1
        """How many programs of a grid see it."""
        self.products: Array | None = None
        """Where in PSUM the last write was a matmul's, if anyone keeps count."""

    @property
    def space(self) -> Space:
        return self.allocation.space

    @property
    def size(self) -> int:
        return self.whole.size

    @property
    def is_destination(self) -> bool:
        """Whether an instruction was to write to it, whatever the values."""
        return self.allocation.writes > 0

    @property
    def partition_step(self) -> int:
        return self.allocation.partition_step

    @property
    def masked(self) -> bool:
        """Whether a mask left elements out: reading them gives poison instead of an error."""
        return self.gaps is not None and self.gaps.masked

    def elements(self, pattern: Pattern, dtype: DType, partition_axis: int | None) -> Array:
        """The elements that a pattern (in elements of ``dtype``) names, as they are held: a view.

        A dtype other than the tensor's own needs :meth:`hold_bits` before.
        """
        if pattern is self.whole and dtype is self.dtype:
            return self.data[...]  # a fifth of the time
        if dtype is self.dtype or dtype == self.dtype:
            dtype = self.data.dtype
        return pattern_view(self.data, pattern, dtype)

    def replace(self, values: Array) -> bool:
        """Let an array that nobody else has be the data of the whole tensor, if it can be.

        Of tensors in HBM, which may be the caller's arrays, it cannot.
        """
        if self.in_hbm or values.dtype != self.data.dtype or values.shape != self.data.shape:
            return False
        self.data = values
        self.mark_whole()
        return True

    def hold_bits(self) -> None:
        """From now on hold the dtype's own bits.

        Of a float that was held as float32, a NaN loses its payload.
        """
        if not self.holds_bits:
            self.data = self.bits().reshape(self.data.shape)
            self.holds_bits = True

    def bits(self) -> Array:
        """The data in the dtype's own bits, flat."""
        if self.data.dtype == self.dtype:
            return np.ascontiguousarray(self.data).reshape(-1)
        with np.errstate(all="ignore"):  # what was never written can be anything
            held = to_bits(self.data, self.dtype)
        return np.ascontiguousarray(held).reshape(-1)

    # -- what is defined -------------------------------------------------------------------------

    def codes(
        self, pattern: Pattern, dtype: DType | None = None, partition_axis: int | None = 0
    ) -> Array | None:
        """What is known of the elements of a pattern, the worst of each one's bytes.

        None where all of the tensor is defined. ``dtype`` None is the tensor's own.
        """
        gaps = self.gaps
        if gaps is None:
            return None
        if gaps is UNTOUCHED:
            return np.full(pattern.shape, NEVER, _CODE)
        region = self._region(gaps, pattern, dtype or self.dtype, partition_axis)
        codes: Array = region if region.ndim == len(pattern.shape) else region.max(axis=-1)
        return codes

    def mark(
        self,
        pattern: Pattern,
        code: int,
        where: Array | None = None,
        *,
        dtype: DType | None = None,
        partition_axis: int | None = 0,
    ) -> None:
        """Note what is known of the elements of a pattern, or of those that ``where`` chooses."""
        if self.gaps is None and code == DEFINED:
            return
        dtype = dtype or self.dtype
        repeated = pattern.repeats()
        alone = where is None and not repeated and not self.shared
        size = self.data.size * self.dtype.itemsize
        if alone and code == DEFINED and pattern.size * dtype.itemsize == size:
            self.gaps = None
            return
        gaps = self._own_gaps()
        region = self._region(gaps, pattern, dtype, partition_axis)
        if self.shared:  # others write there too
            region[() if where is None else np.broadcast_to(where, pattern.shape)] = code
            return
        # What is named twice is counted once: in the tensor, not in the pattern.
        counted = gaps.codes if repeated and gaps.codes is not None else region
        before = int(np.count_nonzero(counted))
        region[() if where is None else np.broadcast_to(where, pattern.shape)] = code
        after = 0 if alone and code == DEFINED else int(np.count_nonzero(counted))
        gaps.count += after - before
        if not gaps.count:
            self.gaps = None

    def mark_whole(self) -> None:
        """Note a write of all of it, by something else than a matmul."""
        self.products = None
        self.gaps = None

    def unwritten_box(self) -> tuple[Shape, Shape]:
        """The smallest box that holds what was never written, all of it if that is nothing."""
        codes = self.codes(self.whole, None, self.allocation.partition_axis)
        shape = self.allocation.shape
        if codes is None or not (codes >= LEFT).any():
            return (0,) * len(shape), shape
        places = np.nonzero(codes >= LEFT)
        low = tuple(int(one.min()) for one in places)
        return low, tuple(int(one.max()) + 1 for one in places)

    def leave_out(self) -> None:
        """Note that a mask leaves elements out; what was never written becomes poison.

        Kernels compute on whole tiles after a masked load and mask again when they store, so
        reading the rest is no error in itself. As NaN it is seen if it reaches an output.
        """
        if self.gaps is None or self.gaps.masked:
            return
        gaps = self._own_gaps()
        region = self._region(gaps, self.whole, self.dtype, self.allocation.partition_axis)
        region[region >= NEVER] = LEFT
        gaps.masked = True
        self.poison()

    def poison(self) -> None:
        """Let what was never written look so: a launch that may go on from there computes NaN."""
        gaps = self.gaps
        if gaps is UNTOUCHED:
            self.data[...] = poison((), self.data.dtype)[()]
        elif gaps is not None and gaps.codes is not None:
            held = self.data.dtype
            unit = held if gaps.unit == self.dtype.itemsize else np.dtype(f"V{gaps.unit}")
            missing = gaps.codes >= LEFT
            blank = poison((self.size,), held).view(unit)
            self.data.reshape(-1).view(unit)[missing] = blank[missing]

    def _own_gaps(self) -> Gaps:
        """Its gaps, with a code for each element."""
        gaps = self.gaps
        if gaps is None or gaps is UNTOUCHED:
            size, code = self.size, DEFINED if gaps is None else NEVER
            codes = np.full(size, code, _CODE)
            gaps = self.gaps = Gaps(codes, size if code else 0, self.dtype.itemsize)
        return gaps

    def _region(
        self, gaps: Gaps, pattern: Pattern, dtype: DType, partition_axis: int | None
    ) -> Array:
        """The codes of the elements of a pattern: a view; of several, along a new last axis."""
        assert gaps.codes is not None
        if dtype.itemsize < gaps.unit:
            parts = gaps.unit // dtype.itemsize
            gaps.codes, gaps.unit = gaps.codes.repeat(parts), dtype.itemsize
            gaps.count *= parts
        if dtype.itemsize > gaps.unit:
            pattern = pattern.finer(dtype.itemsize // gaps.unit)
        return pattern_view(gaps.codes, pattern, _CODE)


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


def unwritten_error(tile: Any, missing: Array, *, returned: bool = False) -> UnwrittenError:
    """The error for reading, or returning, a tile of which these elements were never written."""
    first = tuple(int(i) for i in np.argwhere(missing)[0]) if missing.ndim else ()
    storage, gaps = tile.storage, tile.storage.gaps
    origin, made = gaps and gaps.origin, storage.allocation.location
    rule = "an instruction reads only what was written before"
    happened = "an instruction read what nothing had written"
    so_far = "never"
    remedy = (
        "write the tensor first (nl.zeros, nl.load, an instruction's result), or read only the "
        "part that is written"
    )
    if returned:
        rule, happened = "a kernel writes what it returns", "the kernel returned what nothing had"
        happened += " written"
    elif storage.programs > 1:
        rule = "what another program writes may be read after the two have met, no sooner"
        happened, so_far = "a program read what no program had written yet", "not yet"
        remedy = (
            "if another program writes it, a barrier is missing: let them meet between the two "
            "(nisa.core_barrier on this tensor; a classic grid has none)"
        )
    return UnwrittenError(
        rule,
        happened=happened,
        received=f"{int(missing.sum())} of {missing.size} elements of {tile!r} were {so_far} "
        f"written, the first at {list(first)}"
        + ("" if made is None else f"; it was made at {made}")
        + ("" if origin is None else f"; they came from {origin}"),
        location=gaps.lost_at if returned and gaps else None,
        remedy=remedy,
    )
