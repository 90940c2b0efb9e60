"""Elementwise instructions of the Vector, Scalar and GpSimd Engines.

Arithmetic casts operands to float32, computes, and rounds once into the destination's dtype. Bitvec
operators take integers as bit patterns.

The GpSimd Engine adds, subtracts and multiplies tiles if they and the result are all of 32-bit
integers (the rule as v2.32.0 spells it). This is exact, and is assumed to wrap beyond 32 bits. In
the current dialect the other operators are exact too. Source: AWS ``nki.isa`` at tag v2.26.0, and
``nki.isa.tensor_tensor`` at v2.32.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import BOOL, FLOAT32, WIDE_INTEGERS, Array, DType
from difftest.simulator.errors import DtypeError, KernelError
from difftest.simulator.index import broadcast_shapes
from difftest.simulator.instructions.alu import AluOp, kept_bits
from difftest.simulator.instructions.record import (
    CheckedCall,
    OperandKind,
    Result,
    Role,
    choose_engine,
    instruction,
)
from difftest.simulator.instructions.rules import (
    arithmetic,
    arithmetic_in_float32,
    binary,
    no_broadcast,
    no_gpsimd_in_psum,
    not_both_in_psum,
    of_integers,
    one_kind,
    same_partitions,
    same_rank,
    same_shape,
    vector_ops,
)
from difftest.simulator.instructions.values import (
    FLOAT64,
    as_float,
    column,
    promote_dtypes,
)
from difftest.simulator.lifted import as_constant, is_array, step
from difftest.simulator.trace import Engine, Purpose, Space

_EXACT_INTEGER_OPS = ("add", "subtract", "multiply")
_EXACT_OF_TODAY = (
    *_EXACT_INTEGER_OPS,
    "maximum",
    "minimum",
    "abs_max",
    "abs_min",
    "equal",
    "not_equal",
    "greater_equal",
    "greater",
    "less_equal",
    "less",
    "logical_and",
    "logical_or",
    "logical_xor",
)
"""Operators with one meaning for integers; AWS documents none for power, divide, mod and fmod."""
_SCALAR_ENGINE_PAIRS = (("multiply", "add"), ("multiply", None), ("add", None))
"""Operators of the Scalar Engine's tensor_scalar (AWS: nki.isa.tensor_scalar)."""


def result_like(role: str) -> Any:
    """Return the rule for a result with the shape and dtype of an operand."""

    def result(call: CheckedCall) -> Result:
        data: Descriptor = call[role]
        return Result(data.shape, call.wanted_dtype(data.dtype))

    return result


# -- tensor_tensor ---------------------------------------------------------------------------------


def _is_exact(call: CheckedCall) -> bool:
    """Return whether a call is an integer operation that the GpSimd Engine computes in 32 bits."""
    if call["op"].name not in (
        _EXACT_OF_TODAY if call.into_existing else _EXACT_INTEGER_OPS
    ):
        return False
    dtypes = [tile.dtype for tile in call.tiles.values()]
    dtypes.append(call.wanted_dtype(promote_dtypes(*dtypes)))
    return all(dtype in WIDE_INTEGERS for dtype in dtypes)


def _tensor_tensor_engine(call: CheckedCall, wanted: Engine) -> Engine:
    if (
        call.dialect == "nki"
        and wanted is Engine.UNKNOWN
        and Engine.VECTOR in call["op"].engines
    ):
        tiles = (*call.tiles.values(), *call.destinations.values())
        if any(tile.space is Space.PSUM for tile in tiles):
            # the GpSimd Engine, exact for integers, cannot access PSUM
            return Engine.VECTOR
    if call["op"].engines == (Engine.GPSIMD,) or (
        _is_exact(call) and wanted is not Engine.VECTOR
    ):
        return choose_engine(call, wanted, (Engine.GPSIMD,))
    return choose_engine(call, wanted)


def _same_count(call: CheckedCall, first: str, second: str) -> bool:
    """Return whether a call into an existing dst has operands of one size, perhaps of two shapes.

    The engines count elements in each partition (AWS ``nisa.tensor_tensor``, v2.32.0).
    """
    left = call[first]
    right = call[second]
    return (
        call.into_existing
        and left.shape[0] == right.shape[0]
        and left.size == right.size
    )


def _one_rank(call: CheckedCall) -> None:
    if not _same_count(call, "data1", "data2"):
        same_rank("data1", "data2")(call)


