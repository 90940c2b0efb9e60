"""Vector Engine: tensor_tensor_scan, bn_stats and bn_aggr, dropout (AWS ``nki.isa`` v2.26.0)."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import FLOAT32, FLOATS, Array, is_integer, name_of
from difftest.simulator.errors import DtypeError, KernelError, LimitError, ShapeError
from difftest.simulator.instructions.elementwise import like
from difftest.simulator.instructions.promotion import promote_dtypes
from difftest.simulator.instructions.record import Call, Reach, Result, Role, Takes, instruction
from difftest.simulator.instructions.rules import need_vector_ops, not_both_in_psum, same_elements
from difftest.simulator.instructions.values import as_float, column, rows
from difftest.simulator.lifted import as_constant, is_array, made_like
from difftest.simulator.trace import Engine

BN_STATS_FIELDS = 6
"""Count, mean and variance * count of the even elements, then of the odd ones."""
BN_TUPLE = 3
BN_AGGR_FIELDS = 2
"""Mean and variance."""


# -- tensor_tensor_scan ----------------------------------------------------------------------------


def _scan_operators(call: Call) -> None:
    ops = (call["op0"], call["op1"])
    for op in ops:
        if op.bitvec or op.unary:
            raise KernelError(
                "tensor_tensor_scan takes binary arithmetic operators",
                happened=f"tensor_tensor_scan got the operator {op.name}",
                received=f"op={op.name}",
            )
    need_vector_ops(call, *ops)


def _scanned(call: Call) -> Result:
    data: Descriptor = call["data0"]
    return Result(data.shape, call.wanted_dtype(promote_dtypes(data.dtype, call["data1"].dtype)))


@instruction(
    Engine.VECTOR,
    operands=(
        Role(name="data0"),
        Role(name="data1"),
        Role(name="initial", takes=Takes.VECTOR_OR_NUMBER),
    ),
    options=("op0", "op1", "reverse0", "reverse1"),
    rules=(
        not_both_in_psum("data0", "data1"),
        same_elements("data0", "data1"),
        _scan_operators,
    ),
    result=_scanned,
    reduced=lambda call: (),
    reach=Reach.ROW,
    facts=lambda call: {"op": f"{call['op0'].name}+{call['op1'].name}"},
)
def tensor_tensor_scan(call: Call, data0: Array, data1: Array, initial: Any) -> Array:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""
    lines, others = as_float(rows(data0)), as_float(rows(data1))
    start = as_float(column(initial, 2)) if is_array(initial) else as_constant(initial)
    state = np.broadcast_to(start, (lines.shape[0], 1))[:, 0]
    result: Array = made_like(lines, lines.shape)
    op0, op1 = call["op0"].compute, call["op1"].compute
    for i in range(lines.shape[1]):
        here, other = lines[:, i], others[:, i]
        partial = op0(state, here) if call["reverse0"] else op0(here, state)
        state = op1(other, partial) if call["reverse1"] else op1(partial, other)
        result[:, i] = state
    return result.reshape(call.result.shape)


# -- bn_stats and bn_aggr --------------------------------------------------------------------------


def free_axes(call: Call) -> tuple[int, ...]:
    """All free axes of the first operand: what a result of one row a partition lacks."""
    first: Descriptor = next(iter(call.tiles.values()))
    return tuple(range(1, len(first.shape)))


def _bn_length(call: Call) -> None:
    limit, data = call.machine.bn_stats_fmax, call["data"]
    if data.free_size > limit:
        raise LimitError(
            f"bn_stats takes at most {limit} elements a partition",
            happened=f"bn_stats got {data.free_size} elements a partition",
            received=f"{data!r}: {data.free_size}",
            limit=f"{limit} (nl.tile_size.bn_stats_fmax)",
            remedy="call it on slices and aggregate with bn_aggr",
        )


def _fields(count: int) -> Any:
    return lambda call: Result(
        (call["data"].partitions, count), call.wanted_dtype(call["data"].dtype)
    )


def _moments(values: Array) -> Array:
    """(count, mean, variance * count) of each row, float32."""
    count = values.shape[1]
    mean = values.mean(axis=1, dtype=np.float32) if count else np.zeros(len(values), np.float32)
    spread = np.square(values - mean[:, None]).sum(axis=1, dtype=np.float32)
    return np.stack([np.full_like(mean, count), mean, spread], axis=1)


@instruction(
    Engine.VECTOR,
    operands=(Role(name="data"),),
    rules=(_bn_length,),
    result=_fields(BN_STATS_FIELDS),
    reduced=free_axes,
    reach=Reach.ROW,
)
def bn_stats(call: Call, data: Array) -> Array:
    """Count, mean and variance * count of each partition's even, then odd, elements."""
    lines = as_float(rows(data))
    return np.concatenate([_moments(lines[:, 0::2]), _moments(lines[:, 1::2])], axis=1)


