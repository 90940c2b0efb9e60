"""Instructions under a mask that is not a box, by the dependences of their results.

The masked-out elements are mixed with the others, and may hold anything: values outside a
function's range, or unwritten ones. No result depends on them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from difftest.simulator.core import Core, current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.record import (
    DST,
    CheckedCall,
    DependenceClass,
    MaskedValues,
    OperandKind,
    Role,
)
from difftest.simulator.instructions.values import as_float
from difftest.simulator.lifted import is_array, made_like, over
from difftest.simulator.pattern import Shape, with_free_axes

NEUTRAL: dict[str, Any] = {
    "add": -0.0,
    "multiply": 1.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "logical_and": 1.0,
    "logical_or": 0.0,
    "logical_xor": 0.0,
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
}
"""The neutral element of a reduction with an operator, which does not even change a zero's sign."""


def meaning_by_dependence(inner: Array, call: CheckedCall, *values: Any) -> Any:
    """Return the results of a meaning under a mask over the instruction's iterations."""
    reach = call.instruction.reach(call)
    compute = {DependenceClass.AXES: by_axes, DependenceClass.ROW: by_row}.get(
        reach, by_element
    )
    return compute(call, list(values), inner)


def operand_mask(role: Role, shape: Shape, inner: Array) -> Array:
    """Return the elements of an operand that a mask leaves, in the operand's shape."""
    if not _per_row(role) and math.prod(shape) == inner.size:
        return inner.reshape(shape)
    spread = with_free_axes(shape, inner.ndim)
    repeats = len(spread) == inner.ndim and not _per_row(role)
    axes = [
        k for k in range(1, inner.ndim) if not repeats or spread[k] != inner.shape[k]
    ]
    kept: Array = np.any(inner, axis=tuple(axes), keepdims=True)
    return (
        np.broadcast_to(kept, spread).reshape(shape) if repeats else over(shape, kept)
    )


def _per_row(role: Role) -> bool:
    """Return whether a mask leaves out whole partitions of an operand, not single elements."""
    return role.whole_rows or role.takes in (
        OperandKind.VECTOR,
        OperandKind.VECTOR_OR_NUMBER,
    )


# -- element by element ----------------------------------------------------------------------------


def by_element(call: CheckedCall, values: list[Any], inner: Array) -> Any:
    """Run the meaning with each masked-out element replaced by a chosen one.

    This is the first chosen element in its row, or in the first row that has one.
    """
    chosen = inner.reshape(len(inner), -1)
    some = chosen.any(axis=1)
    rows = np.where(some, np.arange(len(some)), some.argmax())
    columns = chosen.argmax(axis=1)[rows]
    operands = []
    for role, held in zip((*call.instruction.operands, DST), values, strict=False):
        if is_array(held):
            if _per_row(role):
                held = held[rows]
            else:
                lines = over(inner.shape, held).reshape(chosen.shape)
                lines = np.where(chosen, lines, lines[rows, columns][:, None])
                held = lines.reshape(inner.shape)
        operands.append(held)
    return call.instruction.meaning(call, *operands)


# -- along axes ------------------------------------------------------------------------------------


def by_axes(call: CheckedCall, values: list[Any], inner: Array) -> Any:
    """Run a reduction with masked-out elements replaced by the operator's identity."""
    op: AluOp = call["op"]
    data: Array = values[0]
    if data.dtype == np.bool_ and op.bitvec:
        data = data.astype(np.uint8)
    if not op.bitvec:
        data = as_float(data)
    return call.instruction.meaning(call, left_by_mask(call, data, inner))


def left_by_mask(call: CheckedCall, data: Array, inner: Array) -> Array:
    """Return the data of a reduction with neutral elements in place of masked-out ones."""
    op = call["op"].name
    if op == "subtract":
        assert call.instruction.reduced is not None
        return first_to_front(data, inner, call.instruction.reduced(call))
    return np.where(inner, data, np.full_like(data, np.array(NEUTRAL[op])))


def first_to_front(values: Array, inner: Array, axes: tuple[int, ...]) -> Array:
    """Move the unmasked elements of each lane to its front, in order, and fill up with 0.

    A difference begins with the first element.
    """
    lead = [axis for axis in range(values.ndim) if axis not in axes]
    order = (*lead, *axes)
    shape = tuple(values.shape[axis] for axis in order)
    kept = (
        np.where(inner, values, 0)
        .transpose(order)
        .reshape(-1, math.prod(shape[len(lead) :]))
    )
    left_out = ~inner.transpose(order).reshape(kept.shape)
    lanes = np.take_along_axis(
        kept, np.argsort(left_out, axis=1, kind="stable"), axis=1
    )
    moved: Array = lanes.reshape(shape).transpose(*np.argsort(order))
    return moved


