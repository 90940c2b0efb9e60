"""Element maps: the elements of a tensor that some accesses touch, exactly.

An :class:`ElementMap` has a cell for each element. If all accesses are boxes of the tensor's own
axes, it instead has a cell for each part that no box's edge divides. So a large output that is
stored tile by tile has as many cells as tiles. A region is a view of the cells, which can be read
and written.

Tensors in HBM that the kernel placed on the same bytes share one map; each counts from its own
address.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul

import numpy as np
from numpy.typing import NDArray

from difftest.simulator.trace import Allocation, Region

Cells = NDArray[np.int32]
Box = tuple[tuple[int, int], ...]
"""(first, last) of each axis, the last excluded."""


MOST = 2**26
"""The most elements of a tensor whose indexed and masked accesses are mapped."""


def _size(tensors: Sequence[Allocation], begins: Mapping[int, int]) -> int:
    """Return the bytes from the lowest address of tensors to the end of the last one."""
    sizes = {base.id: math.prod(base.shape) * base.dtype.itemsize for base in tensors}
    ends = [begin + sizes[number] for number, begin in begins.items()]
    return int(max(ends))


class ElementMap:
    """The cells of one tensor for the regions of some accesses.

    Parameters
    ----------
    tensors : the tensor; or several tensors in HBM, all with an address, that share bytes.
    regions : the accesses to map.
    """

    def __init__(
        self, tensors: Sequence[Allocation], regions: Iterable[Region]
    ) -> None:
        regions = list(regions)
        self._edges: list[list[int]] | None = None
        self._begins = _begins(tensors)
        size = _size(tensors, self._begins)
        self._unit = tensors[0].dtype.itemsize
        """Bytes of a cell outside box mode."""
        self._has_places = size <= MOST * self._unit and any(
            region.places is not None for region in regions
        )
        if len(tensors) > 1 or tensors[0].viewed:
            widths = [region.dtype.itemsize for region in regions]
            self._unit = math.gcd(self._unit, *widths, *self._begins.values())
        elif not self._has_places:
            self._edges = _edges(tensors[0].shape, regions)
        if self._edges is None:
            self.shape: tuple[int, ...] = (-(-size // self._unit),)
        else:
            self.shape = tuple(len(edges) - 1 for edges in self._edges)

    def filled(self, value: int) -> Cells:
        """Return cells that all have the value."""
        return np.full(self.shape, value, np.int32)

    def is_exact(self, region: Region) -> bool:
        """Return whether the cells of a region are exactly its touched elements."""
        return region.whole or (self._has_places and region.places is not None)

    def read(self, cells: Cells, region: Region) -> Cells:
        """Return the cells of a region: a view, if the region is whole."""
        places = self._places(region)
        if places is None:
            return self._view(cells, region)
        return cells[places]

    def write(self, cells: Cells, region: Region, values: Cells | int) -> None:
        """Set the cells of a region."""
        places = self._places(region)
        if places is None:
            self._view(cells, region)[...] = values
        else:
            cells[places] = values

    def _places(self, region: Region) -> NDArray[np.int64] | None:
        """Return the cells of a region with known places; None for other regions."""
        if region.places is None or not self._has_places:
            return None
        finer = region.dtype.itemsize // self._unit
        places = region.places.elements
        first = self._first(region)
        if finer == 1:
            if first:
                return places + first
            return places
        return np.add.outer(places * finer + first, np.arange(finer)).ravel()

    def _first(self, region: Region) -> int:
        """Return the first cell of the region's tensor."""
        return self._begins[region.allocation.id] // self._unit

    def _view(self, cells: Cells, region: Region) -> Cells:
        """Return the cells of a region, as a view without a copy."""
        if self._edges is not None:
            box = _box(
                region.allocation.shape, region.offset, region.shape, region.strides
            )
            assert box is not None
            return cells[
                tuple(
                    slice(bisect_left(edges, low), bisect_left(edges, high))
                    for edges, (low, high) in zip(self._edges, box, strict=True)
                )
            ]
        offset, shape, strides = region.finer(region.dtype.itemsize // self._unit)
        offset += self._first(region)
        return np.ndarray(
            shape, cells.dtype, cells, offset * 4, [stride * 4 for stride in strides]
        )

    def element(self, region: Region, wrong: NDArray[np.bool_]) -> tuple[int, ...]:
        """Return the index of the first element where ``wrong``, in a view's shape, is true."""
        at = first_true(wrong)
        if self._edges is not None:
            box = _box(
                region.allocation.shape, region.offset, region.shape, region.strides
            )
            assert box is not None
            return tuple(
                edges[bisect_left(edges, low) + step]
                for edges, (low, _), step in zip(self._edges, box, at, strict=True)
            )
        places = self._places(region)
        pattern = region.finer(region.dtype.itemsize // self._unit)
        if places is not None:
            unit = int(places[at]) - self._first(region)
        else:
            steps = zip(at, pattern.strides, strict=True)
            unit = pattern.offset + sum(k * stride for k, stride in steps)
        tensor = region.allocation
        return element_index(unit * self._unit // tensor.dtype.itemsize, tensor)


def _begins(tensors: Sequence[Allocation]) -> dict[int, int]:
    """Return tensor id -> bytes from the lowest address to the tensor's own."""
    if len(tensors) == 1:
        return {tensors[0].id: 0}
    lows = {
        tensor.id: tensor.address[1] for tensor in tensors if tensor.address is not None
    }
    lowest = min(lows.values())
    return {number: low - lowest for number, low in lows.items()}


def element_index(element: int, allocation: Allocation) -> tuple[int, ...]:
    """Return the index of an element of a tensor."""
    return tuple(int(k) for k in np.unravel_index(element, allocation.shape or (1,)))


def first_true(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the first place where an array is true."""
    return tuple(
        int(place) for place in np.unravel_index(int(wrong.argmax()), wrong.shape)
    )


def are_disjoint(allocation: Allocation, owned: Iterable[tuple[int, Region]]) -> bool:
    """Return whether regions of different owners surely share no element, without a map.

    This covers pieces of a tensor that follow each other in memory. It also covers parts of a
    grid, as in outputs that are stored tile by tile: along each axis the boxes' sides are equal
    or disjoint.
    """
    if allocation.viewed:
        return False
    owned = list(owned)
    return _follow_each_other(owned) or _are_parts_of_a_grid(allocation, owned)


def _follow_each_other(owned: Iterable[tuple[int, Region]]) -> bool:
    """Return whether the regions of each owner end before those of the next owner begin."""
    spans = ((*region.pattern.extent(), owner) for owner, region in owned)
    ended = -1
    of = -1
    for first, last, owner in sorted(spans):
        if first > ended:
            of = owner
        elif owner != of:
            return False
        ended = max(ended, last)
    return True


def _are_parts_of_a_grid(
    allocation: Allocation, owned: Iterable[tuple[int, Region]]
) -> bool:
    """Return whether boxes of different owners differ and have equal or disjoint sides."""
    owners: dict[Box, int] = {}
    for owner, region in owned:
        box = _box(allocation.shape, region.offset, region.shape, region.strides)
        if box is None or owners.setdefault(box, owner) != owner:
            return False
    for sides in map(sorted, map(set, zip(*owners, strict=True))):
        if any(side[1] > other[0] for side, other in pairwise(sides)):
            return False
    return True


def _edges(shape: tuple[int, ...], regions: Iterable[Region]) -> list[list[int]] | None:
    """Return the edges of boxes along each axis; None if a region is not a box."""
    edges: list[set[int]] = [{0, size} for size in shape]
    for region in regions:
        box = _box(shape, region.offset, region.shape, region.strides)
        if box is None:
            return None
        for axis, ends in zip(edges, box, strict=True):
            axis.update(ends)
    return [sorted(axis) for axis in edges]


def _box(
    whole: tuple[int, ...],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Box | None:
    """Return the box of the tensor's axes that equals a pattern; None if there is none."""
    sides = _sides(whole, shape, strides)
    if sides is None:
        return None
    box: list[tuple[int, int]] = []
    for step, side, size in zip(_steps(whole), sides, whole, strict=True):
        low, offset = divmod(offset, step)
        high = low + side
        if high > size:
            return None
        box.append((low, high))
    return tuple(box)


@lru_cache(maxsize=4096)
def _sides(
    whole: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the sides of a pattern's box, for any offset; None if the pattern is not a box.

    A step of the pattern that fills an axis continues along the previous axis, as in a flat walk
    over the tensor.
    """
    steps = _steps(whole)
    sizes = [1] * len(whole)
    for size, stride in zip(shape, strides, strict=True):
        if size == 1 or stride == 0:
            continue
        if stride not in steps:
            return None
        axis = _axis_of(stride, whole)
        while axis > 0 and size > whole[axis] and size % whole[axis] == 0:
            if sizes[axis] > 1:
                return None
            sizes[axis] = whole[axis]
            size //= whole[axis]
            axis -= 1
        if sizes[axis] > 1:
            return None
        sizes[axis] = size
    return tuple(sizes)


def _axis_of(stride: int, whole: tuple[int, ...]) -> int:
    """Return the axis of the tensor that a stride walks.

    Axes of size 1 have the stride of the previous axis; the last axis counts.
    """
    steps = _steps(whole)
    axis = len(steps) - 1 - steps[::-1].index(stride)
    while axis > 0 and whole[axis] == 1:
        axis -= 1
    return axis


@lru_cache(maxsize=4096)
def _steps(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the elements between neighbours along each axis."""
    if shape:
        return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1]
    return ()