def tensor_tensor_result(call: CheckedCall) -> Result:
    """Return the result: free dimensions broadcast, and the dtype is the promotion's."""
    left = call["data1"]
    right = call["data2"]
    if _same_count(call, "data1", "data2"):
        return Result(left.shape, call.wanted_dtype(left.dtype))
    shape = broadcast_shapes(left.shape, right.shape, f"{call.name} operands")
    return Result(shape, call.wanted_dtype(promote_dtypes(left.dtype, right.dtype)))


@instruction(
    Engine.VECTOR,
    Engine.GPSIMD,
    operands=(Role("data1", by_offsets=True), Role("data2")),
    options=("op",),
    rules=(
        binary("op"),
        same_partitions("data1", "data2"),
        _one_rank,
        not_both_in_psum("data1", "data2"),
        no_gpsimd_in_psum,
        of_integers("op"),
    ),
    only={"nki": (no_broadcast("data1", "data2"),)},
    engine=_tensor_tensor_engine,
    result=tensor_tensor_result,
    facts=lambda call: {"op": call["op"].name},
    purpose=Purpose.COMBINE,
)
def tensor_tensor(call: CheckedCall, data1: Array, data2: Array) -> Array:
    """``dst = data1 <op> data2``, element by element."""
    op: AluOp = call.options["op"]
    if data1.shape != data2.shape and _same_count(call, "data1", "data2"):
        data2 = data2.reshape(data1.shape)
    if call.engine is Engine.GPSIMD and call.once(_is_exact):
        return in_integers(data1, data2, op, call.result.dtype)
    return kept_bits(op, apply_operator(op, data1, data2), call.result.dtype)


@step
def in_integers(left: Array, right: Array, op: AluOp, dtype: DType) -> Array:
    """Return ``left <op> right`` for 32-bit integers: the low 32 bits."""
    if left.dtype == right.dtype == dtype and op.name in _EXACT_INTEGER_OPS:
        low_bits: Array = op.compute(left, right)
        return low_bits
    exact: Array = op.compute(left.astype(np.int64), right.astype(np.int64))
    return exact.astype(dtype)


def apply_operator(op: AluOp, left: Array, right: Array) -> Array:
    """Return ``left <op> right`` in float32 or on bit patterns; a unary operator takes ``left``."""
    if not op.bitvec:
        left, right = as_float(left), as_float(right)
    elif not op.unary:
        left, right = (
            side.view(np.uint8) if side.dtype == BOOL else side
            for side in (left, right)
        )
    result: Array = op.compute(left) if op.unary else op.compute(left, right)
    return result


# -- tensor_scalar ---------------------------------------------------------------------------------


def _steps(call: CheckedCall) -> list[AluOp]:
    return [op for op in (call["op0"], call["op1"]) if op is not None]


def _tensor_scalar_engine(call: CheckedCall, wanted: Engine) -> Engine:
    """Choose the Vector Engine for bitvec operators; another one for rsqrt and power."""
    names = [op.name for op in _steps(call)]
    if wanted is Engine.GPSIMD and names != ["rsqrt"]:
        raise call.refused(
            "runs on the GpSimd Engine for rsqrt only",
            f"was to run {names[0]} on the GpSimd Engine",
            f"engine=gpsimd with op0={names[0]}",
            remedy="leave engine out",
        )
    if any(op.bitvec for op in _steps(call)):
        return choose_engine(call, wanted, (Engine.VECTOR,))
    if any(Engine.VECTOR not in op.engines for op in _steps(call)):
        return choose_engine(call, wanted, (Engine.GPSIMD, Engine.SCALAR))
    return choose_engine(call, wanted)


def _second_step(call: CheckedCall) -> None:
    """Require ``op1`` and ``operand1`` together."""
    op = call["op1"]
    operand = call["operand1"]
    if (op is None) != (operand is None):
        raise call.refused(
            "takes op1 and operand1 together",
            f"got {'operand1' if op is None else 'op1'} alone",
            f"op1={op and op.name}, operand1={operand!r}",
        )


def _scalar_engine_pairs(call: CheckedCall) -> None:
    names = (call["op0"].name, call["op1"] and call["op1"].name)
    if call.engine is Engine.SCALAR and names not in _SCALAR_ENGINE_PAIRS:
        raise KernelError(
            "the Scalar Engine's tensor_scalar has few operators",
            happened=f"tensor_scalar on the Scalar Engine got {' and '.join(filter(None, names))}",
            received=f"op0={names[0]}, op1={names[1]}",
            limit="multiply then add, multiply, add",
            remedy="leave engine out, or name nisa.vector_engine",
        )