def _bn_tuples(call: Call) -> None:
    data: Descriptor = call["data"]
    if data.free_size % BN_TUPLE:
        raise ShapeError(
            "bn_aggr takes (count, mean, variance * count) tuples",
            happened=f"bn_aggr got {data.free_size} elements a partition",
            received=f"{data!r}: {data.free_size} elements a partition",
            limit=f"a multiple of {BN_TUPLE}",
        )


@instruction(
    Engine.VECTOR,
    operands=(Role(name="data"),),
    rules=(_bn_tuples,),
    result=_fields(BN_AGGR_FIELDS),
    reduced=free_axes,
    reach=Reach.ROW,
)
def bn_aggr(call: Call, data: Array) -> Array:
    """Mean and variance of each partition from bn_stats' tuples."""
    lines = as_float(rows(data))
    count, mean, spread = (lines[:, k::BN_TUPLE] for k in range(BN_TUPLE))
    total = count.sum(axis=1, keepdims=True)
    centre = (count * mean).sum(axis=1, keepdims=True) / total
    variance = (spread + count * np.square(mean - centre)).sum(axis=1, keepdims=True) / total
    return np.concatenate([centre, variance], axis=1)


# -- dropout ---------------------------------------------------------------------------------------


def _keeps_integers(call: Call) -> None:
    data: Descriptor = call["data"]
    wanted = call.wanted_dtype(data.dtype)
    if is_integer(data.dtype) and wanted != data.dtype:
        raise DtypeError(
            "dropout of integers keeps their dtype",
            happened=f"dropout was to cast {name_of(data.dtype)} to {name_of(wanted)}",
            received=f"dtype={wanted} for {data!r}",
        )


def _keeps_its_dtype(call: Call) -> None:
    data, dst = call["data"], call.destinations.get("dst")
    if dst is not None and dst.dtype != data.dtype:
        raise DtypeError(
            "dropout's dst has the dtype of its data",
            happened=f"dropout got {name_of(data.dtype)} for a dst of {name_of(dst.dtype)}",
            received=f"dst {dst!r}, data {data!r}",
        )


def _probability_of_integers(call: Call) -> None:
    data, prob = call["data"], call["prob"]
    if is_integer(data.dtype) and isinstance(prob, Descriptor) and prob.dtype != FLOAT32:
        raise DtypeError(
            "dropout of integers takes prob as a number or a float32 vector",
            happened=f"dropout of integers got prob in {name_of(prob.dtype)}",
            received=f"prob = {prob!r} for {data!r}",
            limit="float32",
            remedy="cast it with nisa.tensor_copy(prob, dtype=nl.float32)",
        )


@instruction(
    Engine.VECTOR,
    operands=(
        Role(name="data"),
        Role(name="prob", takes=Takes.VECTOR_OR_NUMBER, dtypes=FLOATS),
    ),
    rules=(_keeps_integers, _probability_of_integers),
    only={"nki": (_keeps_its_dtype,)},
    result=like("data"),
)
def dropout(call: Call, data: Array, prob: Any) -> Array:
    """``dst = data`` with elements replaced by 0 at the given probability (a launch's own seed).

    It draws one float32 number for each element, in row-major order. Under a mask the elements are
    those of the smallest box that holds it.
    """
    chance = column(prob, data.ndim) if is_array(prob) else FLOAT32.type(prob)
    keep = current().numbers().random(data.shape, dtype=np.float32) >= chance
    return np.where(keep, data, data.dtype.type(0))
