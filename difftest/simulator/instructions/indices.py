"""Indices that depend on what a mask left out, and what they name."""

from __future__ import annotations

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.carrying import partitions_of
from difftest.simulator.instructions.observing import see
from difftest.simulator.instructions.record import Call
from difftest.simulator.memory import LEFT, UNSURE
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Origin, Seen


def origin_of(call: Call, *tiles: Tile | IndirectTile) -> Origin | None:
    """The origin of undefined elements in one of them; of those left out, who reads it first."""
    for tile in tiles:
        gaps = tile._storage.gaps
        if gaps is not None and gaps.origin is None and gaps.masked:
            gaps.origin = tile._origin(f"read by {call.name}")
        if gaps is not None and gaps.origin is not None:
            return gaps.origin
    return None


def undefined_places(access: IndirectTile) -> Array | None:
    """Which elements of an access have an index that depends on what a mask left out."""
    places: Array | None = None
    for tile in access._index_tiles:
        missing = tile._unwritten(UNSURE, LEFT)
        if missing is not None:
            try:
                spread = np.broadcast_to(missing if missing.size > 1 else True, access.shape)
            except ValueError:  # an offset that is added to an index expression of another rank
                spread = np.full(access.shape, True)
            places = spread if places is None else places | spread
    return places


def resolve(access: IndirectTile, call: Call, where: Array | None) -> None:
    """As :meth:`IndirectTile._resolve`, whose error says so where nothing wrote the index.

    Raises
    ------
    OutOfBoundsError : an index is out of bounds, and those are not skipped.
    """
    where = where if call.instruction.walk is None else None
    try:
        access._resolve(skip=call.options.get("oob_mode") == "skip", where=where)
    except OutOfBoundsError as error:
        unwritten = undefined_places(access)
        if unwritten is None:
            raise
        kept = None if where is None else where.reshape(access.shape)
        outside = ~access._locate(kept)[1] & unwritten
        if not (outside if kept is None else outside & kept).any():
            raise
        gaps = (tile._storage.gaps for tile in access._index_tiles)
        origin = next((one.origin for one in gaps if one is not None and one.origin), None)
        raise OutOfBoundsError(
            "an index that nothing wrote is whatever lay in the memory",
            happened="an index that nothing wrote left its tensor",
            received=error.received + (f"; it comes from {origin}" if origin else ""),
            limit=error.limit,
            remedy="mask the access as the load of the indices was masked, or fill them first",
            location=error.location,
        ) from None


def see_indices(core: Core, call: Call, access: IndirectTile, where: Array | None) -> None:
    """Note indices that depend on what a mask left out, of the rows that a mask leaves."""
    for tile in access._index_tiles:
        missing = tile._unwritten(UNSURE, LEFT)
        if missing is None:
            continue
        if where is not None:
            if where.shape[:1] != missing.shape[:1]:
                continue
            rows = partitions_of(where)
            missing = missing & rows.reshape(-1, *(1,) * (missing.ndim - 1))
        see(core, Seen.UNDEFINED_INDEX, "index", missing, None, origin_of(call, tile))
