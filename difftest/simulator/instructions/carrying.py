"""Elements that nothing wrote, on their way through instructions that work element by element.

A copy, a transpose or an activation of a tile of which a part was never written does no harm: the
rest of the result depends on what was written alone, and kernels do compute on whole tiles of which
they fill and use a part. So such an instruction carries the mark on: an element of its result
counts as never written if one of the elements that it comes from was not. Whoever uses one for
something else (a sum, a product, a DMA) raises, and so does any instruction that reads a tile of
which nothing was written. Into a tensor of which a mask left elements out nothing is carried: what
was never written counts as left out there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import kernel_location
from difftest.simulator.instructions.record import Call
from difftest.simulator.pattern import Shape
from difftest.simulator.tile import Tile, unwritten_error


def in_place(call: Call, missing: Array, name: str) -> Array:
    """Of an instruction whose result has each element where its operands have it."""
    shape = call.result.shape
    if missing.size == math.prod(shape):
        return missing.reshape(shape)
    ones = (1,) * (len(shape) - missing.ndim)
    return np.broadcast_to(missing.reshape(*missing.shape[:1], *ones, *missing.shape[1:]), shape)


class Carried(NamedTuple):
    """Which elements of a result count as never written, and the operand that they come from."""

    elements: Array
    source: str

    def mark(self, call: Call, dst: Tile, where: Array | None) -> None:
        """Note it of ``dst``, once the result is there."""
        elements = self.elements
        if where is not None:
            elements = elements & _spread(where, elements.shape)
        origin = f"{self.source} by {call.name} at {kernel_location()}"
        dst.forget_written(elements.reshape(dst.shape), origin)


def may_carry(call: Call, dst: Tile, operands: tuple[Any, ...]) -> bool:
    """Whether a call could carry the mark on: it is of that kind, and something is not written."""
    if call.instruction.carries is None or dst.storage.masked:
        return False
    return any(isinstance(op, Tile) and op.storage.unwritten for op in operands)


def operand_values(
    call: Call, operands: tuple[Any, ...], where: Array | None
) -> tuple[list[Any], Carried | None]:
    """The operands' values, and what of the result will count as never written.

    What was never written has the value of an element that was: it decides nothing, and cannot be
    out of an operator's range.

    Raises
    ------
    UnwrittenError : nothing of an operand was written, of what ``where`` leaves of the result; or
        the call is none that carries the mark on.
    """
    values: list[Any] = []
    carried: Carried | None = None
    for role, operand in zip(call.instruction.operands, operands, strict=True):
        if not isinstance(operand, Tile):
            values.append(operand)
            continue
        operand.check_bounds()
        missing = None if operand.storage.masked else operand.unwritten()
        if missing is None:
            values.append(operand.engine_values())
            continue
        held = operand.engine_values(unwritten=True)
        lost = _carried(call, missing.reshape(held.shape), role.name)
        if (
            lost is None
            or missing.all()
            or (lost if where is None else lost[_spread(where, lost.shape)]).all()
        ):
            raise unwritten_error(operand, missing)
        values.append(np.where(missing.reshape(held.shape), _some_written(held, missing), held))
        if carried is None:
            carried = Carried(lost, repr(operand))
        else:
            carried = carried._replace(elements=carried.elements | lost)
    return values, carried


def _carried(call: Call, missing: Array, name: str) -> Array | None:
    carries = call.instruction.carries
    return None if carries is None else carries(call, missing, name)


def _some_written(held: Array, missing: Array) -> Any:
    return held.reshape(-1)[np.argmin(missing.reshape(-1))]


def _spread(where: Array, shape: Shape) -> Array:
    return where.reshape(shape) if where.size == math.prod(shape) else np.broadcast_to(where, shape)
