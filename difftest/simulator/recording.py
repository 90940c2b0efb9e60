"""What the trace says of an instruction's operands: for each of them, each time.

So this is written for speed: a launch of tiny instructions pays for recording, not for detectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from difftest.simulator.trace import Places, Region

if TYPE_CHECKING:
    from difftest.simulator.dtypes import Array
    from difftest.simulator.tile import Tile

_make = tuple.__new__  # a NamedTuple's own __new__ takes twice the time


def region_of(tile: Tile, role: str) -> Region:
    """All of ``tile``, as the instruction touches it that calls it ``role``."""
    storage, pattern, dtype = tile.storage, tile.pattern, tile.dtype
    return _make(
        Region,
        (
            storage.allocation,
            pattern[0],
            pattern[1],
            pattern[2],
            tile.partition_axis,
            role,
            tile._strided,
            None if dtype is storage.dtype else dtype,
            None if tile._strided else Places(_numbers(tile)),
        ),
    )


Part = tuple["Tile", "Array | None"]
"""A tile that an instruction touches in part, and what of it: bools over its elements, or the
numbers of those in its tensor; None where that is not known."""


def mark_in_part(regions: list[Region], tiles: Sequence[Tile], parts: Sequence[Part]) -> None:
    """Say which of the regions of ``tiles`` are not touched whole, and what is touched of them."""
    for number, tile in enumerate(tiles):
        for touched, chosen in parts:
            if tile is touched:
                places = _places(tile, chosen)
                regions[number] = regions[number]._replace(whole=False, places=places)
                break


def _places(tile: Tile, chosen: Array | None) -> Places | None:
    if chosen is None or (chosen.dtype == np.bool_ and chosen.size != tile.size):
        return None
    if chosen.dtype == np.bool_:
        chosen = _numbers(tile)[chosen.reshape(-1)]
    return Places(chosen)


def _numbers(tile: Tile) -> Array:
    """A tile's elements by number, flat."""
    return tile.take(tile.pattern.elements()).reshape(-1)
