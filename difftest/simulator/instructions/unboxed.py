"""What an instruction computes under a mask that is not a box, by what its results follow from.

The elements that such a mask leaves out lie beside those that count, and may hold anything: values
outside a function's range, or nothing that was ever written. Nothing is read of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from difftest.simulator.core import Core, current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.issued import Issue
from difftest.simulator.instructions.record import Call, Masked, Takes
from difftest.simulator.instructions.values import as_float
from difftest.simulator.pattern import Shape
from difftest.simulator.tile import Tile

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
"""What a reduction with an operator does not notice, the sign of a zero included."""


# -- element by element ----------------------------------------------------------------------------


def by_element(call: Call, cut: Issue, axes: Mapping[str, tuple[int, ...]], inner: Array) -> Any:
    """The meaning where each element that is left out computes what a chosen one does."""
    rows, columns = _stand_ins(inner)
    values = []
    for role, operand in zip(call.instruction.operands, cut.operands, strict=True):
        if not isinstance(operand, Tile):
            values.append(operand)
        elif role.name in axes:
            there = inner.transpose(axes[role.name])
            values.append(_filled(operand.engine_values(there).reshape(there.shape), there))
        elif role.takes in (Takes.VECTOR, Takes.VECTOR_OR_NUMBER) or role.whole_rows:
            left = np.any(inner.reshape(len(inner), -1), axis=1)
            kept = np.broadcast_to(left[:, None], _flat(operand))
            values.append(operand.engine_values(kept)[rows[:, 0]])
        else:
            values.append(_stood_in(operand, inner, rows, columns))
    if call.reads_dst:
        values.append(_stood_in(cut.dst, inner, rows, columns))
    return call.instruction.meaning(call, *values)


def _flat(tile: Tile) -> Shape:
    shape = tile.tile_shape()
    return (shape[0], tile.size // shape[0])


def _filled(values: Array, kept: Array) -> Array:
    """Values of which the others are the first that counts."""
    result = values.copy()
    result[~kept] = values[tuple(place[0] for place in np.nonzero(kept))]
    return result


def _stand_ins(inner: Array) -> tuple[Array, Array]:
    """For each element [P, N] the row and the column of the one that stands for it.

    Itself if it counts, else the first that does in its row, else in the first row that has one.
    """
    flat = inner.reshape(len(inner), -1)
    some = flat.any(axis=1)
    first = int(np.flatnonzero(some)[0])
    rows = np.where(some, np.arange(len(flat)), first)
    columns = np.where(flat, np.arange(flat.shape[1]), flat.argmax(axis=1)[rows][:, None])
    return np.broadcast_to(rows[:, None], flat.shape), columns


def _stood_in(tile: Tile, inner: Array, rows: Array, columns: Array) -> Array:
    """A tile's values in the instruction's shape, with stand-ins for what is left out."""
    shape = tile.tile_shape() if not tile.in_hbm else tile.shape
    if tile.size == inner.size:
        values = tile.engine_values(inner).reshape(inner.shape)
    else:  # it repeats: partitions align first, free axes from the last
        spread = (shape[0], *(1,) * (inner.ndim - len(shape)), *shape[1:])
        repeated = tuple(k for k, size in enumerate(spread) if size != inner.shape[k])
        kept = np.any(inner, axis=repeated, keepdims=True)
        values = np.broadcast_to(tile.engine_values(kept).reshape(spread), inner.shape)
    return values.reshape(rows.shape)[rows, columns].reshape(inner.shape)


# -- along axes ------------------------------------------------------------------------------------


def by_axes(call: Call, operands: tuple[Any, ...], inner: Array) -> Any:
    """A reduction to which each element that is left out is the operator's identity."""
    assert call.instruction.reduced is not None
    op: AluOp = call["op"]
    data: Tile = operands[0]
    values = data.engine_values(inner)
    values = values.astype(np.uint8) if values.dtype == np.bool_ and op.bitvec else values
    values = np.array(values if op.bitvec else as_float(values))
    if op.name == "subtract":
        values = first_to_front(values, inner, call.instruction.reduced(call))
    else:
        values[~inner] = np.array(NEUTRAL[op.name]).astype(values.dtype)
    return call.instruction.meaning(call, values)


def first_to_front(values: Array, inner: Array, axes: tuple[int, ...]) -> Array:
    """The first element that counts of each lane at its front, and those left out 0.

    A difference begins with the first.
    """
    lead = [axis for axis in range(values.ndim) if axis not in axes]
    order = (*lead, *axes)
    shape = tuple(values.shape[axis] for axis in order)
    lanes = values.transpose(order).reshape(-1, int(np.prod(shape[len(lead) :]))).copy()
    kept = inner.transpose(order).reshape(lanes.shape)
    lanes[~kept] = 0.0
    every, first = np.arange(len(lanes)), kept.argmax(axis=1)
    held = lanes[every, first]
    lanes[every, first] = lanes[:, 0]
    lanes[:, 0] = held
    moved: Array = lanes.reshape(shape).transpose(np.argsort(order))
    return moved


