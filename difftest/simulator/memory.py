"""Tensors in HBM, SBUF and PSUM: their data, and which bytes of them are defined.

A :class:`Storage` is one tensor. HBM holds the dtype's own bits, SBUF and PSUM arrays of
:func:`~difftest.simulator.dtypes.storage_dtype` until a kernel asks for bits there too. Data are
contiguous, so that every :class:`~difftest.simulator.pattern.Pattern` is a view of them.

A tensor to which the kernel gives an address takes certain bytes of its memory. Where two of them
overlap, each reads what the other wrote, bit for bit, as on the machine, also when the kernel has
no name for the other any more. A placed tensor is like any other until a second one overlaps it.
From then on both are views of one piece of the memory's bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from difftest.simulator.dtypes import BOOL, FLOAT32, TFLOAT32, Array, DType, is_float, to_bits
from difftest.simulator.errors import Location
from difftest.simulator.pattern import Pattern
from difftest.simulator.pattern import Shape as Shape
from difftest.simulator.trace import Allocation, Area, Origin, Space

if TYPE_CHECKING:
    from difftest.simulator.exact.bounded import ExactValues


def pattern_view(base: Array, pattern: Pattern, dtype: DType) -> Array:
    """The elements of ``dtype`` that a pattern names in the contiguous ``base``: a view."""
    size = dtype.itemsize
    offset, shape, strides = pattern
    return np.ndarray(shape, dtype, base, offset * size, [stride * size for stride in strides])


DEFINED, FROM_MASKED, MASKED_OUT, UNWRITTEN, FROM_UNWRITTEN = range(5)
"""What is known of an element, in this order: it is defined; an instruction made it of what a mask
left out; a mask left it out, so nothing wrote it; nothing wrote it, which is an error for whoever
uses it; an instruction made it of what nothing wrote."""
_BYTE = np.dtype(np.uint8)
"""Of a code, and of what tensors share."""


class ValidityMap:
    """What of a tensor is not defined: a code for each ``unit`` bytes, and whence that came.

    Attributes
    ----------
    codes : flat; None in :data:`UNTOUCHED`, and of no use where tensors share a piece's.
    unit : an element's bytes, or less once a view of a smaller dtype was written.
    masked : a mask left elements out, so that reading what nothing wrote gives poison.
    origin : whence an instruction brought what is not defined; of what a mask left out, who read it
        first.
    lost_at : the kernel's line that brought it last.
    """

    __slots__ = ("codes", "lost_at", "masked", "origin", "unit")

    def __init__(self, codes: Array | None, unit: int) -> None:
        self.codes = codes
        self.unit = unit
        self.masked = False
        self.origin: Origin | None = None
        self.lost_at: Location | None = None


UNTOUCHED = ValidityMap(None, 1)
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
        "holds_bits",
        "in_hbm",
        "mutable",
        "producer",
        "products",
        "programs",
        "validity",
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
        self.validity = None if written else UNTOUCHED
        """None while all of it is defined."""
        self.mutable = mutable
        self.producer: object = None
        """What a frontend notes of how the tensor came to be."""
        self.exact: ExactValues | None = None
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
    def masked(self) -> bool:
        """Whether a mask left elements out: reading them gives poison instead of an error."""
        return self.validity is not None and self.validity.masked

    def elements(self, pattern: Pattern, dtype: DType) -> Array:
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
        held = self.data
        if self.in_hbm or self.shared or values.dtype != held.dtype or values.shape != held.shape:
            return False
        if not values.flags.carray:
            return False
        self.data = values
        self.products = self.validity = None
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

    def codes(self, pattern: Pattern, dtype: DType | None = None) -> Array | None:
        """What is known of the elements of a pattern, the worst of each one's bytes.

        None where all of the tensor is defined, or all that is asked of. ``dtype`` None is its own.
        """
        gaps = self.validity
        if gaps is None:
            return None
        if gaps is UNTOUCHED:
            return np.full(pattern.shape, UNWRITTEN, _BYTE)
        region = self._region(gaps, pattern, dtype or self.dtype)
        if region.ndim > len(pattern.shape):  # max(axis=-1) of so few takes fifty times as long
            return np.moveaxis(region, -1, 0).copy().max(axis=0) if region.any() else None
        return region

    def mark(
        self, pattern: Pattern, code: int, where: Array | None = None, *, dtype: DType | None = None
    ) -> None:
        """Note what is known of the elements of a pattern, or of those that ``where`` chooses."""
        if self.validity is None and code == DEFINED:
            return
        dtype = dtype or self.dtype
        alone = where is None and code == DEFINED and not (self.shared or pattern.repeats())
        if alone and pattern.size * dtype.itemsize == self.data.size * self.dtype.itemsize:
            self.validity = None
            return
        gaps = self._own_gaps()
        region = self._region(gaps, pattern, dtype)
        region[() if where is None else np.broadcast_to(where, pattern.shape)] = code
        if self.shared:  # others write there too
            return
        codes = gaps.codes
        assert codes is not None
        if not codes[-1] and not codes.view(BOOL).any():  # the last one tells, of most kernels
            self.validity = None

    def mark_whole(self) -> None:
        """Note a write of all of it, by something else than a matmul."""
        self.products = None
        if self.shared:
            self.mark(self.whole, DEFINED)
        else:
            self.validity = None

    def unwritten_box(self) -> tuple[Shape, Shape]:
        """The smallest box that holds what was never written, all of it if that is nothing."""
        codes = self.codes(self.whole)
        shape = self.allocation.shape
        if codes is None or not (codes >= MASKED_OUT).any():
            return (0,) * len(shape), shape
        places = np.nonzero(codes >= MASKED_OUT)
        low = tuple(int(axis.min()) for axis in places)
        return low, tuple(int(axis.max()) + 1 for axis in places)

    def leave_out(self) -> None:
        """Note that a mask leaves elements out; what was never written becomes poison.

        Kernels compute on whole tiles after a masked load and mask again when they store, so
        reading the rest is no error in itself. As NaN it is seen if it reaches an output.
        """
        if self.validity is None or self.validity.masked:
            return
        gaps = self._own_gaps()
        region = self._region(gaps, self.whole, self.dtype)
        region[region >= UNWRITTEN] = MASKED_OUT
        gaps.masked = True
        self.poison()

    def poison(self) -> None:
        """Let what was never written look so: a launch that may go on from there computes NaN."""
        gaps = self.validity
        if gaps is None:
            return
        if gaps is UNTOUCHED:
            self.data[...] = poison_array((), self.data.dtype)[()]
            return
        missing = self._region(gaps, self.whole, self.dtype) >= MASKED_OUT
        pattern = self.whole
        blank = poison_array(self.allocation.shape, self.data.dtype)
        dtype = self.dtype
        if missing.ndim > blank.ndim:  # of each element some bytes
            parts = missing.shape[-1]
            pattern = pattern.finer(parts)
            dtype = np.dtype(f"V{blank.itemsize // parts}")
            blank = blank[..., None].view(dtype)
        np.copyto(self.elements(pattern, dtype), blank, where=missing)

    def _own_gaps(self) -> ValidityMap:
        """Its gaps, with a code for each element."""
        gaps = self.validity
        if gaps is None or gaps is UNTOUCHED:
            codes = np.full(self.size, DEFINED if gaps is None else UNWRITTEN, _BYTE)
            gaps = self.validity = ValidityMap(codes, self.dtype.itemsize)
        return gaps

    def _region(self, gaps: ValidityMap, pattern: Pattern, dtype: DType) -> Array:
        """The codes of the elements of a pattern: a view; of several, along a new last axis."""
        assert gaps.codes is not None
        if dtype.itemsize < gaps.unit:
            parts = gaps.unit // dtype.itemsize
            gaps.codes = gaps.codes.repeat(parts)
            gaps.unit = dtype.itemsize
        if dtype.itemsize > gaps.unit:
            pattern = pattern.finer(dtype.itemsize // gaps.unit)
        return pattern_view(gaps.codes, pattern, _BYTE)


POISON_INTEGER = int(np.frombuffer(b"\xa5" * 4, np.int32)[0])
"""What :func:`poison` fills an int32 with."""


def poison_array(shape: Shape, dtype: DType) -> Array:
    """An HBM array that looks like nothing anyone computed: NaN, or 0xA5 bytes for integers.

    Unwritten elements keep it, so that they are seen even where only values are compared.
    """
    if is_float(dtype):
        host = FLOAT32 if dtype == TFLOAT32 else dtype
        return np.full(shape, np.array(np.nan, dtype=host)).view(dtype)
    byte = 1 if dtype == BOOL else 0xA5
    return np.full(shape, np.full(dtype.itemsize, byte, dtype=np.uint8).view(dtype)[0])


# -- tensors that the kernel places ----------------------------------------------------------------


class SharedBytes:
    """A part of a memory that tensors share: its bytes, and what is known of each."""

    def __init__(self, area: Area) -> None:
        self.area = area
        shape = (area.last - area.first, area.high - area.low)
        self.bytes = np.zeros(shape, _BYTE)
        self.codes = np.full(shape, UNWRITTEN, _BYTE)
        self.merged: SharedBytes | None = None
        """The larger piece that has taken this one in."""

    def take_in(self, area: Area, held: Array, codes: Array) -> None:
        """Hold what was written in an area, with what is known of it."""
        rows = slice(area.first - self.area.first, area.last - self.area.first)
        columns = slice(area.low - self.area.low, area.high - self.area.low)
        for own, new in ((self.bytes, held), (self.codes, codes)):
            np.copyto(own[rows, columns], new, where=codes != UNWRITTEN)


class PlacedMemory:
    """One memory as far as kernels place tensors in it."""

    def __init__(self) -> None:
        self.alone: list[PlacedStorage] = []
        """The tensors that no other one has overlapped."""
        self.pieces: list[SharedBytes] = []
        self.rounded: list[Area] = []
        """Where tensors had exact values other than the machine's when they began to share."""

    def place(self, storage: PlacedStorage) -> None:
        """Let a new tensor share the bytes of all that it overlaps."""
        area = storage.area
        alone = [s for s in self.alone if s.area.overlaps(area)]
        pieces = [p for p in self.pieces if p.area.overlaps(area)]
        self.alone = [s for s in self.alone if s not in alone]
        if not alone and not pieces:
            self.alone.append(storage)
            return
        areas = [area, *(s.area for s in alone), *(p.area for p in pieces)]
        ends = list(zip(*areas, strict=True))
        box = Area(min(ends[0]), max(ends[1]), min(ends[2]), max(ends[3]))
        piece = pieces[0] if pieces else None
        if piece is None or piece.area != box:
            piece = SharedBytes(box)
            for old in pieces:
                piece.take_in(old.area, old.bytes, old.codes)
                old.merged = piece
            self.pieces = [p for p in self.pieces if p not in pieces] + [piece]
        for tensor in alone:
            piece.take_in(tensor.area, *tensor.held())
            if tensor.exact is not None:
                self.rounded.append(tensor.area)
        for tensor in (*alone, storage):
            tensor.share(piece)


