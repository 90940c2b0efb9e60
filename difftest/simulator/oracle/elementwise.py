"""Elementwise operators; reductions, scans and statistics, element by element in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import WIDE_INTEGERS
from difftest.simulator.oracle.operators import (
    BITVEC,
    CURVES,
    LOGICAL,
    START,
    UNARY,
    Array,
    activate,
    apply_literal,
    bit_pattern,
    curve,
    to_float32,
    wrapped,
)
from difftest.simulator.oracle.use import (
    LiteralResult,
    LiteralUse,
    accumulate_literal,
    means,
)
from difftest.simulator.trace import Engine

_WRAPPING = ("add", "subtract", "multiply")
_IN_FLOAT32 = ("divide", "fmod", "mod", "power")
"""Operators that compute in float32 for integers too, in the current dialect."""


def _kept_bits(op: str | None, values: Array, use: LiteralUse) -> Array:
    """Keep the low bits of a bitvec operator's result, which is not cast."""
    if op in BITVEC:
        return wrapped(values, use.dtype)
    return values


@means("tensor_tensor")
def tensor_tensor(use: LiteralUse) -> LiteralResult:
    """Return ``data1 <op> data2``.

    On the GpSimd Engine, 32-bit integers are exact and wrap around.
    """
    x = use["data1"]
    y = use["data2"]
    op = str(use.op("op"))
    if x.shape != y.shape and x.size == y.size:
        y = y.reshape(x.shape)
    dtypes = (use.dtype_of("data1"), use.dtype_of("data2"), use.dtype)
    wide = use.call.engine is Engine.GPSIMD and all(
        dtype in WIDE_INTEGERS for dtype in dtypes
    )
    if use.call.into_existing:
        is_exact = op not in BITVEC and op not in _IN_FLOAT32
    else:
        is_exact = op in _WRAPPING
    if wide and is_exact:
        return LiteralResult(wrapped(apply_exactly(op, x, y), use.dtype))
    return LiteralResult(_kept_bits(op, apply_literal(op, x, y), use))


def apply_exactly(op: str, x: Array, y: Array) -> Array:
    """Apply one operator to integers without conversion."""
    x = x.astype(np.int64)
    y = y.astype(np.int64)
    if op in ("abs_max", "abs_min"):
        first = np.abs(x) > np.abs(y) if op == "abs_max" else np.abs(x) < np.abs(y)
        return np.where(first, x, y)
    return np.asarray(getattr(np, op)(x, y))


def stepped(
    use: LiteralUse, number: int, x: Array, operand: str, *, reverse: bool
) -> Array:
    """Apply an instruction's operator to ``x`` and a number, or one element a partition."""
    op = str(use.op(f"op{number}"))
    y = use.vector(operand, x.ndim)
    if op in UNARY:
        return apply_literal(op, x, x)
    if op in BITVEC and use.dtype_of(operand) is None:
        y = bit_pattern(use[operand], x.dtype)
    if reverse:
        return apply_literal(op, y, x)
    return apply_literal(op, x, y)


@means("tensor_scalar")
def tensor_scalar(use: LiteralUse) -> LiteralResult:
    """Return ``(data <op0> operand0) <op1> operand1``."""
    x = stepped(use, 0, use["data"], "operand0", reverse=use["reverse0"])
    if use["op1"] is not None:
        x = stepped(use, 1, x, "operand1", reverse=use["reverse1"])
    return LiteralResult(_kept_bits(use.op("op0"), x, use))


@means("scalar_tensor_tensor")
def scalar_tensor_tensor(use: LiteralUse) -> LiteralResult:
    """Return ``(data <op0> operand0) <op1> operand1``, where operand1 has the data's size."""
    x = stepped(use, 0, use["data"], "operand0", reverse=use["reverse0"])
    y = use["operand1"].reshape(x.shape)
    op = str(use.op("op1"))
    return LiteralResult(
        _kept_bits(
            op,
            apply_literal(
                op, *((y, x) if use["reverse1"] and op not in UNARY else (x, y))
            ),
            use,
        )
    )


@means("reciprocal")
def reciprocal(use: LiteralUse) -> LiteralResult:
    """Return ``1 / data``."""
    return LiteralResult(np.float32(1) / to_float32(use["data"]))


