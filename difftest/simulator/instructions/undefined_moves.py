"""What a mask left unwritten, where no arithmetic has to be done again to follow it.

Through DMA, gathers and scatters, matrix products, and instructions under a mask that is no box:
which elements of a result depend on what nothing wrote follows from their places alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, Array
from difftest.simulator.errors import OutOfBoundsError
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import carrying
from difftest.simulator.instructions.record import Call, Reach, Unboxed
from difftest.simulator.memory import pattern_view
from difftest.simulator.pattern import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Origin


def undefined_in(tile: Tile) -> Array | None:
    """Which of a tile's elements depend on what nothing wrote; None if none do."""
    storage = tile.storage
    missing = tile.unwritten() if storage.masked else None
    if storage.undefined is not None and tile.dtype is storage.dtype:
        own = tile.gather(storage.undefined)
        if own.any():
            missing = own if missing is None else own | missing
    return missing


# -- indices ---------------------------------------------------------------------------------------


def undefined_through(access: IndirectTile, where: Array | None) -> Array | None:
    """Which elements that indices name depend on what nothing wrote: by the index, or themselves.

    In the access's shape; None if none do. ``where`` is a mask's bools over it.
    """
    found = undefined_places(access)
    base = access.base
    missing = undefined_in(base) if _follows(base) else None
    if missing is not None:
        kept = None if where is None else where.reshape(access.shape)
        arrays, inside = access.locate(kept)
        read = np.zeros(access.shape, BOOL)
        read[inside] = missing[tuple(array[inside] for array in arrays)]
        found = read if found is None else found | read
    return found if found is not None and found.any() else None


def undefined_places(access: IndirectTile) -> Array | None:
    """Which elements of an access have an index that depends on what nothing wrote."""
    found: Array | None = None
    for tile in access.index_tiles:
        missing = undefined_in(tile) if _follows(tile) else None
        if missing is not None:
            spread = _spread_index(missing, access.shape)
            found = spread if found is None else found | spread
    return found


def resolved(
    access: IndirectTile, *, skip: bool, where: Array | None
) -> tuple[tuple[Array, ...], Array]:
    """As :meth:`IndirectTile.resolve`, whose error says so where nothing wrote the index.

    Raises
    ------
    OutOfBoundsError : an index is out of bounds, and those are not skipped.
    """
    try:
        return access.resolve(skip=skip, where=where)
    except OutOfBoundsError as error:
        unwritten = undefined_places(access)
        if unwritten is None:
            raise
        kept = None if where is None else where.reshape(access.shape)
        outside = ~access.locate(kept)[1] & unwritten
        if not (outside if kept is None else outside & kept).any():
            raise
        whence = (tile.storage.undefined_from for tile in access.index_tiles)
        origin = next((one for one in whence if one is not None), None)
        raise OutOfBoundsError(
            "an index that nothing wrote is whatever lay in the memory",
            happened="an index that nothing wrote left its tensor",
            received=error.received + (f"; it comes from {origin}" if origin else ""),
            limit=error.limit,
            remedy="mask the access as the load of the indices was masked, or fill them first",
            location=error.location,
        ) from None


def _follows(tile: Tile) -> bool:
    return tile.storage.masked or tile.storage.undefined is not None


def _spread_index(missing: Array, shape: Shape) -> Array:
    """An index tile's elements for each element of the access."""
    if missing.size == 1:
        return np.full(shape, bool(missing.any()))
    try:
        return np.broadcast_to(missing, shape)
    except ValueError:  # an offset that is added to an index expression of another rank
        return np.full(shape, bool(missing.any()))


def scatter_along(
    dst: IndirectTile,
    moved: Array | None,
    where: Array | None,
    origin: Origin | None,
    *,
    adds: bool,
) -> None:
    """Note in a scatter's tensor which elements it brought depend on what nothing wrote.

    Parameters
    ----------
    moved : those of the source, None for none.
    adds : whether they are added to what is there.
    """
    storage = dst.base.storage
    lost = np.zeros(dst.shape, BOOL) if moved is None else moved.reshape(dst.shape).copy()
    places = undefined_places(dst)
    if places is not None:
        lost |= places
    if storage.undefined is None:
        if not lost.any():
            return
        storage.undefined = np.zeros(storage.size, BOOL)
    storage.undefined_from = origin or storage.undefined_from
    kept = None if where is None else where.reshape(dst.shape)
    arrays, inside = dst.locate(kept)
    inside = inside if kept is None else inside & kept
    place = tuple(array[inside] for array in arrays)
    view = pattern_view(storage.undefined, dst.base.pattern, BOOL)
    view[place] = view[place] | lost[inside] if adds else lost[inside]
    if not storage.undefined.any():
        storage.undefined = None