class PlacedStorage(Storage):
    """A tensor with an address. ``shared`` once its data are bytes that others have too."""

    __slots__ = ("_piece", "area", "memory", "shared", "start")

    def __init__(self, memory: PlacedMemory, allocation: Allocation, data: Array) -> None:
        super().__init__(allocation, data)
        assert allocation.area is not None
        self.area: Area = allocation.area
        self.start = (self.area.first, self.area.low)
        self.memory = memory
        self.shared = False
        memory.place(self)

    @property
    def piece(self) -> SharedBytes:
        """The bytes that it shares."""
        while self._piece.merged is not None:
            self._piece: SharedBytes = self._piece.merged
        return self._piece

    def may_hide(self) -> bool:
        """Whether others had exact values other than the machine's where it begins to share."""
        return any(area.overlaps(self.area) for area in self.memory.rounded)

    def held(self) -> tuple[Array, Array]:
        """Its bytes and their codes, a row for each partition, while it shares none."""
        rows = self.area.last - self.area.first
        codes: Array = np.full((rows, 1), DEFINED if self.validity is None else UNWRITTEN, _BYTE)
        if self.validity is not None and self.validity.codes is not None:
            codes = self.validity.codes.repeat(self.validity.unit).reshape(rows, -1)
        held = self.bits().view(_BYTE).reshape(rows, -1)
        return held, np.broadcast_to(codes, held.shape)

    def share(self, piece: SharedBytes) -> None:
        """Hold the data in a piece's bytes from now on."""
        if self.validity is None or self.validity is UNTOUCHED:
            self.validity = ValidityMap(None, 1)
        self._piece = piece
        self.shared = self.holds_bits = True
        self.data = self.elements(self.whole, self.dtype)

    def elements(self, pattern: Pattern, dtype: DType) -> Array:
        if not self.shared:
            return super().elements(pattern, dtype)
        return self.placed(self.piece.bytes, self.piece.area, pattern, dtype)

    def _region(self, gaps: ValidityMap, pattern: Pattern, dtype: DType) -> Array:
        if not self.shared:
            return super()._region(gaps, pattern, dtype)
        return self.placed(self.piece.codes, self.piece.area, pattern.finer(dtype.itemsize), _BYTE)

    def placed(self, base: Array, area: Area, pattern: Pattern, dtype: DType) -> Array:
        """A pattern's elements in ``base``, the bytes of an area: a view.

        A pattern counts as if the partitions of the tensor lay one after the other, with the bytes
        that the tensor has of each; in ``base`` they are as far apart as the area's.
        """
        offset, shape, strides = pattern
        steps = [stride * dtype.itemsize for stride in strides]
        first = (self.area.first - area.first) * base.shape[1] + self.area.low - area.low
        number = 0
        byte = offset * dtype.itemsize
        if not self.in_hbm:
            row = self.allocation.partition_bytes
            number, byte = divmod(byte, row)
            # No step inside a partition is as long as one.
            steps = [step // row * base.shape[1] if abs(step) >= row else step for step in steps]
        return np.ndarray(shape, dtype, base, first + number * base.shape[1] + byte, steps)