@means("activation")
def activation(use: LiteralUse) -> tuple[Any, Any]:
    """Return ``op(data * scale + bias)``, rounded once before the function, and its sum."""
    x = to_float32(use["data"]).astype(np.float64)
    shifted = x * use.vector("scale", x.ndim)
    if use["bias"] is not None:
        shifted = shifted + to_float32(use.vector("bias", x.ndim))
    values = activate(use["op"], shifted.astype(np.float32))
    return _with_registers(use, use["op"], values, "scalar", use.op("reduce_op"))


def _with_registers(
    use: LiteralUse,
    name: str,
    values: Array,
    engine: str,
    op: str | None,
    start: Any = None,
) -> tuple[Any, Any]:
    """Return a function's values, and an engine's registers after their reduction."""
    slack = curve(values) if name in CURVES else None
    held = accumulate_literal(use, engine, values, op, start)
    if held is not None and slack is not None:
        total = slack.reshape(len(values), -1).sum(axis=1)[:, None]
        held = held._replace(slack=total * 2 + np.abs(held.values) * 2.0**-12)
    return LiteralResult(values, slack=slack), held


@means("activate2")
def activate2(use: LiteralUse) -> tuple[Any, Any]:
    """Return ``op((data <op0> imm0) <op1> imm1)``, each stage rounded to float32."""
    x = to_float32(use["data"])
    for number in (0, 1):
        if use[f"op{number}"] is not None:
            x = stepped(use, number, x, f"imm{number}", reverse=use[f"reverse{number}"])
    name = use["op"]
    op = use.op("reduce_op")
    if name == "prelu":
        values = np.where(x > 0, x, x * use.vector("relu_param", x.ndim))
    else:
        values = activate(name, to_float32(x))
    return _with_registers(use, name, values, "scalar", op)


@means("exponential")
def exponential(use: LiteralUse) -> tuple[Any, Any]:
    """Return ``exp(src - max_value)``, and its sum into the Vector Engine's registers."""
    x = to_float32(use["src"])
    values = activate("exp", to_float32(x - use.vector("max_value", x.ndim)))
    return _with_registers(use, "exp", values, "vector", "add", use["reduce_init"])


# -- reductions and scans --------------------------------------------------------------------------


def fold(op: str, lanes: Array, kept: Array) -> Array:
    """Combine the elements of each row that ``kept`` chooses, from the first to the last.

    ``lanes`` [rows, n] are bit patterns for bitvec operators, else float32.
    """
    if op in LOGICAL:
        lanes = lanes != 0
    total = lanes[:, 0].copy()
    started = kept[:, 0].copy()
    for column, counts in zip(lanes.T[1:], kept.T[1:], strict=True):
        combined = apply_literal(op, total, column).astype(lanes.dtype)
        total = np.where(counts & started, combined, np.where(counts, column, total))
        started |= counts
    return total


def _rows_of(array: Array, axes: tuple[int, ...]) -> Array:
    """Return the array as [other axes, reduced axes], in order."""
    lead = [axis for axis in range(array.ndim) if axis not in axes]
    count = int(np.prod([array.shape[axis] for axis in axes]))
    return array.transpose(*lead, *axes).reshape(-1, count)


def _reduced(use: LiteralUse, op: str, axes: tuple[int, ...]) -> LiteralResult:
    data = use["data"]
    kept = _rows_of(use.over(data.shape), axes)
    average = op == "average"
    if op == "average":
        op = "add"
    lanes = data if op in BITVEC else to_float32(data)
    total = fold(op, _rows_of(lanes, axes), kept)
    if average:
        total = total / np.float32(kept.shape[1])
    shape = use.shape
    values = wrapped(total, use.dtype) if op in BITVEC else total
    slack = np.abs(total) * 2.0**-20 if op == "multiply" else None
    result = LiteralResult(values.reshape(shape), np.any(kept, axis=1).reshape(shape))
    if slack is None:
        return result
    return result._replace(slack=slack.reshape(shape))


@means("tensor_reduce")
def tensor_reduce(use: LiteralUse) -> LiteralResult:
    """Return a reduction of free axes, times -1 if ``negate``."""
    result = _reduced(use, str(use.op("op")), tuple(use["axis"]))
    if use["negate"]:
        return result._replace(values=-to_float32(result.values))
    return result


@means("tensor_partition_reduce")
def tensor_partition_reduce(use: LiteralUse) -> LiteralResult:
    """Return a reduction across partitions."""
    return _reduced(use, str(use.op("op")), (0,))


