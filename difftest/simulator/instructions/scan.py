"""Vector Engine: tensor_tensor_scan, bn_stats and bn_aggr, dropout (AWS ``nki.isa`` v2.26.0)."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT32, Array
from difftest.simulator.errors import KernelError, LimitError, ShapeError
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.elementwise import (
    need_vector_ops,
    not_both_in_psum,
    operand_values,
)
from difftest.simulator.instructions.operands import (
    Scalar,
    as_float,
    compute_view,
    same_partitions,
    write,
)
from difftest.simulator.instructions.table import instruction
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

BN_STATS_FIELDS = 6
"""Count, mean and variance * count of the even elements, then of the odd ones."""
BN_TUPLE = 3
BN_AGGR_FIELDS = 2
"""Mean and variance."""


@instruction("tensor_tensor_scan", Engine.VECTOR)
def tensor_tensor_scan(
    dst: Tile,
    data0: Tile,
    data1: Tile,
    initial: Tile | Scalar,
    ops: tuple[AluOp, AluOp],
    reverse: tuple[bool, bool],
) -> None:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""
    not_both_in_psum("tensor_tensor_scan", data0=data0, data1=data1)
    same_partitions("tensor_tensor_scan", data0=data0, data1=data1)
    for op in ops:
        if op.bitvec or op.unary:
            raise KernelError(
                "tensor_tensor_scan takes binary arithmetic operators", received=f"op={op.name}"
            )
    need_vector_ops("tensor_tensor_scan", *ops)
    if data0.size != data1.size:
        raise ShapeError(
            "tensor_tensor_scan takes operands of one shape",
            received=f"data0 {list(data0.shape)}, data1 {list(data1.shape)}",
        )
    first = as_float(compute_view(data0))
    rows = first.reshape(first.shape[0], -1)
    others = as_float(compute_view(data1)).reshape(rows.shape)
    start = as_float(operand_values(initial, 2, FLOAT32))
    state = np.broadcast_to(start, (rows.shape[0], 1))[:, 0]
    result = np.empty(rows.shape, dtype=np.float32)
    with np.errstate(all="ignore"):
        for i in range(rows.shape[1]):
            pair = (state, rows[:, i]) if reverse[0] else (rows[:, i], state)
            partial = ops[0].compute(*pair)
            pair = (others[:, i], partial) if reverse[1] else (partial, others[:, i])
            state = ops[1].compute(*pair)
            result[:, i] = state
    write(dst, result.reshape(dst.shape))
    vectors = (initial,) if isinstance(initial, Tile) else ()
    current().emit(
        "tensor_tensor_scan",
        Engine.VECTOR,
        (dst,),
        (data0, data1, *vectors),
        op="+".join(op.name for op in ops),
    )


def _moments(values: Array) -> Array:
    """(count, mean, variance * count) of each row, float32."""
    count = values.shape[1]
    mean = values.mean(axis=1, dtype=np.float32) if count else np.zeros(len(values), np.float32)
    spread = ((values - mean[:, None]) ** 2).sum(axis=1, dtype=np.float32)
    return np.stack([np.full_like(mean, count), mean, spread], axis=1)


@instruction("bn_stats", Engine.VECTOR)
def bn_stats(dst: Tile, data: Tile) -> None:
    """Count, mean and variance * count of each partition's even, then odd, elements."""
    limit = current().machine.bn_stats_fmax
    values = as_float(compute_view(data))
    rows = values.reshape(values.shape[0], -1)
    if rows.shape[1] > limit:
        raise LimitError(
            f"bn_stats takes at most {limit} elements a partition",
            received=f"{data!r}: {rows.shape[1]}",
            limit=f"{limit} (nl.tile_size.bn_stats_fmax)",
            remedy="call it on slices and aggregate with bn_aggr",
        )
    write(dst, np.concatenate([_moments(rows[:, 0::2]), _moments(rows[:, 1::2])], axis=1))
    current().emit("bn_stats", Engine.VECTOR, (dst,), (data,))


@instruction("bn_aggr", Engine.VECTOR)
def bn_aggr(dst: Tile, data: Tile) -> None:
    """Mean and variance of each partition from bn_stats' tuples."""
    values = as_float(compute_view(data))
    rows = values.reshape(values.shape[0], -1)
    if rows.shape[1] % BN_TUPLE:
        raise ShapeError(
            "bn_aggr takes (count, mean, variance * count) tuples",
            received=f"{data!r}: {rows.shape[1]} elements a partition",
            limit=f"a multiple of {BN_TUPLE}",
        )
    count, mean, spread = (rows[:, k::BN_TUPLE] for k in range(BN_TUPLE))
    total = count.sum(axis=1, keepdims=True)
    centre = (count * mean).sum(axis=1, keepdims=True) / total
    variance = (spread + count * (mean - centre) ** 2).sum(axis=1, keepdims=True) / total
    write(dst, np.concatenate([centre, variance], axis=1))
    current().emit("bn_aggr", Engine.VECTOR, (dst,), (data,))


@instruction("dropout", Engine.VECTOR)
def dropout(dst: Tile, data: Tile, probability: Tile | Scalar, *, where: Any = None) -> None:
    """``dst = data`` with elements replaced by 0 at the given probability (a launch's own seed)."""
    values = compute_view(data)
    chance = operand_values(probability, values.ndim, FLOAT32)
    keep = current().random.random(values.shape, dtype=np.float32) >= chance
    write(dst, np.where(keep, values, values.dtype.type(0)), where)
    vectors = (probability,) if isinstance(probability, Tile) else ()
    current().emit("dropout", Engine.VECTOR, (dst,), (data, *vectors))
