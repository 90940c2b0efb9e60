"""Footprints: the bytes that an access pattern touches, and the overlap of two patterns.

On chip a pattern is a range of partitions, with bytes in each. In HBM it is only bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from difftest.simulator.pattern import Shape
from difftest.simulator.trace import Allocation, Region

Dims = tuple[tuple[int, int], ...]
"""(size, stride) of each axis, strides in elements."""


class Footprint(NamedTuple):
    """The elements ``low`` to ``high`` of partitions ``first`` to ``last``, all ends excluded.

    The unit is bytes instead of elements for tensors with an address, and for tensors with a
    region of another dtype. Tensors with an address count from the start of the memory.
    """

    first: int
    last: int
    low: int
    high: int
    dims: Dims
    """The axes inside a partition, longest stride first; empty if every element is touched."""

    def overlaps(self, other: Footprint) -> bool:
        """Return whether the two patterns, of one allocation, share an element."""
        if self.low >= other.high or other.low >= self.high:
            return False
        if self.first >= other.last or other.first >= self.last:
            return False
        if not self.dims and not other.dims:
            return True
        return _share(
            self.dims or _dense(self), other.dims or _dense(other), other.low - self.low
        )

    def covers(self, other: Footprint) -> bool:
        """Return whether this pattern surely contains every element of the other."""
        if self.first > other.first or self.last < other.last:
            return False
        if not self.dims:
            return self.low <= other.low and self.high >= other.high
        return self.dims == other.dims and self.low == other.low


def footprint(region: Region) -> Footprint:
    """Return the footprint of a region of an on-chip or HBM tensor."""
    allocation = region.allocation
    if allocation.address is None and not allocation.viewed:
        return _footprint(
            _layout(allocation), region.offset, region.shape, region.strides
        )
    pattern = region.pattern.finer(region.dtype.itemsize)
    block, inner, partitions = _layout(allocation)
    size = allocation.dtype.itemsize
    mark = _footprint((block * size, inner * size, partitions), *pattern)
    if allocation.address is None:
        return mark
    partition, byte = allocation.address
    return mark._replace(
        first=mark.first + partition,
        last=mark.last + partition,
        low=mark.low + byte,
        high=mark.high + byte,
    )


@lru_cache(maxsize=4096)
def _geometry(shape: Shape, axis: int, on_chip: bool) -> tuple[int, int, int]:
    """Return (elements of one block of partitions, elements of one partition, partitions)."""
    if not on_chip or not shape:
        return (0, 0, 1)
    inner = 1
    for size in shape[axis + 1 :]:
        inner *= size
    return (inner * shape[axis], inner, shape[axis])


def _layout(allocation: Allocation) -> tuple[int, int, int]:
    return _geometry(
        allocation.shape, allocation.partition_axis, not allocation.space.is_hbm
    )


def free_axes(region: Region) -> Dims:
    """Return (size, stride) of each axis inside a partition of an on-chip region, as stored.

    The blocks of a tensor are stored one after the other in each partition. So the stride of a
    block dimension differs from the region's stride, which counts all partitions of a block.
    """
    axes = region.free_axes
    if not region.allocation.partition_axis:
        return axes
    block, inner, _ = _layout(region.allocation)
    size = region.allocation.dtype.itemsize
    itemsize = region.dtype.itemsize
    return _in_partition(axes, block * size // itemsize, inner * size // itemsize)


@lru_cache(maxsize=65536)
def _in_partition(axes: Dims, block: int, inner: int) -> Dims:
    """Return the axes with each whole block of their strides as the elements of one partition."""
    dims = []
    for size, stride in axes:
        blocks, rest = divmod(abs(stride), block)
        dims.append((size, (blocks * inner + rest) * (-1 if stride < 0 else 1)))
    return tuple(dims)


@lru_cache(maxsize=65536)
def _footprint(
    layout: tuple[int, int, int],
    offset: int,
    shape: Shape,
    strides: Shape,
) -> Footprint:
    block, inner, partitions = layout
    if not inner:
        return _span(0, 1, offset, shape, strides)
    outer, rest = divmod(offset, block)
    first, free = divmod(rest, inner)
    extent = 1
    sizes: list[int] = []
    steps: list[int] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1 or stride == 0:
            continue
        blocks, rest = divmod(stride, block) if abs(stride) >= block else (0, stride)
        if blocks == 0 and abs(rest) >= inner:
            reach = (size - 1) * (abs(rest) // inner)
            extent += reach
            first -= reach if rest < 0 else 0
            continue
        sizes.append(size)
        steps.append(blocks * inner + rest)
    low = outer * inner + free
    return _span(
        first, min(first + extent, partitions), low, tuple(sizes), tuple(steps)
    )


def _span(
    first: int, last: int, offset: int, sizes: Shape, strides: Shape
) -> Footprint:
    """Return the footprint of axes inside one partition, from an offset on."""
    axes = []
    low = high = offset
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1 or stride == 0:
            continue
        reach = (size - 1) * stride
        low, high = (low + reach, high) if stride < 0 else (low, high + reach)
        axes.append((size, abs(stride)))
    dims = _merged(sorted(axes, key=lambda axis: -axis[1]))
    dense = not dims or (len(dims) == 1 and dims[0][1] == 1)
    return Footprint(first, last, low, high + 1, () if dense else dims)


def _merged(axes: list[tuple[int, int]]) -> Dims:
    """Return the axes with neighbours joined where one continues the other."""
    merged: list[tuple[int, int]] = []
    for size, stride in reversed(axes):
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1] = (size * merged[-1][0], merged[-1][1])
        else:
            merged.append((size, stride))
    return tuple(reversed(merged))


def _dense(pattern: Footprint) -> Dims:
    return ((pattern.high - pattern.low, 1),)


@lru_cache(maxsize=65536)
def _share(dims: Dims, other: Dims, shift: int) -> bool:
    """Return whether two patterns in a partition, ``shift`` elements apart, share an element."""
    return bool(np.intersect1d(offsets_of(dims), offsets_of(other) + shift).size)


@lru_cache(maxsize=256)
def offsets_of(dims: Dims) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the element offsets of axes, relative to the first element."""
    total = np.zeros(1, dtype=np.int64)
    for size, stride in dims:
        total = np.add.outer(total, np.arange(size, dtype=np.int64) * stride).ravel()
    return total