# -- row by row ------------------------------------------------------------------------------------


def by_row(call: Call, operands: tuple[Any, ...], inner: Array) -> Any:
    """The meaning for each set of partitions in which the same elements count.

    What is left out of a row is not there: the instruction sees a shorter one.

    Raises
    ------
    NkiError : a rule of the record does not hold for the shorter row.
    """
    flat = inner.reshape(len(inner), -1)
    values = [_rows_of(call, k, operand, flat) for k, operand in enumerate(operands)]
    reduced = call.instruction.reduced
    wide = flat.shape[1] if reduced is None or not reduced(call) else None
    patterns, number = np.unique(flat, axis=0, return_inverse=True)
    results: list[Any] = []
    for k, kept in enumerate(patterns):
        if not kept.any():
            continue
        rows, places = np.flatnonzero(number.reshape(-1) == k), np.flatnonzero(kept)
        short = _shortened(call, len(rows), places, flat.shape[1])
        given = [
            value[rows][:, places] if is_data else value[rows] if is_rows else value
            for value, is_data, is_rows in values
        ]
        with registers_of(current(), rows if len(call.instruction.destinations) > 1 else None):
            made = call.instruction.meaning(short, *given)
        _gather(results, made if type(made) is tuple else (made,), rows, places, wide)
    finished = [_shaped(one, at, call, flat) for at, one in enumerate(results)]
    return tuple(finished) if len(finished) > 1 else finished[0]


def _rows_of(call: Call, number: int, operand: Any, flat: Array) -> tuple[Any, bool, bool]:
    """An operand's values as rows, whether they are data that the mask names, or one row each."""
    role = call.instruction.operands[number]
    if not isinstance(operand, Tile):
        return operand, False, False
    whole = role.whole_rows or role.takes in (Takes.VECTOR, Takes.VECTOR_OR_NUMBER)
    is_data = not whole and operand.size == flat.size
    kept = flat if is_data else np.broadcast_to(np.any(flat, 1)[:, None], _flat(operand))
    values = operand.engine_values(kept)
    return values.reshape(len(flat), -1), is_data, not is_data


def _shortened(call: Call, partitions: int, places: Array, columns: int) -> Call:
    """The call on rows of which only these places are left."""

    def short(described: Any) -> Any:
        if not isinstance(described, Descriptor):
            return described
        shape: Shape = (partitions, *described.shape[1:])
        if described.free_size == columns and described.free_size != 1:
            shape = (partitions, len(places))
        return described._replace(shape=shape)

    operands = {
        role.name: (
            call.operands[role.name]._replace(
                shape=(partitions, *call.operands[role.name].shape[1:])
            )
            if role.whole_rows and isinstance(call.operands[role.name], Descriptor)
            else short(call.operands[role.name])
        )
        for role in call.instruction.operands
    }
    destinations = {name: short(value) for name, value in call.destinations.items()}
    made = replace(call, operands=operands, destinations=destinations, places=places)
    for rule in call.instruction.rules:
        rule(made)
    made.result = call.instruction.result(made)
    return made


def _gather(
    results: list[Any], made: tuple[Any, ...], rows: Array, places: Array, wide: int | None
) -> None:
    """Put the results of some rows to those of all.

    ``wide`` is how many elements the first has in a row, None if they do not stand where the data
    do.
    """
    partitions = current().machine.partitions
    for at, values in enumerate(made):
        if at == len(results):
            results.append(None)
        if values is None:
            continue
        short = np.asarray(values).reshape(len(rows), -1)
        columns = short.shape[1] if at or wide is None else wide
        if results[at] is None:
            results[at] = np.zeros((partitions, columns), short.dtype)
        if at or wide is None:
            results[at][rows] = short
        else:
            results[at][rows[:, None], places] = short


def _shaped(values: Any, at: int, call: Call, flat: Array) -> Any:
    """Results in the first destination's shape; of a further one the rows that were made."""
    if values is None:
        return None
    values = values[: len(flat)]
    if at == 0:
        return values.reshape(call.result.shape)
    made = np.broadcast_to(np.any(flat, axis=1)[:, None], values.shape)
    return Masked(values, made)


# -- the engines' registers ------------------------------------------------------------------------


@contextlib.contextmanager
def registers_of(core: Core, rows: Array | None) -> Iterator[None]:
    """While it lasts the registers are those of these partitions, the first of them first."""
    if rows is None:
        yield
        return
    whole = core.accumulators
    core.accumulators = {
        engine: np.concatenate([held[rows], np.delete(held, rows, axis=0)])
        for engine, held in whole.items()
    }
    try:
        yield
    finally:
        for engine, shown in core.accumulators.items():
            held = whole.get(engine)
            if held is None:  # reset for the first time: the others hold what a reset gives
                held = np.full_like(shown, shown[-1])
            held = held.copy()
            held[rows] = shown[: len(rows)]
            whole[engine] = held
        core.accumulators = whole
