"""Elements that nothing wrote, on their way through instructions.

A tile of which a part was never written does no harm as long as that part is not used: kernels do
compute on whole tiles of which they fill and use a part. So an instruction carries the mark on: an
element of its result counts as never written if what it follows from was not. Which that is, the
record says (``carries``): the element at its place, what a sum or a row is made of, a row or a
column of a product; of a select only the side that is chosen. The engines' reduction registers
carry it too, a partition each. Whoever uses such an element raises: a DMA that writes to an array
of the host's, a kernel that returns it, an index, a register; and so does an instruction of whose
result nothing is left, or that reads a tile of which nothing was written. Into a tensor of which a
mask left elements out nothing is carried: what was never written counts as left out there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.dtypes import BOOL, Array
from difftest.simulator.instructions.record import Call
from difftest.simulator.pattern import Shape
from difftest.simulator.strictness import doubt
from difftest.simulator.tile import Tile, unwritten_error
from difftest.simulator.trace import Origin

REDUCE_INIT = "reduce_init"
"""The operand from which registers are loaded: of the first destination nothing follows from it."""

# -- what results follow from: ``carries`` of the records ------------------------------------------


def in_place(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """Of an instruction whose result has each element where its operands have it."""
    if name == REDUCE_INIT:
        return np.zeros(call.result.shape, BOOL)
    return over(call.result.shape, missing)


def over(shape: Shape, missing: Array) -> Array:
    """An operand's elements in the shape of a result: as many, or repeated in it."""
    if missing.size == math.prod(shape):
        return missing.reshape(shape)
    ones = (1,) * (len(shape) - missing.ndim)
    return np.broadcast_to(missing.reshape(*missing.shape[:1], *ones, *missing.shape[1:]), shape)


