"""A tensor to paint on: which of its elements some accesses touch, exactly.

A :class:`ElementMap` has a cell for each element or, where all accesses are boxes of the tensor's
own axes, for each part that no box's edge divides: a large output that is stored tile by tile has
as many cells as tiles. A region is a view of the cells, so that they can be read and painted.

Tensors in HBM that the kernel placed on the same bytes share one canvas: each counts from its own
address.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul

import numpy as np
from numpy.typing import NDArray

from difftest.simulator.trace import Allocation, Region

Cells = NDArray[np.int32]
Box = tuple[tuple[int, int], ...]
"""(first, last) of each axis, the last one excluded."""


MOST = 2**26
"""Elements of a tensor beyond which what indices and masks touch of it is not painted."""


class ElementMap:
    """The cells of one tensor for the regions of some accesses.

    Parameters
    ----------
    tensors : the tensor; or several tensors in HBM, all with an address, that share bytes.
    regions : the accesses that are going to be painted.
    """

    def __init__(self, tensors: Sequence[Allocation], regions: Iterable[Region]) -> None:
        regions = list(regions)
        self._edges: list[list[int]] | None = None
        self._begins = _begins(tensors)
        sizes = {base.id: math.prod(base.shape) * base.dtype.itemsize for base in tensors}
        size = max(begin + sizes[number] for number, begin in self._begins.items())
        self._unit = tensors[0].dtype.itemsize
        """Bytes of a cell that is no box."""
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
        """Cells that all have a value."""
        return np.full(self.shape, value, np.int32)

    def is_exact(self, region: Region) -> bool:
        """Whether the cells of a region are what is touched of it, and no more."""
        return region.whole or (self._has_places and region.places is not None)

    def read(self, cells: Cells, region: Region) -> Cells:
        """The cells of a region; where it is whole, a view of them."""
        places = self._places(region)
        return self._view(cells, region) if places is None else cells[places]

    def write(self, cells: Cells, region: Region, values: Cells | int) -> None:
        """Paint the cells of a region."""
        places = self._places(region)
        if places is None:
            self._view(cells, region)[...] = values
        else:
            cells[places] = values

    def _places(self, region: Region) -> NDArray[np.int64] | None:
        """The cells of a region of which the places are known."""
        if region.places is None or not self._has_places:
            return None
        finer = region.dtype.itemsize // self._unit
        places = region.places.elements
        first = self._first(region)
        if finer == 1:
            return places + first if first else places
        return np.add.outer(places * finer + first, np.arange(finer)).ravel()

    def _first(self, region: Region) -> int:
        """The first cell of the region's tensor."""
        return self._begins[region.allocation.id] // self._unit

    def _view(self, cells: Cells, region: Region) -> Cells:
        if self._edges is not None:
            box = _box(region.allocation.shape, region.offset, region.shape, region.strides)
            assert box is not None
            return cells[
                tuple(
                    slice(bisect_left(edges, low), bisect_left(edges, high))
                    for edges, (low, high) in zip(self._edges, box, strict=True)
                )
            ]
        offset, shape, strides = region.finer(region.dtype.itemsize // self._unit)
        offset += self._first(region)
        return np.ndarray(shape, cells.dtype, cells, offset * 4, [stride * 4 for stride in strides])

    def element(self, region: Region, wrong: NDArray[np.bool_]) -> tuple[int, ...]:
        """The first element of the region's tensor where ``wrong``, of a view's shape, is true."""
        at = first_true(wrong)
        if self._edges is not None:
            box = _box(region.allocation.shape, region.offset, region.shape, region.strides)
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
    """By the id of each tensor, the bytes from the lowest address to its own."""
    if len(tensors) == 1:
        return {tensors[0].id: 0}
    lows = {tensor.id: tensor.address[1] for tensor in tensors if tensor.address is not None}
    lowest = min(lows.values())
    return {number: low - lowest for number, low in lows.items()}


def element_index(element: int, allocation: Allocation) -> tuple[int, ...]:
    """The index of an element of a tensor."""
    return tuple(int(k) for k in np.unravel_index(element, allocation.shape or (1,)))


def first_true(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    """The first place at which an array is true."""
    return tuple(int(place) for place in np.unravel_index(int(wrong.argmax()), wrong.shape))


def are_disjoint(allocation: Allocation, owned: Iterable[tuple[int, Region]]) -> bool:
    """Whether regions of different owners surely share no element, found without a canvas.

    It holds for pieces of the tensor that follow each other in memory, and for parts of a grid, as
    in outputs that are stored tile by tile: along each axis the boxes' sides are equal or apart.
    """
    if allocation.viewed:
        return False
    owned = list(owned)
    return _follow_each_other(owned) or _are_parts_of_a_grid(allocation, owned)


def _follow_each_other(owned: Iterable[tuple[int, Region]]) -> bool:
    """Whether no region begins before those of another owner with lower elements have ended."""
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


def _are_parts_of_a_grid(allocation: Allocation, owned: Iterable[tuple[int, Region]]) -> bool:
    """Whether boxes of different owners differ, and their sides are equal or apart."""
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
    """Where boxes begin and end along each axis; None if a region is no box."""
    edges: list[set[int]] = [{0, size} for size in shape]
    for region in regions:
        box = _box(shape, region.offset, region.shape, region.strides)
        if box is None:
            return None
        for axis, ends in zip(edges, box, strict=True):
            axis.update(ends)
    return [sorted(axis) for axis in edges]


def _box(
    whole: tuple[int, ...], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Box | None:
    """The box of a tensor's own axes that a pattern is; None if it is none."""
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
    """The sides of the box that a pattern of this shape is, wherever it begins.

    A step of the pattern that fills an axis goes on along the one before it, as in a tensor that
    is walked as one line.
    """
    steps = _steps(whole)
    sizes = [1] * len(whole)
    for size, stride in zip(shape, strides, strict=True):
        if size == 1 or stride == 0:
            continue
        if stride not in steps:
            return None
        # Axes of size 1 have the stride of the one before; the last one is the one that counts.
        axis = len(steps) - 1 - steps[::-1].index(stride)
        while axis > 0 and whole[axis] == 1:
            axis -= 1
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


@lru_cache(maxsize=4096)
def _steps(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one place of each axis to the next."""
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else ()