# -- row by row ------------------------------------------------------------------------------------


def by_row(call: CheckedCall, values: list[Any], inner: Array) -> Any:
    """Run the meaning once for each set of partitions with equal masks.

    Masked-out elements are removed from their row: the instruction gets a shorter row.

    Raises
    ------
    NkiError : a rule of the record does not hold for the shorter row.
    """
    flat = inner.reshape(len(inner), -1)
    reduced = call.instruction.reduced
    wide = flat.shape[1] if reduced is None or not reduced(call) else None
    patterns, number = np.unique(flat, axis=0, return_inverse=True)
    results: list[Any] = []
    for k, kept in enumerate(patterns):
        if not kept.any():
            continue
        rows = np.flatnonzero(number.reshape(-1) == k)
        places = np.flatnonzero(kept)
        short = _shortened(call, len(rows), places, flat.shape[1])
        reduces = len(call.instruction.destinations) > 1
        with registers_of(current(), rows if reduces else None):
            outputs = call.instruction.meaning(
                short, *_short_rows(call, values, rows, places, flat.shape)
            )
        if type(outputs) is not tuple:
            outputs = (outputs,)
        _gather(results, outputs, rows, places, wide)
    finished = [_shaped(array, at, call, flat) for at, array in enumerate(results)]
    if len(finished) > 1:
        return tuple(finished)
    return finished[0]


def _short_rows(
    call: CheckedCall, values: list[Any], rows: Array, places: Array, shape: Shape
) -> list[Any]:
    """Return the operands' values in some rows, and there only at these places."""
    partitions, columns = shape
    short = []
    for role, held in zip(call.instruction.operands, values, strict=True):
        if is_array(held):
            held = held.reshape(partitions, -1)[rows]
            if not _per_row(role) and held.shape[1] == columns:
                held = held[:, places]
        short.append(held)
    return short


def _shortened(
    call: CheckedCall, partitions: int, places: Array, columns: int
) -> CheckedCall:
    """Return the call on rows with only these places."""

    def short(described: Any, *, whole: bool = False) -> Any:
        if not isinstance(described, Descriptor):
            return described
        free = described.shape[1:]
        if not whole and 1 != described.free_size == columns:
            free = (len(places),)
        return described._replace(shape=(partitions, *free))

    operands = {
        role.name: short(call.operands[role.name], whole=role.whole_rows)
        for role in call.instruction.operands
    }
    destinations = {name: short(value) for name, value in call.destinations.items()}
    subcall = replace(call, operands=operands, destinations=destinations, places=places)
    for rule in call.instruction.rules:
        rule(subcall)
    subcall.result = call.instruction.result(subcall)
    return subcall


def _gather(
    results: list[Any],
    outputs: tuple[Any, ...],
    rows: Array,
    places: Array,
    wide: int | None,
) -> None:
    """Store the results of some rows among the results of all rows.

    ``wide`` is the first result's number of elements a row. None means that its elements are not at
    the data's places.
    """
    partitions = current().machine.partitions
    for at, values in enumerate(outputs):
        if at == len(results):
            results.append(None)
        if values is None:
            continue
        short = values.reshape(len(rows), -1)
        columns = short.shape[1] if at or wide is None else wide
        if results[at] is None:
            results[at] = made_like(short, (partitions, columns))
        if at or wide is None:
            results[at][rows] = short
        else:
            results[at][rows[:, None], places] = short


def _shaped(values: Any, at: int, call: CheckedCall, flat: Array) -> Any:
    """Return results in the first destination's shape; for another one, the computed rows."""
    if values is None:
        return None
    values = values[: len(flat)]
    if at == 0:
        return values.reshape(call.result.shape)
    mask = np.broadcast_to(np.any(flat, axis=1)[:, None], values.shape)
    return MaskedValues(values, mask)


# -- the engines' registers ------------------------------------------------------------------------


@contextlib.contextmanager
def registers_of(core: Core, rows: Array | None) -> Iterator[None]:
    """Reorder the registers within the block: these partitions' registers come first."""
    if rows is None:
        yield
        return
    registers = core.registers
    order = [*rows, *np.delete(np.arange(core.machine.partitions), rows)]
    kinds = registers.accumulators, registers.exact
    registers.accumulators, registers.exact = (
        {engine: held[order] for engine, held in whole.items()} for whole in kinds
    )
    try:
        yield
    finally:
        for whole, part in zip(
            kinds, (registers.accumulators, registers.exact), strict=True
        ):
            for engine, shown in part.items():
                # reset for the first time: the other registers hold the reset value
                held = whole[engine] if engine in whole else shown[[-1] * len(shown)]
                whole[engine] = held = held.copy()
                held[rows] = shown[: len(rows)]
        registers.accumulators, registers.exact = kinds