def by_row(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """Of an instruction each element of whose result follows from all of its partition."""
    return over_rows(call.result.shape, partitions_of(missing))


def over_rows(shape: Shape, lost: Array) -> Array:
    """Whole partitions of a result."""
    return np.broadcast_to(lost.reshape(-1, *(1,) * (len(shape) - 1)), shape)


def partitions_of(missing: Array) -> Array:
    """The partitions of an operand that miss something."""
    found: Array = np.any(missing.reshape(len(missing), -1), axis=1)
    return found


def by_axes(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """Of a reduction: where something of what is reduced was not written."""
    assert call.instruction.reduced is not None
    found: Array = np.any(missing, axis=call.instruction.reduced(call))
    return found.reshape(call.result.shape)


def from_there_on(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """Of a scan along the free axes: an element and all that come after it in its partition."""
    shape = call.result.shape
    if missing.size != math.prod(shape):
        return by_row(call, missing, name, values)
    lines = missing.reshape(len(missing), -1)
    return np.logical_or.accumulate(lines, axis=1).reshape(shape)


# -- at the gate -----------------------------------------------------------------------------------


class Carried(NamedTuple):
    """What of an instruction's results counts as never written."""

    elements: Array
    """Of the first destination, in the result's shape."""
    partitions: Array
    """Those of which an operand misses something: of registers and further destinations."""
    origin: Origin

    def mark(self, dst: Tile, where: Array | None) -> None:
        """Note it of ``dst``, once the result is there."""
        elements = self.elements
        if where is not None:
            elements = elements & _spread(where, elements.shape)
        if elements.any():
            dst.forget_written(elements.reshape(dst.shape), self.origin)


def may_carry(call: Call, dst: Any, operands: tuple[Any, ...]) -> bool:
    """Whether a call could carry the mark on: something that it reads is not written."""
    if call.instruction.carries is None:
        return False
    for operand in operands:
        if isinstance(operand, Tile) and operand.storage.unwritten:
            return True
    return call.reads_dst and isinstance(dst, Tile) and bool(dst.storage.unwritten)


def operand_values(
    call: Call, dst: Tile, operands: tuple[Any, ...], where: Array | None
) -> tuple[list[Any], Carried | None]:
    """The operands' values, and what of the result will count as never written.

    What was never written has the value of an element that was: it decides nothing, and cannot be
    out of an operator's range. A row of which something was not written is another row, where whole
    rows are looked at.

    Raises
    ------
    UnwrittenError : nothing of an operand was written, or of what ``where`` leaves of the result
        nothing follows from what was; or the call is none that carries the mark on.
    """
    holes = _holes(operands)
    values: list[Any] = []
    for place, operand in enumerate(operands):
        if not isinstance(operand, Tile):
            values.append(operand)
        elif place in holes:
            held = operand.engine_values(unwritten=True)
            holes[place] = missing = holes[place].reshape(held.shape)
            values.append(np.where(missing, _some_written(held, missing), held))
        else:
            values.append(operand.engine_values())
    carried = _carried(call, dst, operands, holes, values, where)
    if carried is not None and call.instruction.carries is by_row:
        values = [_without_rows(value, carried.partitions) for value in values]
    return values, carried


def of_moved(
    call: Call, dst: Tile, operands: tuple[Any, ...], where: Array | None
) -> Carried | None:
    """:func:`operand_values` of an instruction that reads its operands by itself.

    Raises
    ------
    UnwrittenError : as there; or it goes to an array of the host's.
    """
    holes = {
        place: missing.reshape(operands[place].tile_shape())
        if not operands[place].in_hbm
        else missing
        for place, missing in _holes(operands).items()
    }
    carried = _carried(call, dst, operands, holes, list(operands), where)
    return _with_what_was_there(call, dst, carried)


def _holes(operands: tuple[Any, ...]) -> dict[int, Array]:
    """By the operand's place, which of its elements were never written, in its own shape."""
    holes: dict[int, Array] = {}
    for place, operand in enumerate(operands):
        if isinstance(operand, Tile):
            operand.check_bounds()
            missing = None if operand.storage.masked else operand.unwritten()
            if missing is not None:
                holes[place] = missing
    return holes


def _carried(
    call: Call,
    dst: Tile,
    operands: tuple[Any, ...],
    holes: dict[int, Array],
    values: list[Any],
    where: Array | None,
) -> Carried | None:
    """What is carried of the operands' ``holes``; None for nothing, or where that was let pass."""
    carries = call.instruction.carries
    assert carries is not None
    elements: Array | None = None
    origin: Origin | None = None
    partitions = np.zeros(call.result.shape[0] if call.result.shape else 1, BOOL)
    for place, missing in holes.items():
        lost = carries(call, missing, call.instruction.operands[place].name, values)
        kept = lost if lost is None or where is None else lost & _spread(where, lost.shape)
        if kept is not None and where is not None and not kept.any():
            continue
        given = dst.storage.masked or _is_argument(dst)
        if kept is None or (given and kept.any()) or missing.all() or _nothing_left(kept, where):
            doubt(unwritten_error(operands[place], missing))
            _go_on(operands, holes, values)
            return None
        elements = kept if elements is None else elements | kept
        initial = call.instruction.operands[place].name == REDUCE_INIT
        partitions |= partitions_of(missing if initial else kept)
        if origin is None:
            origin = operands[place].origin(f"read by {call.name}")
    if elements is None or origin is None:
        return None
    return Carried(elements, partitions, origin)


def _go_on(operands: tuple[Any, ...], holes: dict[int, Array], values: list[Any]) -> None:
    """Compute with what looks unwritten, where that is no error."""
    for place in holes:
        operands[place].storage.poison()
        if isinstance(values[place], np.ndarray):
            values[place] = operands[place].engine_values(unwritten=True)


def _is_argument(dst: Tile) -> bool:
    """Whether it is an array of the host's, which the kernel writes in place."""
    return dst.in_hbm and dst.storage.allocation.location is None


def check_returned(tile: Tile) -> None:
    """Raise if something of what a kernel returns follows from what nothing wrote.

    Raises
    ------
    UnwrittenError : it does; the line is that of the last instruction that stored such elements.
    """
    lost = tile.lost()
    if lost is not None:
        doubt(unwritten_error(tile, lost, returned=True))


def _nothing_left(lost: Array, where: Array | None) -> bool:
    """Whether all that an instruction would write is lost."""
    return bool((lost if where is None else lost[_spread(where, lost.shape)]).all())


def _with_what_was_there(call: Call, dst: Tile, carried: Carried | None) -> Carried | None:
    """Of a product that is added: what is lost of the products before stays so."""
    storage = dst.storage
    old = dst.lost() if call.reads_dst else None
    if old is None or storage.origin is None:
        return carried
    if call.options.get("accumulate") is None:  # it adds where a matmul wrote alone
        if storage.products is None:
            return carried
        old = old & dst.gather(storage.products)
    old = old.reshape(call.result.shape)
    if carried is not None:
        return carried._replace(elements=carried.elements | old)
    return Carried(old, partitions_of(old), storage.origin)


def _without_rows(value: Any, lost: Array) -> Any:
    """Values of which the rows that are lost are the first one that is not."""
    if not isinstance(value, np.ndarray) or len(value) != len(lost) or lost.all():
        return value
    result = value.copy()
    result[lost] = value[np.argmin(lost)]
    return result


def _some_written(held: Array, missing: Array) -> Any:
    return held.reshape(-1)[np.argmin(missing.reshape(-1))]


def _spread(where: Array, shape: Shape) -> Array:
    return where.reshape(shape) if where.size == math.prod(shape) else np.broadcast_to(where, shape)


# -- the engines' registers, and further destinations ----------------------------------------------

UNWRITTEN = "unwritten"
UNDEFINED = "undefined"


def lost_registers(core: Core, call: Call, lost: Array | None, kind: str) -> Array | None:
    """Which partitions of a further destination are lost, by what an instruction just read.

    Those of the engine's registers, if it reduces into them; they lose what is reduced into them,
    until they are reset. ``kind`` keeps two accounts apart: of what was never written, which is an
    error, and of what masks left out.

    Parameters
    ----------
    lost : the partitions of which it read what nothing wrote [P], None for none.
    """
    options = call.options
    if "reduce_cmd" not in options:
        return lost
    command = options["reduce_cmd"].name
    if command == "IDLE" and "reduce_res" not in call.destinations:
        return None
    account = f"{call.engine.value} {kind}"
    held = core.accumulators.get(account)
    if held is None:
        if lost is None or not lost.any():
            return None
        held = np.zeros((core.machine.partitions, 1), BOOL)
    rows = len(lost) if lost is not None else call.result.shape[0]
    if command not in ("REDUCE", "READ"):
        held = np.zeros_like(held)
    if lost is not None and command not in ("RESET", "READ"):
        held = held.copy()
        held[:rows, 0] |= lost
    core.accumulators[account] = held
    found: Array = held[:rows, 0]
    return found


def settle_further(
    core: Core, call: Call, dst: Tile, others: tuple[Tile | None, ...], carried: Carried | None
) -> None:
    """Let registers and further destinations lose what follows from what nothing wrote."""
    further = call.instruction.carries_further
    if further is not None and carried is not None:
        for tile in others:
            if tile is not None:
                tile.forget_written(further(call, carried.elements), carried.origin)
        return
    account = f"{call.engine.value} {UNWRITTEN}"
    if not others and "reduce_cmd" in call.options:
        _lose_by_registers(core, call, dst, account)
    before = core.register_origins.get(account)
    lost = lost_registers(core, call, None if carried is None else carried.partitions, UNWRITTEN)
    held = core.accumulators.get(account)
    if held is not None and not held.any():
        core.register_origins.pop(account, None)
    elif held is not None and before is None and carried is not None:
        core.register_origins[account] = carried.origin
    if lost is None or not lost.any():
        return
    origin = core.register_origins.get(account) or (carried and carried.origin)
    assert origin is not None
    for tile in others:
        if tile is not None:
            _mark_partitions(tile, lost, origin)


def _lose_by_registers(core: Core, call: Call, dst: Tile, account: str) -> None:
    """Let what goes on from the registers (tensor_scalar_cumulative) lose what they have lost."""
    held = core.accumulators.get(account)
    if held is not None and call.options["reduce_cmd"].name == "REDUCE":
        _mark_partitions(dst, held[: dst.tile_shape()[0], 0], core.register_origins[account])


def _mark_partitions(tile: Tile, lost: Array, origin: Origin) -> None:
    """Note of a further destination which of its partitions count as never written."""
    if len(lost) == tile.tile_shape()[0]:
        shape = tile.tile_shape()
        tile.forget_written(over_rows(shape, lost).reshape(tile.shape), origin)
