"""Tensors in HBM, SBUF and PSUM: their data, and which elements are valid.

A :class:`Storage` is one tensor. HBM holds the dtype's own bits. SBUF and PSUM hold arrays of
:func:`~difftest.simulator.dtypes.storage_dtype` until a kernel needs the bits. Data are
contiguous, so every :class:`~difftest.simulator.pattern.Pattern` is a view of them.

While instructions write whole tiles, a few parts say which elements are written
(:mod:`difftest.simulator.written_parts`). Masks, invalid data, other dtypes and reads beyond these
parts need a validity code for each element. So most tensors never have codes.

A tensor with an address takes certain bytes of its memory. Where two such tensors overlap, each
reads the bits that the other wrote, as on the machine. This holds even after the kernel has
dropped its last name for one of them. Until a second tensor overlaps it, a placed tensor is stored
like any other. After that, both are views of the same bytes.
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
from difftest.simulator.errors import Location
from difftest.simulator.pattern import Pattern
from difftest.simulator.pattern import Shape as Shape
from difftest.simulator.trace import Allocation, Area, Origin, Space
from difftest.simulator.written_parts import (
    MOST_PARTS,
    Part,
    contains,
    elements_of,
    part_of,
    volume,
    with_part,
)

if TYPE_CHECKING:
    from difftest.simulator.exact.bounded import ExactValues


def pattern_view(base: Array, pattern: Pattern, dtype: DType) -> Array:
    """Return a view of the ``dtype`` elements that a pattern selects in the contiguous ``base``."""
    size = dtype.itemsize
    offset, shape, strides = pattern
    return np.ndarray(
        shape, dtype, base, offset * size, [stride * size for stride in strides]
    )


DEFINED, FROM_MASKED, MASKED_OUT, UNWRITTEN, FROM_UNWRITTEN = range(5)
"""The validity codes of an element, from valid to invalid.

``FROM_MASKED``: computed from a masked-out element. ``MASKED_OUT``: unwritten because a mask left
it out. ``UNWRITTEN``: reading the element is an error. ``FROM_UNWRITTEN``: computed from an
unwritten element.
"""
_BYTE = np.dtype(np.uint8)
"""The dtype of a validity code and of shared bytes."""


class ValidityMap:
    """The valid elements of a tensor, and the origin of invalid data.

    Attributes
    ----------
    parts : the written parts; all other elements are unwritten. None if ``codes`` are used.
    codes : a validity code for each ``unit`` bytes, flat; None if ``parts`` are used, and where
        tensors share bytes.
    unit : bytes of an element, or fewer once a view of a smaller dtype was written.
    masked : whether a mask left elements out, so that reading unwritten elements gives poison.
    origin : the origin of invalid data; for masked-out elements, the instruction that read them
        first.
    lost_at : the kernel's line that last made data invalid.
    """

    __slots__ = ("codes", "lost_at", "masked", "origin", "parts", "unit")

    def __init__(
        self, codes: Array | None, unit: int, parts: tuple[Part, ...] | None = None
    ) -> None:
        self.parts = parts
        self.codes = codes
        self.unit = unit
        self.masked = False
        self.origin: Origin | None = None
        self.lost_at: Location | None = None


UNTOUCHED = ValidityMap(None, 1, ())
"""The validity map of every tensor that is entirely unwritten."""


class TensorData:
    """The data of a tensor, and the steps that must precede their use.

    Attributes
    ----------
    data : the array that holds the elements.
    lent : whether it is the caller's array; :meth:`prepare_write` precedes each write.
    blank : whether unwritten elements have arbitrary values; :meth:`Storage.poison` precedes a
        read.
    """

    __slots__ = ("blank", "data", "lent")

    data: Array
    lent: bool
    blank: bool

    def prepare_write(self, pattern: Pattern, dtype: DType) -> None:
        """Make the elements of a pattern writable, if the array is the caller's."""


