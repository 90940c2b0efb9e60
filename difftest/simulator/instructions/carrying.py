"""Rules that records name as ``carries``: which elements of a result follow from an operand's.

Each tells which elements of the first destination follow from some of an operand's, which are not
defined (:mod:`difftest.simulator.instructions.definedness`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, Array
from difftest.simulator.instructions.record import Call, Carries, Reach
from difftest.simulator.pattern import Shape

REDUCE_INIT = "reduce_init"
"""The operand from which registers are loaded: of the first destination nothing follows from it."""


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


def spread(where: Array, shape: Shape) -> Array:
    """A mask in the shape of what it is of, which it may lack axes of."""
    return where.reshape(shape) if where.size == math.prod(shape) else np.broadcast_to(where, shape)


def by_row(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """Of an instruction each element of whose result follows from all of its partition."""
    return over_rows(call.result.shape, partitions_of(missing))


def over_rows(shape: Shape, lost: Array) -> Array:
    """Whole partitions of a result."""
    return np.broadcast_to(lost.reshape(-1, *(1,) * (len(shape) - 1)), shape)


def partitions_of(missing: Array) -> Array:
    """The partitions of an operand that miss something."""
    rows: Array = np.any(missing.reshape(len(missing), -1), axis=1)
    return rows


def by_axes(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """Of a reduction: where something of what is reduced was not written."""
    assert call.instruction.reduced is not None
    sums: Array = np.any(missing, axis=call.instruction.reduced(call))
    return sums.reshape(call.result.shape)


def from_there_on(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """Of a scan along the free axes: an element and all that come after it in its partition."""
    shape = call.result.shape
    if missing.size != math.prod(shape):
        return by_row(call, missing, name, values)
    lines = missing.reshape(len(missing), -1)
    return np.logical_or.accumulate(lines, axis=1).reshape(shape)


def holds(call: Call, predicate: Array) -> Array:
    """Where a predicate is true, or not if the call reverses it."""
    chosen: Array = predicate == 0 if call["reverse_pred"] else predicate != 0
    return chosen


def of_the_chosen(condition: int, chosen: Callable[[Call, Array], Array]) -> Carries:
    """Of a selection: what it chooses of either side; all for which nobody knows which side is.

    ``condition`` is the operand's place, of which ``chosen`` says where the first other one is.
    """

    def rule(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
        shape, roles = call.result.shape, [role.name for role in call.instruction.operands]
        lost, first = over(shape, missing), over(shape, chosen(call, values[condition]))
        if name == roles.pop(condition):
            return lost
        return lost & (first if name == roles[0] else ~first)

    return rule


def by_reach(call: Call, missing: Array, name: str, values: list[Any]) -> Array:
    """By the record's reach, where it has no other rule."""
    reach, shape = call.instruction.reach(call), call.result.shape
    if reach is Reach.AXES:
        return by_axes(call, missing, name, values)
    if missing.size == math.prod(shape) and reach is Reach.ELEMENT:
        return missing.reshape(shape)
    if len(missing) == shape[0]:
        return by_row(call, missing, name, values)
    return np.full(shape, missing.any())
