"""Tiles of which a mask keeps only elements inside their tensor.

The true region of a mask may be no box. Each access can then be inside its tensor although the
box around the region leaves it: ``nl.load(x[3 * p + f], mask=3 * p + f < 299)`` of an ``x`` of 299
elements. "Out-of-bound access can be avoided by providing a proper mask" (AWS ``nki.errors.rst`` at
tag v2.26.0, err_tensor_access_out_of_bound).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, Array
from difftest.simulator.index import left_tensor
from difftest.simulator.indexing import Axis
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.tile import Tile


class PartialTile(Tile):
    """The elements of a tile that a mask keeps, in the tile's shape.

    A masked-out element reads as the first kept element, and is not written. The pattern is the
    smallest box of the tensor that contains all kept elements.
    """

    __slots__ = ("_index", "_kept", "_numbers")
    _strided = False

    def __init__(self, tile: Tile, numbers: Array, kept: Array) -> None:
        """Take the tile, and the number and the mask's bool of each of its elements."""
        first = numbers[kept][0]
        self._kept = kept
        self._numbers = np.where(kept, numbers, first)
        pattern, self._index = _holding(tile, self._numbers)
        super().__init__(tile._storage, pattern, 0, tile.dtype)
        self.shape = kept.shape

    @property
    def size(self) -> int:
        return self._kept.size

    def _take(self, region: Array) -> Array:
        """Return a copy of the elements of ``region``, which has the pattern's elements."""
        return np.asarray(region[self._index])

    def _give(self, region: Array, values: Any, where: Array | None = None) -> None:
        """Write values where the mask, and ``where``, keep the elements."""
        chosen = self._kept if where is None else self._kept & where
        place = tuple([numbers[chosen] for numbers in self._index])
        further = region.ndim - len(self._index)
        spread = np.broadcast_to(
            values, self.shape + region.shape[region.ndim - further :]
        )
        region[place] = spread[chosen]

    def _repeats(self) -> bool:
        """Return whether the mask keeps an element of the tensor twice."""
        kept = self._numbers[self._kept]
        return len(np.unique(kept)) < len(kept)

    def _is_whole(self) -> bool:
        """Return False: memory has the elements in another order."""
        return False

    def _first_partition(self) -> int:
        """Return the partition of the first row with a kept element."""
        first = int(self._numbers.reshape(len(self._numbers), -1)[0].min())
        partition = first // self._step() % self._storage.allocation.partitions
        return int(self._storage.start[0] + partition)

    def _signature(self) -> tuple[object, ...]:
        place = () if self._in_hbm else (self._first_partition(), self._span())
        return ("partial", self._space, self.dtype, self.shape, *place)

    def _span(self) -> tuple[int, int]:
        """Return the first and the last byte of a partition among the kept elements."""
        free = self._numbers % self._step()
        start = self._storage.start[1]
        low = int(free.min())
        high = int(free.max())
        return start + low * self._itemsize, start + (high + 1) * self._itemsize - 1


def kept_inside(tile: Tile, kept: Array, box: tuple[slice, ...] | None = None) -> Tile:
    """Return the kept elements of a tile that leaves its tensor.

    Parameters
    ----------
    tile : a tile whose pattern leaves its tensor.
    kept : the mask's bools, one for each element of the tile, in the shape of the result.
    box : the part of ``kept`` to return; all of it by default.

    Raises
    ------
    OutOfBoundsError : the mask keeps an element outside the tensor.
    """
    elements_inside(tile, kept)
    numbers = _along(tile.shape, tile.offset, tile.strides)
    cut = tuple(slice(None) for _ in kept.shape) if box is None else box
    return PartialTile(tile, numbers.reshape(kept.shape)[cut], kept[cut])


def elements_inside(tile: Tile, kept: Array) -> Array:
    """Return which elements of a tile that leaves its tensor are inside: bools of its shape.

    ``kept`` is as in :func:`kept_inside`.

    Raises
    ------
    OutOfBoundsError : the mask keeps an element outside the tensor.
    """
    assert isinstance(tile._axes, tuple)
    inside = np.ones(tile.shape, dtype=BOOL)
    for number, axis in enumerate(tile._axes):
        indices = _along(tile.shape, axis.start, axis.steps)
        within = (indices >= 0) & (indices < axis.size)
        wrong = indices[kept.reshape(tile.shape) & ~within]
        if wrong.size:
            raise _outside(tile, number, axis, int(wrong[0]))
        inside &= within
    return inside


def _along(shape: Shape, start: int, steps: Shape) -> Array:
    """Return ``start + sum(steps[k] * i_k)`` for each element of ``shape``, int64."""
    return Pattern(start, shape, steps).elements()


def _outside(tile: Tile, number: int, axis: Axis, index: int) -> Exception:
    return left_tensor(
        "an access",
        f"its mask keeps index {index} of {axis.size}",
        f"index {index} on axis {number} of {tile._storage.allocation}",
        f"0 to {axis.size - 1}",
        "correct the mask, so that it leaves out each index below 0 or beyond the end "
        "(NKI does not wrap negative indices)",
    )


def _holding(tile: Tile, numbers: Array) -> tuple[Pattern, tuple[Array, ...]]:
    """Return a box of the tensor around these element numbers, and each one's index in it.

    In HBM the box is a run of elements. On chip its axes are partitions, blocks and the elements of
    a partition.
    """
    places = [numbers]
    steps = [1]
    if not tile._in_hbm:
        partitions = tile._storage.allocation.partitions
        step = tile._step()
        row, free = np.divmod(numbers, step)
        block, partition = np.divmod(row, partitions)
        places = [partition, block, free]
        steps = [step, step * partitions, 1]
    lows = [int(place.min()) for place in places]
    counts = [
        int(place.max()) - low + 1 for place, low in zip(places, lows, strict=True)
    ]
    offset = sum(low * step for low, step in zip(lows, steps, strict=True))
    index = tuple([place - low for place, low in zip(places, lows, strict=True)])
    return Pattern(offset, tuple(counts), tuple(steps)), index