class Storage(TensorData):
    """A tensor: its data, its dtype and its validity.

    In HBM, data are held in the tensor's own dtype. On chip, every float is held as float32 until
    :meth:`hold_bits` is called.
    """

    __slots__ = (
        "allocation",
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
    """True if other tensors have the same bytes."""
    start = (0, 0)
    """The first partition, and the first byte in each, of a tensor with an address."""

    def __init__(
        self,
        allocation: Allocation,
        data: Array,
        *,
        written: bool = False,
        mutable: bool = True,
    ) -> None:
        self.allocation = allocation
        self.data = data
        self.dtype = allocation.dtype
        self.in_hbm = self.holds_bits = allocation.space.is_hbm
        self.whole = Pattern.whole(allocation.shape)
        """The pattern of the whole tensor, which most instructions use. It is recognized by
        identity."""
        self.validity = None if written else UNTOUCHED
        """None while all elements are defined."""
        self.mutable = mutable
        self.lent = False
        self.blank = False
        self.producer: object = None
        """The frontend's note on how the tensor was made."""
        self.exact: ExactValues | None = None
        """The values of an exact run where the data are rounded; None where the data are exact."""
        self.programs = 1
        """The number of programs of a grid that share the tensor."""
        self.products: Array | None = None
        """In PSUM, the elements that a matmul wrote last; None unless that is tracked."""

    @property
    def space(self) -> Space:
        return self.allocation.space

    @property
    def size(self) -> int:
        return self.whole.size

    @property
    def masked(self) -> bool:
        """True if a mask left elements out. Reading them gives poison instead of an error."""
        return self.validity is not None and self.validity.masked

    def elements(self, pattern: Pattern, dtype: DType) -> Array:
        """Return a view of the elements that a pattern (in elements of ``dtype``) selects.

        A dtype other than the tensor's own requires :meth:`hold_bits` first.
        """
        if pattern is self.whole and dtype is self.dtype:
            return self.data[...]  # takes a fifth of the time
        if dtype is self.dtype or dtype == self.dtype:
            dtype = self.data.dtype
        return pattern_view(self.data, pattern, dtype)

    def replace(self, values: Array) -> bool:
        """Adopt ``values`` as the data of the whole tensor; return False if that is impossible.

        The caller must hold no other reference to the array. Data in HBM may be the caller's
        arrays, so they are never replaced.
        """
        held = self.data
        if (
            self.in_hbm
            or self.shared
            or values.dtype != held.dtype
            or values.shape != held.shape
        ):
            return False
        if not values.flags.carray:
            return False
        self.data = values
        self.products = self.validity = None
        return True

    def hold_bits(self) -> None:
        """Hold the dtype's own bits from now on.

        A NaN that was held as float32 loses its payload.
        """
        if not self.holds_bits:
            self.data = self.bits().reshape(self.data.shape)
            self.holds_bits = True

    def bits(self) -> Array:
        """Return the data in the dtype's own bits, flat."""
        if self.data.dtype == self.dtype:
            return np.ascontiguousarray(self.data).reshape(-1)
        with np.errstate(all="ignore"):  # unwritten elements may have any value
            held = to_bits(self.data, self.dtype)
        return np.ascontiguousarray(held).reshape(-1)

    # -- validity codes --------------------------------------------------------------------------

    def codes(self, pattern: Pattern, dtype: DType | None = None) -> Array | None:
        """Return the worst validity code among the bytes of each element of a pattern.

        None if all of these elements are known to be defined. ``dtype`` defaults to the tensor's
        own.
        """
        gaps = self.validity
        if gaps is None:
            return None
        if gaps is UNTOUCHED:
            return np.full(pattern.shape, UNWRITTEN, _BYTE)
        dtype = dtype or self.dtype
        if gaps.parts is not None:
            if dtype == self.dtype and self._is_in_part(gaps.parts, pattern):
                return None
            gaps = self._own_gaps()
        region = self._region(gaps, pattern, dtype)
        # max(axis=-1) of so few takes fifty times as long
        if region.ndim > len(pattern.shape):
            if region.any():
                return np.moveaxis(region, -1, 0).copy().max(axis=0)
            return None
        return region

    def mark(
        self,
        pattern: Pattern,
        code: int,
        where: Array | None = None,
        *,
        dtype: DType | None = None,
    ) -> None:
        """Set the code of the elements of a pattern, or of those where ``where`` is true."""
        if self.validity is None and code == DEFINED:
            return
        dtype = dtype or self.dtype
        alone = (
            where is None and code == DEFINED and not (self.shared or pattern.repeats())
        )
        if alone and dtype == self.dtype and self._mark_part(pattern):
            return
        if (
            alone
            and pattern.size * dtype.itemsize == self.data.size * self.dtype.itemsize
        ):
            self.validity = None
            return
        gaps = self._own_gaps()
        region = self._region(gaps, pattern, dtype)
        region[() if where is None else np.broadcast_to(where, pattern.shape)] = code
        if self.shared:  # other tensors write there too
            return
        codes = gaps.codes
        # the last code decides for most kernels
        if codes is not None and not codes[-1] and not codes.view(BOOL).any():
            self.validity = None

    def _mark_part(self, pattern: Pattern) -> bool:
        """Mark a pattern's elements as written, without codes; return False if codes are needed."""
        gaps = self.validity
        assert gaps is not None
        part = part_of(pattern)
        if gaps.parts is None or part is None:
            return False
        parts = with_part(gaps.parts, part)
        if volume(parts) < self.size:
            if gaps is UNTOUCHED:
                gaps = self.validity = ValidityMap(None, self.dtype.itemsize)
            gaps.parts = parts
            return len(parts) <= MOST_PARTS
        if len(parts) > 1:  # only codes tell whether parts that overlap leave a gap
            return False
        self.validity = None
        return True

    @staticmethod
    def _is_in_part(parts: tuple[Part, ...], pattern: Pattern) -> bool:
        """Return whether one of the parts has all elements of a pattern."""
        return any(contains(part, pattern) for part in parts)

    def mark_whole(self) -> None:
        """Mark the whole tensor as written by an instruction other than a matmul."""
        self.products = None
        if self.shared:
            self.mark(self.whole, DEFINED)
        else:
            self.validity = None

    def unwritten_box(self) -> tuple[Shape, Shape]:
        """Return the smallest box around all unwritten elements; the whole tensor if none."""
        codes = self.codes(self.whole)
        shape = self.allocation.shape
        if codes is None or not (codes >= MASKED_OUT).any():
            return (0,) * len(shape), shape
        places = np.nonzero(codes >= MASKED_OUT)
        low = tuple(int(axis.min()) for axis in places)
        return low, tuple(int(axis.max()) + 1 for axis in places)

    def leave_out(self) -> None:
        """Note that a mask leaves elements out. Unwritten elements become poison.

        Kernels compute on whole tiles after a masked load and mask again when they store. Reading
        masked-out elements is therefore no error in itself. As NaN they are visible in an output.
        """
        if self.validity is None or self.validity.masked:
            return
        gaps = self._own_gaps()
        region = self._region(gaps, self.whole, self.dtype)
        region[region >= UNWRITTEN] = MASKED_OUT
        gaps.masked = True
        self.poison()

    def poison(self) -> None:
        """Fill unwritten elements with poison, so that a launch that continues computes NaN."""
        self.blank = False
        gaps = self.validity
        if gaps is None:
            return
        if gaps is UNTOUCHED:
            self.data[...] = poison_array((), self.data.dtype)[()]
            return
        missing = self._unwritten(gaps)
        pattern = self.whole
        blank = poison_array((1,) * len(pattern.shape), self.data.dtype)
        dtype = self.dtype
        if missing.ndim > blank.ndim:  # only some bytes of an element are unwritten
            parts = missing.shape[-1]
            pattern = pattern.finer(parts)
            dtype = np.dtype(f"V{blank.itemsize // parts}")
            blank = blank[..., None].view(dtype)
        np.copyto(self.elements(pattern, dtype), blank, where=missing)

    def _unwritten(self, gaps: ValidityMap) -> Array:
        """Return which elements hold poison; parts of elements are along a new last axis."""
        if gaps.parts is not None:
            codes = self._codes_of(gaps.parts).reshape(self.allocation.shape)
        else:
            codes = self._region(gaps, self.whole, self.dtype)
        return codes >= MASKED_OUT

    def _codes_of(self, parts: tuple[Part, ...]) -> Array:
        """Return the codes of a tensor of which only some parts are written, flat."""
        codes = np.full(self.size, UNWRITTEN, _BYTE)
        for part in parts:
            pattern_view(codes, elements_of(part), _BYTE)[...] = DEFINED
        return codes

    def _own_gaps(self) -> ValidityMap:
        """Return the tensor's own validity map, with a code for each element."""
        gaps = self.validity
        unit = self.dtype.itemsize
        if gaps is None:
            gaps = self.validity = ValidityMap(np.full(self.size, DEFINED, _BYTE), unit)
        elif gaps.parts is not None:
            gaps = self.validity = ValidityMap(self._codes_of(gaps.parts), unit)
        return gaps

    def _region(self, gaps: ValidityMap, pattern: Pattern, dtype: DType) -> Array:
        """Return a view of the codes of a pattern's elements.

        If an element has several codes, they are along a new last axis.
        """
        assert gaps.codes is not None
        if dtype.itemsize < gaps.unit:
            parts = gaps.unit // dtype.itemsize
            gaps.codes = gaps.codes.repeat(parts)
            gaps.unit = dtype.itemsize
        if dtype.itemsize > gaps.unit:
            pattern = pattern.finer(dtype.itemsize // gaps.unit)
        return pattern_view(gaps.codes, pattern, _BYTE)


POISON_INTEGER = int(np.frombuffer(b"\xa5" * 4, np.int32)[0])
"""An int32 that :func:`poison_array` fills."""


class ArgumentStorage(Storage):
    """A tensor that is the caller's array, until the kernel writes to it.

    Attributes
    ----------
    array : the caller's array.
    in_place : whether the kernel writes to the array itself, and not to a copy. The old values of
        each part are then kept before its first write, for :meth:`restore`.
    """

    __slots__ = ("_old_bytes", "_old_parts", "array", "in_place")

    def __init__(self, allocation: Allocation, array: Array, *, mutable: bool) -> None:
        # read-only, so that no write can reach the array without prepare_write
        data = array.view()
        data.flags.writeable = False
        super().__init__(allocation, data, written=True, mutable=mutable)
        self.array = array
        self.lent = True
        self.in_place = False
        self._old_parts: dict[tuple[Pattern, DType], Array] = {}
        """The old values of parts, in the order of their first writes."""
        self._old_bytes = 0

    def prepare_write(self, pattern: Pattern, dtype: DType) -> None:
        if not self.in_place:
            self.data = self.data.copy()
            self.lent = False
            return
        self.data = self.array
        whole = self.whole, self.dtype
        if whole in self._old_parts or (pattern, dtype) in self._old_parts:
            return
        part = pattern_view(self.array, pattern, dtype)
        self._old_bytes += part.nbytes
        if self._old_bytes > self.array.nbytes:  # parts overlap
            self._old_parts = {whole: self.original()}
        else:
            self._old_parts[pattern, dtype] = part.copy()

    def original(self) -> Array:
        """Return the array as the caller passed it; a copy, if the kernel has written to it."""
        if not self._old_parts:
            return self.array
        before = self.array.copy()
        self._restore(before)
        return before

    def restore(self) -> None:
        """Give the caller's array its old values."""
        self._restore(self.array)

    def _restore(self, array: Array) -> None:
        # A part may hold what was written to another one before.
        for (pattern, dtype), old in reversed(self._old_parts.items()):
            pattern_view(array, pattern, dtype)[...] = old


def poison_array(shape: Shape, dtype: DType) -> Array:
    """Return an HBM array of poison: NaN for floats, 0xA5 bytes for integers.

    Unwritten elements keep the poison, so that a comparison of values alone detects them.
    """
    if is_float(dtype):
        host = FLOAT32 if dtype == TFLOAT32 else dtype
        return np.full(shape, np.array(np.nan, dtype=host)).view(dtype)
    byte = 1 if dtype == BOOL else 0xA5
    return np.full(shape, np.full(dtype.itemsize, byte, dtype=np.uint8).view(dtype)[0])


# -- tensors that the kernel places ----------------------------------------------------------------


class SharedBytes:
    """A part of a memory that tensors share: its bytes, and a validity code for each."""

    def __init__(self, area: Area) -> None:
        self.area = area
        shape = (area.last - area.first, area.high - area.low)
        self.bytes = np.zeros(shape, _BYTE)
        self.codes = np.full(shape, UNWRITTEN, _BYTE)
        self.merged: SharedBytes | None = None
        """The larger part that has absorbed this one."""

    def take_in(self, area: Area, held: Array, codes: Array) -> None:
        """Copy the written bytes of an area, with their codes."""
        rows = slice(area.first - self.area.first, area.last - self.area.first)
        columns = slice(area.low - self.area.low, area.high - self.area.low)
        for own, new in ((self.bytes, held), (self.codes, codes)):
            np.copyto(own[rows, columns], new, where=codes != UNWRITTEN)


def _overlapping(placed: list[Any], area: Area) -> list[Any]:
    """Return the placed tensors, or parts, that overlap an area."""
    return [one for one in placed if one.area.overlaps(area)]


class PlacedMemory:
    """The tensors that a kernel placed in one memory."""

    def __init__(self) -> None:
        self.alone: list[PlacedStorage] = []
        """The tensors that overlap no other tensor."""
        self.pieces: list[SharedBytes] = []
        self.rounded: list[Area] = []
        """The areas whose tensors had other exact values than the machine's when sharing began."""

    def place(self, storage: PlacedStorage) -> None:
        """Make a new tensor share bytes with all tensors that it overlaps."""
        alone = _overlapping(self.alone, storage.area)
        pieces = _overlapping(self.pieces, storage.area)
        if not alone and not pieces:
            self.alone.append(storage)
            return
        for tensor in alone:
            self.alone.remove(tensor)
        areas = [storage.area, *(tensor.area for tensor in alone)]
        piece = self._piece_around(areas, pieces)
        for tensor in alone:
            piece.take_in(tensor.area, *tensor.held())
            if tensor.exact is not None:
                self.rounded.append(tensor.area)
        for tensor in (*alone, storage):
            tensor.share(piece)

    def _piece_around(
        self, areas: list[Area], pieces: list[SharedBytes]
    ) -> SharedBytes:
        """Return the shared bytes of areas; they absorb the smaller pieces that they overlap."""
        ends = list(zip(*areas, *(piece.area for piece in pieces), strict=True))
        box = Area(min(ends[0]), max(ends[1]), min(ends[2]), max(ends[3]))
        if pieces and pieces[0].area == box:
            return pieces[0]
        merged = SharedBytes(box)
        for piece in pieces:
            merged.take_in(piece.area, piece.bytes, piece.codes)
            piece.merged = merged
            self.pieces.remove(piece)
        self.pieces.append(merged)
        return merged


class PlacedStorage(Storage):
    """A tensor with an address. ``shared`` is true once its bytes belong to other tensors, too."""

    __slots__ = ("_piece", "area", "memory", "shared", "start")

    def __init__(
        self, memory: PlacedMemory, allocation: Allocation, data: Array
    ) -> None:
        super().__init__(allocation, data)
        self.blank = allocation.space.is_hbm
        assert allocation.area is not None
        self.area: Area = allocation.area
        self.start = (self.area.first, self.area.low)
        self.memory = memory
        self.shared = False
        memory.place(self)

    @property
    def piece(self) -> SharedBytes:
        """The bytes that this tensor shares."""
        while self._piece.merged is not None:
            self._piece: SharedBytes = self._piece.merged
        return self._piece

    def may_hide(self) -> bool:
        """Return whether tensors with other exact values share bytes with this one."""
        return any(area.overlaps(self.area) for area in self.memory.rounded)

    def held(self) -> tuple[Array, Array]:
        """Return the unshared tensor's bytes and their codes, a row for each partition."""
        rows = self.area.last - self.area.first
        codes: Array = np.full((rows, 1), DEFINED, _BYTE)
        if self.validity is not None:
            gaps = self._own_gaps()
            assert gaps.codes is not None
            codes = gaps.codes.repeat(gaps.unit).reshape(rows, -1)
        held = self.bits().view(_BYTE).reshape(rows, -1)
        return held, np.broadcast_to(codes, held.shape)

    def share(self, piece: SharedBytes) -> None:
        """Hold the data in the shared bytes from now on."""
        if self.validity is None or self.validity is UNTOUCHED:
            self.validity = ValidityMap(None, 1)
        self._piece = piece
        self.shared = self.holds_bits = True
        self.blank = False  # the shared bytes have values
        self.data = self.elements(self.whole, self.dtype)

    def elements(self, pattern: Pattern, dtype: DType) -> Array:
        if not self.shared:
            return super().elements(pattern, dtype)
        return self.placed(self.piece.bytes, self.piece.area, pattern, dtype)

    def _region(self, gaps: ValidityMap, pattern: Pattern, dtype: DType) -> Array:
        if not self.shared:
            return super()._region(gaps, pattern, dtype)
        return self.placed(
            self.piece.codes, self.piece.area, pattern.finer(dtype.itemsize), _BYTE
        )

    def placed(self, base: Array, area: Area, pattern: Pattern, dtype: DType) -> Array:
        """Return a view of a pattern's elements in ``base``, the bytes of an area.

        A pattern counts as if the partitions of the tensor were adjacent, each with the tensor's
        own bytes. In ``base`` the distance between partitions is the area's.
        """
        offset, shape, strides = pattern
        steps = [stride * dtype.itemsize for stride in strides]
        first = (
            (self.area.first - area.first) * base.shape[1] + self.area.low - area.low
        )
        number = 0
        byte = offset * dtype.itemsize
        if not self.in_hbm:
            row = self.allocation.partition_bytes
            number, byte = divmod(byte, row)
            # A step inside a partition is always shorter than a partition.
            steps = [
                step // row * base.shape[1] if abs(step) >= row else step
                for step in steps
            ]
        return np.ndarray(
            shape, dtype, base, first + number * base.shape[1] + byte, steps
        )
