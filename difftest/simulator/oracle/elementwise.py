"""Instructions that compute element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import WIDE_INTEGERS
from difftest.simulator.oracle.numbers import Array, to_float32, wrapped
from difftest.simulator.oracle.operators import (
    BITVEC,
    CURVES,
    UNARY,
    activate,
    apply,
    bit_pattern,
    curve,
)
from difftest.simulator.oracle.use import Made, Use, accumulated, means
from difftest.simulator.trace import Engine

_WRAPPING = ("add", "subtract", "multiply")
_EXACT_OF_TODAY = (
    *(*_WRAPPING, "maximum", "minimum", "abs_max", "abs_min"),
    *("equal", "not_equal", "greater_equal", "greater", "less_equal", "less"),
    *("logical_and", "logical_or", "logical_xor"),
)


def _kept_bits(op: str | None, values: Array, use: Use) -> Array:
    """What a bitvec operator makes is not cast: its low bits are kept."""
    return wrapped(values, use.dtype) if op in BITVEC else values


@means("tensor_tensor")
def tensor_tensor(use: Use) -> Made:
    """``data1 <op> data2``; 32-bit integers exactly on the GpSimd Engine, where they wrap."""
    x, y, op = use["data1"], use["data2"], str(use.op("op"))
    if x.shape != y.shape and x.size == y.size:
        y = y.reshape(x.shape)
    dtypes = (use.dtype_of("data1"), use.dtype_of("data2"), use.dtype)
    exact = _EXACT_OF_TODAY if use.call.into_existing else _WRAPPING
    wide = use.call.engine is Engine.GPSIMD and all(dtype in WIDE_INTEGERS for dtype in dtypes)
    if wide and op in exact:
        return Made(wrapped(apply_exactly(op, x, y), use.dtype))
    return Made(_kept_bits(op, apply(op, x, y), use))


def apply_exactly(op: str, x: Array, y: Array) -> Array:
    """One operator on integers as they are."""
    x, y = x.astype(np.int64), y.astype(np.int64)
    if op in ("abs_max", "abs_min"):
        first = np.abs(x) > np.abs(y) if op == "abs_max" else np.abs(x) < np.abs(y)
        return np.where(first, x, y)
    return np.asarray(getattr(np, op)(x, y))


def stepped(use: Use, number: int, x: Array, operand: str, *, reverse: bool) -> Array:
    """One operator of an instruction on ``x`` and a number, or one element in each partition."""
    op = str(use.op(f"op{number}"))
    y = use.vector(operand, x.ndim)
    if op in UNARY:
        return apply(op, x, x)
    if op in BITVEC and use.dtype_of(operand) is None:
        y = bit_pattern(use[operand], x.dtype)
    return apply(op, y, x) if reverse else apply(op, x, y)


@means("tensor_scalar")
def tensor_scalar(use: Use) -> Made:
    """``(data <op0> operand0) <op1> operand1``."""
    x = stepped(use, 0, use["data"], "operand0", reverse=use["reverse0"])
    if use["op1"] is not None:
        x = stepped(use, 1, x, "operand1", reverse=use["reverse1"])
    return Made(_kept_bits(use.op("op0"), x, use))


@means("scalar_tensor_tensor")
def scalar_tensor_tensor(use: Use) -> Made:
    """``(data <op0> operand0) <op1> operand1``, operand1 of the data's size."""
    x = stepped(use, 0, use["data"], "operand0", reverse=use["reverse0"])
    y, op = use["operand1"].reshape(x.shape), str(use.op("op1"))
    return Made(_kept_bits(op, apply(op, y, x) if use["reverse1"] else apply(op, x, y), use))


@means("reciprocal")
def reciprocal(use: Use) -> Made:
    """``1 / data``."""
    return Made(np.float32(1) / to_float32(use["data"]))


@means("activation")
def activation(use: Use) -> tuple[Any, Any]:
    """``op(data * scale + bias)``, rounded once before the function, and its sum."""
    x = to_float32(use["data"]).astype(np.float64)
    shifted = x * use.vector("scale", x.ndim)
    if use["bias"] is not None:
        shifted = shifted + to_float32(use.vector("bias", x.ndim))
    made = activate(use["op"], shifted.astype(np.float32))
    return _with_registers(use, use["op"], made, "scalar", use.op("reduce_op"))


def _with_registers(
    use: Use, name: str, made: Array, engine: str, op: str | None, start: Any = None
) -> tuple[Any, Any]:
    """A function's values, and what an engine's registers hold of them."""
    slack = curve(made) if name in CURVES else None
    held = accumulated(use, engine, made, op, start)
    if held is not None and slack is not None:
        total = slack.reshape(len(made), -1).sum(axis=1)[:, None]
        held = held._replace(slack=total * 2 + np.abs(held.values) * 2.0**-12)
    return Made(made, slack=slack), held


@means("activate2")
def activate2(use: Use) -> tuple[Any, Any]:
    """``op((data <op0> imm0) <op1> imm1)``, each stage rounded to float32."""
    x = to_float32(use["data"])
    for number in (0, 1):
        if use[f"op{number}"] is not None:
            x = stepped(use, number, x, f"imm{number}", reverse=use[f"reverse{number}"])
    name, op = use["op"], use.op("reduce_op")
    if name == "prelu":
        made = np.where(x > 0, x, x * use.vector("relu_param", x.ndim))
    else:
        made = activate(name, to_float32(x))
    return _with_registers(use, name, made, "scalar", op)


@means("exponential")
def exponential(use: Use) -> tuple[Any, Any]:
    """``exp(src - max_value)``, and its sum into the Vector Engine's registers."""
    x = to_float32(use["src"])
    made = activate("exp", to_float32(x - use.vector("max_value", x.ndim)))
    return _with_registers(use, "exp", made, "vector", "add", use["reduce_init"])
