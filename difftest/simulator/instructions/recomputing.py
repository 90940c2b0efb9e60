"""An instruction computed again for other numbers, which leaves no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from difftest.simulator.core import Core
from difftest.simulator.dtypes import BOOL, Array
from difftest.simulator.instructions.observing import see_rounded
from difftest.simulator.instructions.record import Call, Masked
from difftest.simulator.strictness import unheard
from difftest.simulator.tile import Tile

_STAND_INS = (3e38, -3e38)
"""For floats; the largest and the smallest integer of others."""


def changed(
    core: Core,
    call: Call,
    operands: tuple[Any, ...],
    left: dict[int, Array],
    registers: dict[str, Array],
    results: Any,
) -> Array | None:
    """Where the first result differs if what masks left out is something else.

    Parameters
    ----------
    operands : ``dst`` last, if the call reads it.
    left : by their place, which elements that is.
    registers : the reduction registers as they were before.
    """
    first = first_of(results)
    assert first is not None
    differs = np.zeros(first.shape, BOOL)
    with _as_before(core):
        for number in range(len(_STAND_INS)):
            core.accumulators = {name: held.copy() for name, held in registers.items()}
            values = [
                _with_stand_in(operand, left.get(place), number)
                for place, operand in enumerate(operands)
            ]
            other = first_of(call.instruction.meaning(call, *values))
            if other is None or other.shape != first.shape:
                return None
            differs |= (first != other) & ~((first != first) & (other != other))
    return differs


def look_for_rounding(
    core: Core, call: Call, dst: Any, operands: tuple[Any, ...], results: Any
) -> None:
    """Note the integers that an instruction computed in float32, which does not have them.

    Its meaning for the same numbers in float64 says what they are.
    """
    if call.kind.options.get("reduce_cmd") == "reduce":
        return  # the registers have gone on
    values = [
        one.engine_values(unwritten=True).astype(np.float64) if isinstance(one, Tile) else one
        for one in (*operands, *([dst] if call.reads_dst else []))
    ]
    with _as_before(core):
        core.accumulators = {name: held.copy() for name, held in core.accumulators.items()}
        exactly = call.instruction.meaning(call, *values)
    see_rounded(core, call, results, exactly)


def first_of(made: Any) -> Array | None:
    """The first destination's values."""
    first = made[0] if type(made) is tuple else made
    first = first.values if type(first) is Masked else first
    return first if isinstance(first, np.ndarray) else None


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
