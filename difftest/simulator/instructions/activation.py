"""Elementwise functions with a reduction into registers.

The Scalar Engine has ``activation`` and ``activate2`` of ``data * scale + bias``, in float32. The
Vector Engine has ``exponential`` and ``tensor_scalar_cumulative``. Source: AWS ``nki.isa`` at tags
v2.26.0 (activation) and v2.32.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import (
    BFLOAT16,
    DTYPES,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOATS,
    TFLOAT32,
    WIDE_INTEGERS,
    Array,
    dtype_name,
)
from difftest.simulator.errors import DtypeError, NotModelledError
from difftest.simulator.instructions.alu import ALU_OPS, activated, check_range
from difftest.simulator.instructions.elementwise import apply_scalar, result_like
from difftest.simulator.instructions.record import (
    DST,
    ISA,
    CheckedCall,
    OperandKind,
    Role,
    instruction,
)
from difftest.simulator.instructions.registers import (
    LOADS_NOTHING,
    REDUCE_INIT,
    REDUCE_RES,
    Accumulate,
    commands,
    held_before,
    loads,
    one_a_partition,
    reach_of_registers,
    read_if_used,
    reduce_into_register,
)
from difftest.simulator.instructions.rules import (
    arithmetic,
    limits,
    needs_generation,
    one_dtype,
    one_of,
    vector_ops,
)
from difftest.simulator.instructions.values import as_float, column, multiply_add, rows
from difftest.simulator.lifted import as_constant, is_array, made_like
from difftest.simulator.trace import Engine, Purpose

BIAS_DTYPES = (FLOAT32, FLOAT16, BFLOAT16)
_PAIRS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", None),
    ("add", None),
    ("subtract", None),
    (None, None),
)
"""The operators of activate2's first stage; None is ``nl.bypass``."""
_REDUCTIONS = ("add", "maximum", "minimum", "abs_max", "abs_min")
PRELU = "prelu"
"""The one function that uses activate2's relu_param."""


def _bias(call: CheckedCall) -> None:
    """Require a ``bias`` that is a vector of float32, float16 or bfloat16.

    The current dialect takes a bias of other dtypes, and a number from NeuronCore-v3 on (v2.32.0).
    Before that the Scalar Engine's reciprocal takes none (``nki.api.shared.rst`` at v2.26.0).
    """
    bias = call["bias"]
    if bias is not None and call["op"] == "reciprocal" and call.machine.nc_version < 3:
        raise call.refused(
            "takes no bias of reciprocal on NeuronCore-v2",
            "got a bias of reciprocal",
            f"bias = {bias!r} on {call.machine.name}",
        )
    if isinstance(bias, type):
        if not call.into_existing or call.machine.nc_version < 3:
            raise call.refused(
                "takes bias as a vector with one element in each partition",
                f"got a number as bias on {call.machine.name}",
                f"bias of type {bias.__name__} on {call.machine.name}",
                remedy="fill a [P, 1] tile with it",
            )
        return
    if bias is not None and not call.into_existing and bias.dtype not in BIAS_DTYPES:
        raise call.refused(
            "takes bias of certain dtypes",
            f"got bias of {dtype_name(bias.dtype)}",
            f"bias = {bias!r}",
            error=DtypeError,
            limit="float32, float16, bfloat16",
        )


def scaled(values: Array, scale: Any, bias: Any) -> Array:
    """Return ``values * scale + bias``, rounded once.

    Public measurements from trn2 show that devices fuse the two operations.
    """
    factor: Any = None
    if is_array(scale):
        factor = column(scale, values.ndim)
    elif scale != 1:
        factor = as_constant(scale)
    if bias is None:
        return values if factor is None else values * factor
    if not is_array(bias):
        bias = np.broadcast_to(as_constant(bias), (len(values), 1))
    shift = as_float(column(bias, values.ndim))
    if factor is None:
        return values + shift
    return multiply_add(values, factor, shift)


_ADDS = one_of(
    "reduce_op",
    "add",
    says="reduces with add only",
    do="reduce with",
    error=NotModelledError,
)