@means("tensor_scalar_reduce")
def tensor_scalar_reduce(use: LiteralUse) -> tuple[Any, Any]:
    """Return ``data <op0> operand0``, and its reduction along the free axes."""
    values = to_float32(
        stepped(use, 0, to_float32(use["data"]), "operand0", reverse=False)
    )
    op = str(use.op("reduce_op"))
    if op == "subtract":
        kept = use.over((len(values), values[0].size))
        total = fold(op, values.reshape(kept.shape), kept)[:, None]
        result = LiteralResult(total, kept.any(axis=1)[:, None])
    else:
        result = accumulate_literal(use, "vector", values, op, use["reduce_init"])
    if use["reduce_res_negate"]:
        result = result._replace(values=-result.values)
    return LiteralResult(values), result


@means("tensor_tensor_scan")
def tensor_tensor_scan(use: LiteralUse) -> LiteralResult:
    """Return ``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` over the free elements in order."""
    first, second = (to_float32(use.rows(name)) for name in ("data0", "data1"))
    state = np.broadcast_to(to_float32(use.vector("initial", 2)), (len(first), 1))[:, 0]
    kept = use.over(first.shape)
    result = np.zeros(first.shape, np.float32)
    op0 = str(use.op("op0"))
    op1 = str(use.op("op1"))
    for i, counts in enumerate(kept.T):
        sides = (first[:, i], state)
        if use["reverse0"]:
            sides = (state, first[:, i])
        partial = apply_literal(op0, *sides)
        sides = (partial, second[:, i])
        if use["reverse1"]:
            sides = (second[:, i], partial)
        new = to_float32(apply_literal(op1, *sides))
        state = np.where(counts, new, state)
        result[:, i] = state
    return LiteralResult(result)


@means("tensor_scalar_cumulative")
def tensor_scalar_cumulative(use: LiteralUse) -> LiteralResult:
    """Return ``dst[i] = reg = (src[i] <op0> imm0) <op1> reg`` along the free axes."""
    src = to_float32(use["src"])
    lines = to_float32(stepped(use, 0, src, "imm0", reverse=False)).reshape(
        len(src), -1
    )
    op = str(use.op("op1"))
    command = use["reduce_cmd"].name
    start = np.full(use.machine.partitions, np.float32(START[op]))
    registers = use.registers.setdefault("vector", start.copy())
    if command != "REDUCE":
        registers[...] = start
    state = registers[: len(lines)]
    if command == "LOAD_REDUCE":
        state[...] = np.broadcast_to(to_float32(use["imm1"]).reshape(-1), state.shape)
    result = np.zeros(lines.shape, np.float32)
    for i, column in enumerate(lines.T):
        state[...] = apply_literal(op, column, state)
        result[:, i] = state
    return LiteralResult(result)


def each_partition(
    use: LiteralUse, name: str, count: int, compute: Callable[[Array], Any]
) -> LiteralResult:
    """Apply ``compute`` to each partition's unmasked elements of an operand: [P, count]."""
    rows = to_float32(use.rows(name))
    kept = use.over(rows.shape)
    values = np.zeros((len(rows), count), np.float32)
    for p, (row, counts) in enumerate(zip(rows, kept, strict=True)):
        if counts.any():
            values[p] = compute(row[counts])
    slack = (np.abs(values) + np.abs(rows).max() ** 2) * 2.0**-17
    return LiteralResult(
        values, np.broadcast_to(kept.any(axis=1, keepdims=True), values.shape), slack
    )


def _total(values: Array) -> Any:
    """Return a sum from left to right in float32."""
    total = np.float32(0)
    for value in values:
        total = total + value
    return total


def _moments(values: Array) -> list[Any]:
    count = np.float32(len(values))
    average = _total(values) / count if len(values) else np.float32(0)
    return [count, average, _total((values - average) ** 2)]


@means("bn_stats")
def bn_stats(use: LiteralUse) -> LiteralResult:
    """Return count, mean and variance * count of the even elements, then of the odd ones."""
    return each_partition(
        use, "data", 6, lambda row: _moments(row[0::2]) + _moments(row[1::2])
    )


def _aggregate(row: Array) -> list[Any]:
    count = row[0::3]
    average = row[1::3]
    spread = row[2::3]
    total = _total(count)
    centre = _total(count * average) / total
    return [centre, _total(spread + count * (average - centre) ** 2) / total]


@means("bn_aggr")
def bn_aggr(use: LiteralUse) -> LiteralResult:
    """Return mean and variance from tuples of bn_stats."""
    return each_partition(use, "data", 2, _aggregate)
