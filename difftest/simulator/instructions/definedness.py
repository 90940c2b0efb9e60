"""What a mask left unwritten, on its way through a kernel: which results depend on it.

Reading an element that a masked instruction left out is no error: kernels compute on whole tiles
and mask again when they store. It holds poison here, and on a device whatever lay there. Whether an
arithmetic result depends on it is plain: it does if one of its terms does. Of everything else it is
found by computing the instruction again with other poison: what comes out differently depends on
it, also through a search or a select that shows no NaN, and for integers, which have none. So only
instructions that read such elements take longer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.dtypes import BOOL, Array, is_float
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.carrying import (
    UNDEFINED,
    by_row,
    lost_registers,
    over_rows,
    partitions_of,
)
from difftest.simulator.instructions.observing import see, see_rounded
from difftest.simulator.instructions.record import Call, Masked, Reach, Unboxed
from difftest.simulator.instructions.undefined_moves import (
    GATHERS,
    gathered,
    undefined_in,
    undefined_through,
    under_mask,
)
from difftest.simulator.memory import poison
from difftest.simulator.strictness import unheard
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Origin, Seen


class Undefined(NamedTuple):
    """An instruction that reads elements that nothing wrote."""

    masks: dict[int, Array]
    """By the operand's place which of its elements they are, in its own shape; -1 for ``dst``."""
    registers: dict[str, Array]
    """The reduction registers before it."""
    origin: Origin
    """Whence these elements came."""


def doubts(
    core: Core, call: Call, dst: Any, operands: tuple[Any, ...], where: Array | None
) -> Undefined | None:
    """What an instruction is about to read of elements that nothing wrote; None for nothing."""
    masks: dict[int, Array] = {}
    origin: Origin | None = None
    for place, operand in enumerate(operands):
        if isinstance(operand, Tile):
            storage = operand.storage
            if (storage.masked or storage.undefined is not None) and operand.axes is None:
                missing = undefined_in(operand)
                if missing is not None:
                    masks[place] = missing
                    origin = origin or _origin(call, operand)
        elif isinstance(operand, IndirectTile):
            missing = undefined_through(operand, where)
            if missing is not None:
                masks[place] = missing
                origin = origin or _origin(call, operand.base, *operand.index_tiles)
    if call.reads_dst and isinstance(dst, Tile):
        missing = undefined_in(dst) if dst.storage.undefined is not None else None
        if missing is not None:
            masks[-1] = missing
            origin = origin or _origin(call, dst)
    if origin is None:
        return None
    registers = {engine: held.copy() for engine, held in core.accumulators.items()}
    return Undefined(masks, registers, origin)


def _origin(call: Call, *tiles: Tile) -> Origin | None:
    """Whence what is undefined in one of them came; of what a mask left out, who reads it first."""
    for tile in tiles:
        storage = tile.storage
        if storage.undefined_from is None and storage.masked:
            storage.undefined_from = tile.origin(f"read by {call.name}")
        if storage.undefined_from is not None:
            return storage.undefined_from
    return None


def settle(
    core: Core, dst: Any, where: Array | None, found: Array | None, origin: Origin | None
) -> None:
    """Note which elements of ``dst``, just written, depend on what nothing wrote."""
    if not isinstance(dst, Tile) or dst.dtype is not dst.storage.dtype:
        return
    if found is None:
        if dst.storage.undefined is not None:
            _mark(dst, np.zeros((), BOOL), where)
        return
    same_size = found.size == dst.size
    found = found.reshape(dst.shape) if same_size else np.broadcast_to(found, dst.shape)
    if where is not None and where.size == dst.size:
        found = found & where.reshape(dst.shape)
    if dst.in_hbm:
        _see_stored(core, dst, found, origin)
    if origin is not None and found.any():
        dst.storage.undefined_from = origin
    _mark(dst, found, where)