GATHERS = {"local_gather": "index", "gather_flattened": "indices", "nc_n_gather": "indices"}
"""Instructions that read an operand of indices, and its name."""


def gathered(call: Call, operands: tuple[Any, ...], masks: dict[int, Array]) -> Array | None:
    """Which elements of a gather's result depend on what nothing wrote; None of another call."""
    role = GATHERS.get(call.name)
    if role is None:
        return None
    roles = [one.name for one in call.instruction.operands]
    at = roles.index(role)
    shape = call.result.shape
    found = np.zeros(shape, BOOL)
    index = masks.get(at)
    if index is not None:
        index = index.reshape(len(index), -1)
        if call.name == "local_gather":  # each 16 partitions share what they hold
            lanes = call.machine.gpsimd_core_partitions
            core = index.reshape(-1, lanes * index.shape[1]).any(axis=1)
            found |= carrying.over_rows(shape, np.repeat(core, lanes))
        else:
            found |= index.reshape(shape)
    data = masks.get(1 - at)
    if data is not None:
        safe = [op.engine_values(unwritten=True) if isinstance(op, Tile) else op for op in operands]
        if index is not None:
            safe[at] = np.where(index.reshape(safe[at].shape), 0, safe[at])
        assert call.instruction.carries is not None
        lost = call.instruction.carries(call, data.reshape(len(data), -1), roles[1 - at], safe)
        found |= found if lost is None else lost
    return found


# -- copies and products ---------------------------------------------------------------------------


def carried_along(call: Call, dst: Any, masks: dict[int, Array]) -> Array | None:
    """Which elements of the result of an instruction that writes by itself depend on what it reads.

    None of those that have no rule here: ``masks`` are by the operand's place, -1 for ``dst``.
    """
    if not isinstance(dst, Tile):
        return None
    if call.name in ("nc_matmul", "nc_matmul_mx"):
        return _product(call, dst, masks)
    mask = masks.get(0)
    if call.name in ("dma_copy", "dma_gather", "tensor_copy_dynamic_src"):
        found = np.zeros(dst.shape, BOOL)
        if mask is not None:
            found |= mask.reshape(dst.shape)
        if -1 in masks:
            found |= masks[-1]
        return found
    if call.name == "dma_transpose" and mask is not None:
        assert call.instruction.walk is not None
        walk = call.instruction.walk(call)
        return mask.reshape(walk.walked).transpose(walk.axes["dst"])
    return None


def _product(call: Call, dst: Tile, masks: dict[int, Array]) -> Array:
    """A column of either operand spoils the row or column of the result that it makes."""
    assert call.instruction.carries is not None
    found = np.zeros(call.result.shape, BOOL)
    for place, mask in masks.items():
        if place < 0:
            found |= mask.reshape(found.shape)
            continue
        name = call.instruction.operands[place].name
        lost = call.instruction.carries(call, mask.reshape(len(mask), -1), name, [])
        assert lost is not None
        found |= lost
    return found.reshape(dst.shape)


# -- masks that are no box -------------------------------------------------------------------------


def under_mask(
    call: Call, operands: tuple[Any, ...], masks: dict[int, Array], unboxed: Unboxed
) -> Array | None:
    """Which elements of the result under a mask that is no box depend on what nothing wrote.

    Of what the mask leaves: what is beside it in its box is not read.
    """
    inner, reach = unboxed.inner, call.instruction.reach(call)
    shape = call.result.shape
    found: Array | None = None
    for place, mask in masks.items():
        if place < 0:
            continue
        read = _left(mask.reshape(operands[place].tile_shape()), inner)
        if reach is Reach.AXES:
            assert call.instruction.reduced is not None
            lost = np.any(read, axis=call.instruction.reduced(call)).reshape(shape)
        elif reach is Reach.ROW or read.size != math.prod(shape):
            lost = carrying.over_rows(shape, carrying.partitions_of(read))
        else:
            lost = read.reshape(shape)
        found = lost if found is None else found | lost
    return found


def _left(mask: Array, inner: Array) -> Array:
    """An operand's elements that a mask leaves, in the mask's shape; of a vector its partitions."""
    if mask.size == inner.size:
        return mask.reshape(inner.shape) & inner
    spread = (mask.shape[0], *(1,) * (inner.ndim - mask.ndim), *mask.shape[1:])
    if all(have in (1, want) for have, want in zip(spread, inner.shape, strict=False)):
        return np.broadcast_to(mask.reshape(spread), inner.shape) & inner
    return mask & inner.reshape(len(inner), -1).any(axis=1).reshape(-1, *(1,) * (mask.ndim - 1))
