"""What the trace says of an instruction's operands: for each of them, each time.

So this is written for speed: a launch of tiny instructions pays for recording, not for detectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from difftest.simulator.trace import Region

if TYPE_CHECKING:
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
            True,
            None if dtype is storage.dtype else dtype,
        ),
    )


def mark_in_part(regions: list[Region], tiles: Sequence[Tile], partial: Sequence[Tile]) -> None:
    """Say which of the regions of ``tiles`` are not touched whole."""
    for number, tile in enumerate(tiles):
        if any(tile is touched for touched in partial):
            regions[number] = regions[number]._replace(whole=False)