def settle_registers(
    core: Core,
    call: Call,
    others: tuple[Tile | None, ...],
    undefined: Undefined | None,
    under: Array | None,
) -> None:
    """Note what registers and further destinations hold of what nothing wrote.

    ``under`` is what a mask that is no box leaves of it, None without one.
    """
    lost: Array | None = None if under is None else partitions_of(under)
    if undefined is not None and under is None:
        lost = np.zeros(call.result.shape[0], BOOL)
        for place, mask in undefined.masks.items():
            if place >= 0 and len(mask) == len(lost):
                lost |= partitions_of(mask)
    rows = lost_registers(core, call, lost, UNDEFINED)
    if rows is None:
        return
    core.undefined_registers = origin = core.undefined_registers or (
        None if undefined is None else undefined.origin
    )
    for tile in others:
        if tile is not None and len(rows) == tile.tile_shape()[0]:
            settle(core, tile, None, over_rows(tile.tile_shape(), rows), origin)


def _see_stored(core: Core, dst: Tile, found: Array, origin: Origin | None) -> None:
    """Note what goes to HBM; first what does not look like it, which no comparison would tell."""
    values = dst.values(unwritten=True)
    shown = np.isnan(values) if is_float(dst.dtype) else values == poison((), dst.dtype)
    hidden = found & ~shown
    if hidden.any():
        see(core, Seen.UNDEFINED_STORED, "dst", hidden, values, origin)
    else:
        see(core, Seen.UNDEFINED_STORED, "dst", found, None, origin)


def see_gather(core: Core, call: Call, operands: tuple[Any, ...], undefined: Undefined) -> None:
    """Note indices that depend on what nothing wrote, of an instruction that has a tile of them."""
    role = GATHERS.get(call.name)
    for place, mask in undefined.masks.items():
        if place >= 0 and call.instruction.operands[place].name == role:
            see(core, Seen.UNDEFINED_INDEX, role, mask, None, undefined.origin)


def see_indices(core: Core, call: Call, access: IndirectTile, where: Array | None) -> None:
    """Note indices that depend on what nothing wrote, of the rows that a mask leaves."""
    for tile in access.index_tiles:
        if not tile.storage.masked and tile.storage.undefined is None:
            continue
        missing = undefined_in(tile)
        if missing is None:
            continue
        if where is not None:
            if where.shape[:1] != missing.shape[:1]:
                continue
            rows = where.reshape(len(where), -1).any(axis=1)
            missing = missing & rows.reshape(-1, *(1,) * (missing.ndim - 1))
        see(core, Seen.UNDEFINED_INDEX, "index", missing, None, _origin(call, tile))


def add_product(target: Tile, product: Tile) -> None:
    """A product that is added to a tile in PSUM takes along what it depends on."""
    if product.storage.undefined is None:
        return
    missing = undefined_in(product)
    if missing is not None:
        old = undefined_in(target) if target.storage.undefined is not None else None
        missing = missing.reshape(target.shape)
        target.storage.undefined_from = product.storage.undefined_from
        _mark(target, missing if old is None else missing | old, None)


def _mark(dst: Tile, found: Array, where: Array | None) -> None:
    storage = dst.storage
    if storage.undefined is None:
        if not found.any():
            return
        storage.undefined = np.zeros(storage.size, BOOL)
    if where is not None and where.size != dst.size:
        dst.scatter(storage.undefined, True, np.broadcast_to(found, dst.shape))
    else:
        dst.scatter(storage.undefined, found, None if where is None else where.reshape(dst.shape))
    if not storage.undefined.any():
        storage.undefined = None


# -- instructions that compute ---------------------------------------------------------------------


