"""Tensors in HBM, SBUF and PSUM: their data, and which elements were ever written.

A :class:`Storage` is one tensor. SBUF and PSUM hold arrays of
:func:`~difftest.simulator.dtypes.storage_dtype`, HBM holds the dtype's own bits. Data are
contiguous, so that every access pattern is an offset, a shape and strides on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, FLOAT32, TFLOAT32, Array, is_float, storage_dtype
from difftest.simulator.errors import LimitError
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Space

Shape = tuple[int, ...]


def pattern_view(base: Array, offset: int, shape: Shape, strides: Shape) -> Array:
    """The elements of contiguous ``base`` that an access pattern (in elements) names: a view."""
    size = base.itemsize
    return np.ndarray(
        shape, base.dtype, buffer=base, offset=offset * size, strides=[s * size for s in strides]
    )


@lru_cache(maxsize=4096)
def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def in_order(shape: Shape, strides: Shape) -> bool:
    """Whether a pattern takes adjacent elements in row-major order, without a gap or a repeat."""
    walked = zip(shape, strides, contiguous_strides(shape), strict=True)
    return all(size == 1 or stride == step for size, stride, step in walked)


@lru_cache(maxsize=4096)
def repeats(shape: Shape, strides: Shape) -> bool:
    """Whether a pattern names an element more than once."""
    axes = [(abs(stride), size) for size, stride in zip(shape, strides, strict=True) if size > 1]
    reach = 0
    for stride, size in sorted(axes):
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if not min(axes)[0]:
        return True
    # An axis steps into the reach of another, which need not be onto its elements.
    offsets = np.zeros(1, dtype=np.int64)
    for stride, size in axes:
        offsets = np.add.outer(offsets, np.arange(size) * stride).ravel()
    return len(np.unique(offsets)) < len(offsets)


def check_partitions(partitions: int, what: object, machine: Machine) -> None:
    """Raise :class:`LimitError` if a tensor has more partitions than the memory."""
    if partitions > machine.partitions:
        raise LimitError(
            f"the partition size of a tile is at most {machine.partitions}",
            received=f"{what}: {partitions} partitions",
            limit=f"{machine.partitions} partitions ({machine.name}, nl.tile_size.pmax)",
            remedy=f"loop over the first dimension in tiles of at most {machine.partitions}, "
            "and put the rest into the free dimension",
        )


def check_tensor_size(allocation: Allocation, block_axes: int, machine: Machine) -> None:
    """Raise :class:`LimitError` if one tensor alone exceeds its memory's partitions."""
    check_partitions(allocation.partitions, allocation, machine)
    in_psum = allocation.space is Space.PSUM
    limit = machine.psum_partition_bytes if in_psum else machine.sbuf_usable_bytes
    received = allocation.partition_bytes
    for size in allocation.shape[:block_axes]:
        received //= size
    if received > limit:
        raise LimitError(
            f"a tile fits the bytes that {allocation.space.value} has in each partition",
            received=f"{allocation}: {received} bytes a partition",
            limit=f"{limit} bytes a partition ({machine.name})",
            remedy="use a smaller free dimension and loop over the rest",
        )


class Storage:
    """One tensor: its contiguous data, dtype, and the elements never written.

    ``written`` is None while all or none of the elements are; ``unwritten`` counts the others.
    """

    __slots__ = (
        "allocation",
        "data",
        "dtype",
        "in_hbm",
        "masked",
        "mutable",
        "partition_step",
        "producer",
        "products",
        "release",
        "space",
        "unwritten",
        "written",
    )

    def __init__(
        self,
        allocation: Allocation,
        data: Array,
        *,
        unwritten: int,
        mutable: bool = True,
        release: Callable[[Allocation], None] | None = None,
    ) -> None:
        self.allocation = allocation
        self.data = data
        self.dtype = allocation.dtype
        self.space = allocation.space
        self.in_hbm = allocation.space.is_hbm
        self.partition_step = math.prod(allocation.shape[allocation.partition_axis + 1 :])
        """Elements from one partition to the next."""
        self.unwritten = unwritten
        self.written: Array | None = None
        self.mutable = mutable
        self.release = release
        self.masked = False
        """A mask left elements out: reading them gives poison instead of an error."""
        self.producer: object = None
        """What a frontend notes of how the tensor came to be."""
        self.products: Array | None = None
        """Where in PSUM the last write was a matmul's, if anyone keeps count; see
        :meth:`forget_products`."""

    def __del__(self) -> None:
        if self.release is not None:
            self.release(self.allocation)

    def mark_written(self, offset: int, shape: Shape, strides: Shape, where: Any = None) -> None:
        """Record a write through an access pattern; ``where`` limits it to a mask's elements."""
        if not self.unwritten:
            return
        elements = 1
        for size in shape:
            elements *= size
        repeated = repeats(shape, strides)
        if where is None and elements == self.data.size and not repeated:
            self.unwritten = 0
            self.written = None
            return
        if self.written is None:
            self.written = np.zeros(self.data.shape, dtype=np.bool_)
        # A repeated element is counted once: in the tensor, not in the pattern.
        counted = pattern_view(self.written, offset, shape, strides)
        region, counted = counted, self.written if repeated else counted
        before = int(np.count_nonzero(counted))
        region[() if where is None else np.broadcast_to(where, shape)] = True
        self.unwritten -= int(np.count_nonzero(counted)) - before
        if self.unwritten == 0:
            self.written = None

    def forget_products(self, offset: int, shape: Shape, strides: Shape, where: Any = None) -> None:
        """Note that something else than a matmul writes these elements."""
        if self.products is None:
            return
        region = pattern_view(self.products, offset, shape, strides)
        region[() if where is None else np.broadcast_to(where, shape)] = False

    def leave_out(self) -> None:
        """Note that a mask leaves elements out; what was never written becomes poison.

        Kernels compute on whole tiles after a masked load and mask again when they store, so
        reading the rest is no error in itself. As NaN it is seen if it reaches an output.
        """
        if self.masked or not self.unwritten:
            return
        self.masked = True
        blank = poison((), self.data.dtype)[()]
        if self.written is None:
            self.data[...] = blank
        else:
            self.data[~self.written] = blank

    def unwritten_in(self, offset: int, shape: Shape, strides: Shape) -> Array | None:
        """The region's never-written elements (bool), or None if there are none."""
        if not self.unwritten:
            return None
        if self.written is None:
            return np.ones(shape, dtype=np.bool_)
        region = pattern_view(self.written, offset, shape, strides)
        return None if region.all() else ~region


def poison(shape: Shape, dtype: np.dtype[Any]) -> Array:
    """An HBM array that looks like nothing anyone computed: NaN, or 0xA5 bytes for integers.

    Unwritten elements keep it, so that they are seen even where only values are compared.
    """
    if is_float(dtype):
        host = FLOAT32 if dtype == TFLOAT32 else dtype
        return np.full(shape, np.array(np.nan, dtype=host)).view(dtype)
    byte = 1 if dtype == BOOL else 0xA5
    return np.full(shape, np.full(dtype.itemsize, byte, dtype=np.uint8).view(dtype)[0])


def empty_on_chip(shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Memory for an on-chip tensor."""
    return np.empty(shape, dtype=storage_dtype(dtype))
