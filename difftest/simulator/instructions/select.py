"""Selections: affine_select, range_select, select_reduce, where (AWS ``nki.isa`` v2.26.0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import DTYPES, FLOAT32, TFLOAT32, Array
from difftest.simulator.errors import KernelError, NotModelledError
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.elementwise import (
    WIDE_INTEGERS,
    no_gpsimd_in_psum,
    not_both_in_psum,
    operand_values,
)
from difftest.simulator.instructions.operands import (
    Scalar,
    as_float,
    compute_view,
    need_column,
    need_dtype,
    need_float,
    same_elements,
    write,
)
from difftest.simulator.instructions.reduce import Accumulate, accumulate
from difftest.simulator.instructions.table import instruction
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

RANGE_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
PREDICATE_DTYPES = tuple(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16", "bool"))
SELECTED_DTYPES = tuple(d for d in DTYPES if d != TFLOAT32 and d not in WIDE_INTEGERS)
_EXACT_INDEX = 2**24
"""range_select compares indices in float32, exact up to here."""


@instruction("affine_select", Engine.GPSIMD)
def affine_select(
    dst: Tile, data: Tile, predicate: Array, on_false: Scalar, *, where: Any = None
) -> None:
    """``dst = data`` where an affine predicate holds, else a float32 constant."""
    no_gpsimd_in_psum(Engine.GPSIMD, "affine_select", on_true_tile=data)
    values = as_float(compute_view(data))
    write(dst, np.where(predicate, values, np.float32(on_false)), where)
    current().emit("affine_select", Engine.GPSIMD, (dst,), (data,))


@instruction("range_select", Engine.VECTOR)
def range_select(
    dst: Tile,
    data: Tile,
    comparisons: tuple[AluOp, AluOp],
    bounds: tuple[Tile, Tile],
    *,
    start: int = 0,
    on_false: float,
    command: Accumulate = Accumulate.IDLE,
    reduce_op: AluOp,
    reduce_into: Tile | None = None,
    where: Any = None,
) -> None:
    """``dst = data`` where the free index lies in a range given by tiles; NeuronCore-v3 on."""
    machine = current().machine
    if machine.nc_version < 3:
        raise KernelError(
            "range_select needs NeuronCore-v3", received=machine.name, limit="trn2 and later"
        )
    need_float(data, "on_true_tile", "range_select")
    for name, bound in zip(("bound0", "bound1"), bounds, strict=True):
        need_dtype(bound, name, "range_select", (FLOAT32,))
    for op in comparisons:
        if op.name not in RANGE_COMPARISONS:
            raise KernelError(
                "range_select compares",
                received=f"comp_op={op.name}",
                limit=", ".join(RANGE_COMPARISONS),
            )
    if on_false != float(np.finfo(np.float32).min):
        raise KernelError(
            "range_select's on_false_value is the smallest float32",
            received=f"{on_false!r}",
            limit="nl.fp32.min",
        )
    _need_maximum(reduce_op, "range_select")
    if reduce_into is not None:
        need_column(reduce_into, "reduce_res", "range_select", data)
    values = as_float(compute_view(data))
    count = values[0].size
    if start + count > _EXACT_INDEX:
        raise KernelError(
            "range_select compares indices in float32",
            received=f"indices up to {start + count - 1}",
            limit=f"{_EXACT_INDEX}",
        )
    index = (start + np.arange(count, dtype=np.float32)).reshape((1, *values.shape[1:]))
    low, high = (operand_values(bound, values.ndim, FLOAT32) for bound in bounds)
    compute: tuple[Callable[..., Any], ...] = tuple(op.compute for op in comparisons)
    chosen = compute[0](index, low) & compute[1](index, high)
    result = np.where(chosen, values, np.float32(on_false))
    write(dst, result, where)
    _reduce(result, reduce_op, command, reduce_into)
    writes = (dst,) if reduce_into is None else (dst, reduce_into)
    current().emit("range_select", Engine.VECTOR, writes, (data, *bounds))


def _need_maximum(op: AluOp, where: str) -> None:
    if op.name != "maximum":
        raise NotModelledError(
            f"{where} reduces with max only", received=f"reduce_op={op.name}", limit="nl.max"
        )


def _reduce(values: Array, op: AluOp, command: Accumulate, into: Tile | None) -> None:
    if into is not None and command is Accumulate.IDLE:
        command = Accumulate.RESET_REDUCE
    if command is not Accumulate.IDLE:
        accumulate("vector", values, op, command, into)


@instruction("select_reduce", Engine.VECTOR)
def select_reduce(
    dst: Tile,
    predicate: Tile,
    on_true: Tile,
    on_false: Tile | Scalar,
    *,
    reverse: bool = False,
    command: Accumulate = Accumulate.IDLE,
    reduce_op: AluOp,
    reduce_into: Tile | None = None,
    where: Any = None,
) -> None:
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
    not_both_in_psum("select_reduce", on_true=on_true, predicate=predicate)
    need_dtype(predicate, "predicate", "select_reduce", PREDICATE_DTYPES)
    need_dtype(on_true, "on_true", "select_reduce", SELECTED_DTYPES)
    same_elements("select_reduce", dst=dst, predicate=predicate, on_true=on_true)
    _need_maximum(reduce_op, "select_reduce")
    if reduce_into is not None:
        need_column(reduce_into, "reduce_res", "select_reduce", on_true)
        need_float(reduce_into, "reduce_res", "select_reduce")
    values = as_float(compute_view(on_true))
    chosen = (compute_view(predicate) != 0).reshape(values.shape)
    if reverse:
        chosen = ~chosen
    other = as_float(operand_values(on_false, values.ndim, FLOAT32))
    result = np.where(chosen, values, other)
    write(dst, result, where)
    if command is not Accumulate.IDLE:
        accumulate("vector", result, reduce_op, command, reduce_into)
    writes = (dst,) if reduce_into is None else (dst, reduce_into)
    reads = (predicate, on_true) + ((on_false,) if isinstance(on_false, Tile) else ())
    current().emit("select_reduce", Engine.VECTOR, writes, reads)


@instruction("where", Engine.VECTOR)
def select_where(
    dst: Tile, condition: Tile, x: Tile | Scalar, y: Tile | Scalar, *, where: Any = None
) -> None:
    """``dst = condition ? x : y``, element by element (``nl.where``)."""
    chosen = compute_view(condition) != 0
    sides = [compute_view(v) if isinstance(v, Tile) else np.asarray(v, FLOAT32) for v in (x, y)]
    if not all(side.dtype == dst.dtype for side in sides):
        sides = [as_float(side) for side in sides]
    write(dst, np.where(chosen, sides[0], sides[1]), where)
    reads = (condition, *(v for v in (x, y) if isinstance(v, Tile)))
    current().emit("where", Engine.VECTOR, (dst,), reads)