def dependent(
    core: Core,
    call: Call,
    dst: Any,
    operands: tuple[Any, ...],
    undefined: Undefined,
    made: Any,
    unboxed: Unboxed | None,
) -> Array | None:
    """Where what an instruction computed differs if what nothing wrote is something else."""
    first = _first(made)
    if first is None:
        return None
    if unboxed is not None:
        return under_mask(call, operands, undefined.masks, unboxed)
    found = gathered(call, operands, undefined.masks)
    if found is None:
        found = _by_rule(call, operands, undefined.masks)
    if found is not None:
        return found
    found = np.zeros(first.shape, BOOL)
    with _as_before(core):
        for number in range(len(_STAND_INS)):
            values = [
                _with_stand_in(operand, undefined.masks.get(place), number)
                for place, operand in enumerate(operands)
            ]
            if call.reads_dst:
                values.append(_with_stand_in(dst, undefined.masks.get(-1), number))
            core.accumulators = {name: held.copy() for name, held in undefined.registers.items()}
            other = _first(call.instruction.meaning(call, *values))
            if other is None or other.shape != first.shape:
                return None
            found |= (first != other) & ~((first != first) & (other != other))
    return found


def look_for_rounding(
    core: Core, call: Call, dst: Any, operands: tuple[Any, ...], results: Any
) -> None:
    """Note the integers that an instruction computed in float32, which does not have them.

    Its meaning for the same numbers in float64 says what they are.
    """
    if call.attributes.reduce_cmd == "reduce":
        return  # the registers have gone on
    values = [
        one.engine_values(unwritten=True).astype(np.float64) if isinstance(one, Tile) else one
        for one in operands
    ]
    if call.reads_dst:
        values.append(dst.engine_values(unwritten=True).astype(np.float64))
    registers = {name: held.copy() for name, held in core.accumulators.items()}
    with _as_before(core):
        exactly = call.instruction.meaning(call, *values)
    core.accumulators = registers
    see_rounded(core, call, results, exactly)


def _by_rule(call: Call, operands: tuple[Any, ...], masks: dict[int, Array]) -> Array | None:
    """:func:`dependent` of arithmetic, where each result follows from all that it is made of.

    None of everything else: where an operand can decide that another one does not count.
    """
    instruction = call.instruction
    options = call.options.values()
    if any(getattr(op, "bitvec", False) or op in _LOGIC for op in options):
        return None
    reduced = instruction.reduced
    if reduced is not None and instruction.reach(call) is Reach.AXES and list(masks) == [0]:
        mask = masks[0].reshape(operands[0].tile_shape())
        gone: Array = np.any(mask, axis=reduced(call)).reshape(call.result.shape)
        return gone
    if instruction.carries in (None, by_row):
        return None
    values = [op.engine_values(unwritten=True) if isinstance(op, Tile) else op for op in operands]
    found: Array | None = None
    for place, mask in masks.items():
        if place < 0:
            return None
        role = instruction.operands[place].name
        shape = operands[place].tile_shape()
        carried = instruction.carries(call, mask.reshape(shape), role, values)
        if carried is None:
            return None
        found = carried if found is None else found | carried
    return found


_LOGIC = tuple(op for name, op in ALU_OPS.items() if name.startswith("logical"))


def _first(made: Any) -> Array | None:
    """The first destination's values."""
    first = made[0] if type(made) is tuple else made
    first = first.values if type(first) is Masked else first
    return first if isinstance(first, np.ndarray) else None


_STAND_INS = (3e38, -3e38)
"""For floats; the largest and the smallest integer of others."""


def _with_stand_in(operand: Any, mask: Array | None, number: int) -> Any:
    if not isinstance(operand, Tile):
        return operand
    values = operand.engine_values(unwritten=True)
    if mask is None:
        return values
    stand_in: Any = _STAND_INS[number]
    if values.dtype == BOOL:
        stand_in = number == 0
    elif values.dtype.kind in "iu":
        info = np.iinfo(values.dtype)
        stand_in = info.max if number == 0 else info.min
    return np.where(mask.reshape(values.shape), np.asarray(stand_in, values.dtype), values)


@contextlib.contextmanager
def _as_before(core: Core) -> Iterator[None]:
    """Leave no trace of what is computed meanwhile."""
    registers = core.accumulators
    sights, alarm, made = list(core.sights), core.alarm, set(core.made)
    try:
        with unheard():  # a stand-in may break a rule of values
            yield
    finally:
        core.accumulators = registers
        core.sights[:], core.alarm, core.made = sights, alarm, made