@instruction(
    Engine.SCALAR,
    operands=(
        Role("data", by_offsets=True),
        Role("scale", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        Role(
            "bias",
            takes=OperandKind.VECTOR_OR_NUMBER,
            dtypes=tuple(dtype for dtype in DTYPES if dtype != TFLOAT32),
            optional=True,
        ),
    ),
    options=("op", "reduce_op", "reduce_cmd"),
    destinations=(DST, REDUCE_RES),
    rules=(_bias, _ADDS, LOADS_NOTHING, read_if_used),
    result=result_like("data"),
    reach=reach_of_registers,
    facts=lambda call: {"op": call["op"]},
    pages=(f"{ISA}activation", f"{ISA}activation_reduce"),
    purpose=Purpose.FUNCTION,
)
def activation(
    call: CheckedCall, data: Array, scale: Any, bias: Any
) -> tuple[Any, Any]:
    """``dst = op(data * scale + bias)``, and a reduction of it into the engine's registers."""
    values = scaled(as_float(data), scale, bias)
    check_range(values, call["op"])
    result = activated(values, call["op"])
    return result, reduce_into_register(
        "scalar", result, call["reduce_op"], call["reduce_cmd"]
    )


# -- activate2 -------------------------------------------------------------------------------------


def _first_stage(call: CheckedCall) -> None:
    ops = (call["op0"], call["op1"])
    names = tuple(op and op.name for op in ops)
    if names not in _PAIRS:
        shown = [f"{a or 'bypass'} and {b or 'bypass'}" for a, b in (names, *_PAIRS)]
        limit = "; ".join(shown[1:])
        raise call.refused(
            "takes operators that are one of six pairs",
            f"got {shown[0]}",
            f"op0 and op1: {shown[0]}",
            limit=limit,
        )
    for number, op in enumerate(ops):
        if op is None and call[f"reverse{number}"]:
            raise call.refused(
                f"takes reverse{number} with an op{number}",
                f"got reverse{number} without",
                f"reverse{number}=True with op{number}=bypass",
            )


def _reduces(call: CheckedCall) -> None:
    op = call["reduce_op"]
    used = call["reduce_cmd"] is not Accumulate.IDLE
    if (used and op is None) or (op is not None and op.name not in _REDUCTIONS):
        raise call.refused(
            "reduces with few operators",
            f"was to reduce with {op.name if op else 'no operator'}",
            f"reduce_op={op and op.name}, reduce_cmd.{call['reduce_cmd'].name.lower()}",
            limit=", ".join(_REDUCTIONS),
        )


@instruction(
    Engine.SCALAR,
    operands=(
        Role("data", by_offsets=True),
        Role("imm0", takes=OperandKind.VECTOR_OR_NUMBER),
        Role("imm1", takes=OperandKind.VECTOR_OR_NUMBER),
        Role("relu_param", takes=OperandKind.VECTOR_OR_NUMBER),
    ),
    options=("op", "op0", "op1", "reverse0", "reverse1", "reduce_op", "reduce_cmd"),
    destinations=(DST, REDUCE_RES),
    rules=(
        needs_generation(4),
        _first_stage,
        one_dtype("imm0", "imm1"),
        LOADS_NOTHING,
        read_if_used,
        _reduces,
    ),
    result=result_like("data"),
    facts=lambda call: {"op": call["op"]},
    classic=False,
)
def activate2(
    call: CheckedCall, data: Array, imm0: Any, imm1: Any, relu_param: Any
) -> tuple[Any, Any]:
    """``dst = op((data <op0> imm0) <op1> imm1)``, and a reduction of it; NeuronCore-v4 on.

    Each of the three stages rounds to float32, as the documentation spells them.
    """
    values = as_float(data)
    name = call["op"]
    for op, operand, reverse in (
        (call["op0"], imm0, call["reverse0"]),
        (call["op1"], imm1, call["reverse1"]),
    ):
        if op is not None:
            values = apply_scalar(op, values, operand, reverse=reverse)
    if name == PRELU:
        below = apply_scalar(ALU_OPS["multiply"], values, relu_param, reverse=False)
        result = np.where(values > 0, values, below)
    else:
        check_range(values, name)
        result = activated(values, name)
    return result, reduce_into_register(
        "scalar", result, call["reduce_op"], call["reduce_cmd"]
    )


# -- Vector Engine ---------------------------------------------------------------------------------

NARROW = (FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, BFLOAT16, FLOAT32)
SMALL_INTEGERS = tuple(map(np.dtype[Any], ("int8", "int16", "uint8", "uint16")))
EXPONENTIAL_RESULTS = (*NARROW, TFLOAT32, *SMALL_INTEGERS, np.dtype(np.int32))
EXPONENTIAL_SOURCES = NARROW + SMALL_INTEGERS + WIDE_INTEGERS
CUMULATED = NARROW + SMALL_INTEGERS
CUMULATIVE_OPS = ("add", "subtract", "multiply", "maximum", "minimum")
MOST_DIMENSIONS = 4


# -- exponential -----------------------------------------------------------------------------------


def _dimensions(call: CheckedCall) -> None:
    shape = call["src"].shape
    most = f"src has at most {MOST_DIMENSIONS} dimensions"
    limits(call, (len(shape) > MOST_DIMENSIONS, most, f"src {list(shape)}"))


@instruction(
    Engine.VECTOR,
    operands=(
        Role("src", by_offsets=True, dtypes=EXPONENTIAL_SOURCES),
        Role("max_value", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        REDUCE_INIT,
    ),
    options=("reduce_cmd",),
    destinations=(
        Role("dst", dtypes=EXPONENTIAL_RESULTS),
        Role("reduce_res", dtypes=FLOATS, optional=True, shape=one_a_partition),
    ),
    rules=(
        needs_generation(4),
        _dimensions,
        commands(
            Accumulate.IDLE,
            Accumulate.RESET_REDUCE,
            Accumulate.REDUCE,
            Accumulate.LOAD_REDUCE,
        ),
        read_if_used,
        loads("reduce_init"),
    ),
    result=result_like("src"),
    classic=False,
)
def exponential(
    call: CheckedCall, src: Array, max_value: Any, reduce_init: Any
) -> tuple[Array, Array | None]:
    """``dst = exp(src - max_value)``, and its sum into the registers; NeuronCore-v4 on."""
    values = as_float(src)
    top = (
        column(max_value, values.ndim)
        if is_array(max_value)
        else as_constant(max_value)
    )
    result = np.exp(values - top)
    return result, reduce_into_register(
        "vector", result, ALU_OPS["add"], call["reduce_cmd"], reduce_init
    )


# -- tensor_scalar_cumulative ----------------------------------------------------------------------


def _loads_imm1(call: CheckedCall) -> None:
    if call["imm1"] is None and call["reduce_cmd"] is Accumulate.LOAD_REDUCE:
        raise call.refused(
            "loads its registers from imm1",
            "got load_reduce without imm1",
            "imm1=None, reduce_cmd.load_reduce",
        )


@instruction(
    Engine.VECTOR,
    operands=(
        Role("src", by_offsets=True, dtypes=CUMULATED),
        Role("imm0", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        Role(
            "imm1",
            takes=OperandKind.VECTOR_OR_NUMBER,
            dtypes=(FLOAT32,),
            optional=True,
        ),
    ),
    options=("op0", "op1", "reduce_cmd"),
    destinations=(Role("dst", dtypes=CUMULATED),),
    rules=(
        arithmetic("op0"),
        one_of(
            "op1",
            *CUMULATIVE_OPS,
            says="accumulates with few operators",
            do="accumulate with",
        ),
        vector_ops("op0"),
        commands(Accumulate.RESET_REDUCE, Accumulate.REDUCE, Accumulate.LOAD_REDUCE),
        _loads_imm1,
    ),
    result=result_like("src"),
    facts=lambda call: {"op": f"{call['op0'].name}+{call['op1'].name}"},
    classic=False,
)
def tensor_scalar_cumulative(
    call: CheckedCall, src: Array, imm0: Any, imm1: Any
) -> Array:
    """``dst[i] = reg = (src[i] <op0> imm0) <op1> reg`` along the free axes, reg of the engine."""
    lines = rows(
        as_float(apply_scalar(call["op0"], as_float(src), imm0, reverse=False))
    )
    op = call["op1"]
    held = held_before("vector", lines, op.name, call["reduce_cmd"], imm1)
    state = held[:, 0]
    result: Array = made_like(lines, lines.shape)
    for i in range(lines.shape[1]):
        state = op.compute(lines[:, i], state)
        result[:, i] = state
    held[...] = state[:, None]
    return result.reshape(call.result.shape)