@instruction(
    Engine.VECTOR,
    Engine.SCALAR,
    Engine.GPSIMD,
    operands=(
        Role("data", by_offsets=True),
        Role("operand0", takes=OperandKind.VECTOR_OR_NUMBER),
        Role("operand1", takes=OperandKind.VECTOR_OR_NUMBER, optional=True),
    ),
    options=("op0", "reverse0", "op1", "reverse1"),
    rules=(
        _second_step,
        one_kind("op0", "op1"),
        of_integers("op0"),
        _scalar_engine_pairs,
        no_gpsimd_in_psum,
    ),
    only={"nki": (arithmetic_in_float32(op0="operand0", op1="operand1"),)},
    engine=_tensor_scalar_engine,
    result=result_like("data"),
    facts=lambda call: {"op": "+".join(op.name for op in _steps(call))},
    purpose=Purpose.SCALE,
)
def tensor_scalar(
    call: CheckedCall, data: Array, operand0: Any, operand1: Any
) -> Array:
    """``dst = (data <op0> operand0) <op1> operand1``, operands numbers or [P, 1] tiles."""
    partial = apply_scalar(call["op0"], data, operand0, reverse=call["reverse0"])
    if call["op1"] is not None:
        partial = apply_scalar(call["op1"], partial, operand1, reverse=call["reverse1"])
    return kept_bits(call["op0"], partial, call.result.dtype)


def apply_scalar(op: AluOp, values: Array, operand: Any, *, reverse: bool) -> Array:
    """Return ``values <op> operand`` or ``operand <op> values`` for a number or a [P, 1] vector."""
    if is_array(operand):
        other = column(operand, values.ndim)
    elif op.bitvec:
        other = _bit_pattern(op, operand, values.dtype)
    else:
        is_exact = (
            type(operand) is int
            and type(values) is np.ndarray
            and values.dtype == FLOAT64
        )
        other = as_constant(operand, FLOAT64 if is_exact else FLOAT32)
    if reverse and not op.unary:
        return apply_operator(op, other, values)
    return apply_operator(op, values, other)


def _bit_pattern(op: AluOp, number: Any, dtype: DType) -> Array:
    """Return a bitvec operator's number as bits; it may be signed or unsigned. For a bool, uint8.

    Raises
    ------
    DtypeError : it is not an integer, or has more bits than the data.
    """
    if op.unary:
        return np.zeros((), dtype=dtype)
    bits = 8 * dtype.itemsize
    value = float(number)
    if not value.is_integer() or not -(1 << (bits - 1)) <= value < (1 << bits):
        raise DtypeError(
            "bitvec operators take integer operands of the data's width",
            happened=f"{op.name} of {dtype} got the operand {number!r}",
            received=f"{op.name} of {dtype} with operand {number!r}",
            limit=f"{-(1 << (bits - 1))} to {(1 << bits) - 1}",
        )
    pattern = np.array(int(value) % (1 << bits), dtype=f"u{dtype.itemsize}")
    if dtype == BOOL:
        return pattern
    return pattern.view(dtype)


# -- scalar_tensor_tensor --------------------------------------------------------------------------


def _one_shape(call: CheckedCall) -> None:
    if not _same_count(call, "data", "operand1"):
        same_shape("data", "operand1")(call)


@instruction(
    Engine.VECTOR,
    operands=(
        Role("data"),
        Role("operand0", takes=OperandKind.VECTOR_OR_NUMBER),
        Role("operand1"),
    ),
    options=("op0", "reverse0", "op1", "reverse1"),
    rules=(
        _one_shape,
        not_both_in_psum("data", "operand1"),
        one_kind("op0", "op1"),
        vector_ops("op0", "op1"),
        of_integers("op1"),
    ),
    only={"nki": (no_broadcast("data", "operand1"), arithmetic("op0", "op1"))},
    result=result_like("data"),
    facts=lambda call: {"op": "+".join(op.name for op in _steps(call))},
    purpose=Purpose.COMBINE,
)
def scalar_tensor_tensor(
    call: CheckedCall, data: Array, operand0: Any, operand1: Array
) -> Array:
    """``dst = (data <op0> operand0) <op1> operand1``, operand1 of the data's shape."""
    partial = apply_scalar(call["op0"], data, operand0, reverse=call["reverse0"])
    operand1 = operand1.reshape(partial.shape)
    result = apply_scalar(call["op1"], partial, operand1, reverse=call["reverse1"])
    return kept_bits(call["op1"], result, call.result.dtype)


@instruction(Engine.VECTOR, operands=(Role("data"),), result=result_like("data"))
def reciprocal(call: CheckedCall, data: Array) -> Array:
    """``dst = 1 / data`` on the Vector Engine."""
    result: Array = np.reciprocal(as_float(data))
    return result
