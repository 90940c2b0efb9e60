"""What the exact run holds of one tensor: planes beside its data, of their shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array, from_bits
from difftest.simulator.exact.bounded import Bounded, Float64, Held, spread
from difftest.simulator.instructions.writing import fit
from difftest.simulator.tile import Tile


def holding(tile: Tile, made: Bounded, where: Array | None) -> Held:
    """What a tile's tensor holds with these numbers; before they were the machine's own."""
    error = np.zeros(()) if made.error is None else spread(made)
    planes = fit(made.value, tile), fit(error, tile)
    if where is not None or not tile.is_whole():
        return _in_part(tile, (*planes, made.sums), where)
    shape = tile.storage.allocation.shape
    value, error = (_own(plane, tile.shape).reshape(shape) for plane in planes)
    return Held(value, error, np.full(shape, made.sums, np.uint8) if made.sums else None)


def _in_part(tile: Tile, parts: tuple[Any, Any, int], where: Array | None) -> Held:
    storage, sums = tile.storage, parts[2]
    exact = storage.exact
    if exact is None:
        filled = np.ascontiguousarray(raw_values(Tile.whole(storage)), np.float64)
        exact = Held(filled, np.zeros(filled.shape), None)
    if sums and exact.sums is None:
        exact = exact._replace(sums=np.zeros(exact.value.shape, np.uint8))
    if where is not None and where.size == tile.size:
        where = where.reshape(tile.shape)
    for plane, part in zip(exact[:3], parts, strict=True):
        if plane is not None:
            tile.scatter(plane, part, where)
    return exact


def _own(array: Float64, shape: tuple[int, ...]) -> Float64:
    """An array of a shape that nobody else has."""
    if array.base is None and array.shape == shape and array.flags.c_contiguous:
        return array
    full = np.empty(shape)
    full[...] = array
    return full


def raw_values(tile: Tile) -> Array:
    """The values of a tensor, whatever was never written."""
    held = tile.elements()
    return from_bits(held, tile.dtype) if tile.holds_bits else held
