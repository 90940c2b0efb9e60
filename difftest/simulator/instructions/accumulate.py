"""Vector Engine: exponential and tensor_scalar_cumulative, which reduce into its registers.

Source: AWS ``nki.isa`` at tag v2.32.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOATS,
    TFLOAT32,
    WIDE_INTEGERS,
    Array,
)
from difftest.simulator.errors import KernelError, LimitError
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.elementwise import apply_scalar, like
from difftest.simulator.instructions.record import Call, Fit, Role, Takes, instruction
from difftest.simulator.instructions.registers import (
    REDUCE_INIT,
    Accumulate,
    commands,
    held_before,
    one_a_partition,
    read_if_used,
    registers,
)
from difftest.simulator.instructions.rules import (
    arithmetic,
    needs_generation,
    operators,
    vector_ops,
)
from difftest.simulator.instructions.values import as_float, column, rows
from difftest.simulator.lifted import as_constant, is_array, made_like
from difftest.simulator.trace import Engine

NARROW = (FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, BFLOAT16, FLOAT32)
SMALL_INTEGERS = tuple(map(np.dtype[Any], ("int8", "int16", "uint8", "uint16")))
EXPONENTIAL_RESULTS = (*NARROW, TFLOAT32, *SMALL_INTEGERS, np.dtype(np.int32))
EXPONENTIAL_SOURCES = (*NARROW, *SMALL_INTEGERS, *WIDE_INTEGERS)
CUMULATED = (*NARROW, *SMALL_INTEGERS)
CUMULATIVE_OPS = ("add", "subtract", "multiply", "maximum", "minimum")
MOST_DIMENSIONS = 4


# -- exponential -----------------------------------------------------------------------------------


def _dimensions(call: Call) -> None:
    src: Descriptor = call["src"]
    if len(src.shape) > MOST_DIMENSIONS:
        raise LimitError(
            f"exponential takes at most {MOST_DIMENSIONS} dimensions",
            happened=f"exponential got a src of {len(src.shape)} dimensions",
            received=f"src {list(src.shape)}",
            limit=f"{MOST_DIMENSIONS}",
        )


def _starts_from(call: Call) -> None:
    """``reduce_init`` is given for load_reduce; otherwise it is left out (None)."""
    if call["reduce_init"] is None and call["reduce_cmd"] is Accumulate.LOAD_REDUCE:
        raise KernelError(
            "exponential loads its registers from reduce_init",
            happened="exponential got reduce_cmd.load_reduce without reduce_init",
            received="reduce_init=None",
        )
    if isinstance(call["reduce_init"], Descriptor):
        _check_loaded(call, call["reduce_init"])


def _check_loaded(call: Call, start: Any) -> None:
    """Raise :class:`KernelError` if the registers are not loaded from what is given for that."""
    if call["reduce_cmd"] is not Accumulate.LOAD_REDUCE:
        raise KernelError(
            "exponential takes reduce_init with reduce_cmd.load_reduce only",
            happened="exponential got a reduce_init that it would not load",
            received=f"reduce_init = {start!r}, reduce_cmd.{call['reduce_cmd'].name.lower()}",
        )


@instruction(
    Engine.VECTOR,
    operands=(
        Role(name="src", dtypes=EXPONENTIAL_SOURCES),
        Role(name="max_value", takes=Takes.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        REDUCE_INIT,
    ),
    options=("reduce_cmd",),
    destinations=(
        Role(name="dst", dtypes=EXPONENTIAL_RESULTS),
        Role(name="reduce_res", dtypes=FLOATS, optional=True, shape=one_a_partition),
    ),
    rules=(
        needs_generation(4),
        _dimensions,
        commands(
            Accumulate.IDLE, Accumulate.RESET_REDUCE, Accumulate.REDUCE, Accumulate.LOAD_REDUCE
        ),
        read_if_used,
        _starts_from,
    ),
    result=like("src"),
    fit=Fit.ELEMENTS,
    classic=False,
)
def exponential(
    call: Call, src: Array, max_value: Any, reduce_init: Any
) -> tuple[Array, Array | None]:
    """``dst = exp(src - max_value)``, and its sum into the registers; NeuronCore-v4 on."""
    if reduce_init is not None and not is_array(reduce_init) and reduce_init != 0:
        _check_loaded(call, reduce_init)
    values = as_float(src)
    top = column(max_value, values.ndim) if is_array(max_value) else as_constant(max_value)
    result = np.exp(values - top)
    return result, registers("vector", result, ALU_OPS["add"], call["reduce_cmd"], reduce_init)


# -- tensor_scalar_cumulative ----------------------------------------------------------------------


def _loads_imm1(call: Call) -> None:
    if call["imm1"] is None and call["reduce_cmd"] is Accumulate.LOAD_REDUCE:
        raise KernelError(
            "tensor_scalar_cumulative loads its registers from imm1",
            happened="tensor_scalar_cumulative got load_reduce without imm1",
            received="imm1=None, reduce_cmd.load_reduce",
        )


@instruction(
    Engine.VECTOR,
    operands=(
        Role(name="src", dtypes=CUMULATED),
        Role(name="imm0", takes=Takes.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        Role(name="imm1", takes=Takes.VECTOR_OR_NUMBER, dtypes=(FLOAT32,), optional=True),
    ),
    options=("op0", "op1", "reduce_cmd"),
    destinations=(Role(name="dst", dtypes=CUMULATED),),
    rules=(
        arithmetic("op0"),
        operators("op1", CUMULATIVE_OPS, "accumulates with few operators", "accumulate with"),
        vector_ops("op0"),
        commands(Accumulate.RESET_REDUCE, Accumulate.REDUCE, Accumulate.LOAD_REDUCE),
        _loads_imm1,
    ),
    result=like("src"),
    fit=Fit.ELEMENTS,
    facts=lambda call: {"op": f"{call['op0'].name}+{call['op1'].name}"},
    classic=False,
)
def tensor_scalar_cumulative(call: Call, src: Array, imm0: Any, imm1: Any) -> Array:
    """``dst[i] = reg = (src[i] <op0> imm0) <op1> reg`` along the free axes, reg of the engine."""
    lines = rows(as_float(apply_scalar(call["op0"], as_float(src), imm0, reverse=False)))
    op = call["op1"]
    held = held_before("vector", lines, op.name, call["reduce_cmd"], imm1)
    state = held[:, 0]
    result: Array = made_like(lines, lines.shape)
    for i in range(lines.shape[1]):
        state = op.compute(lines[:, i], state)
        result[:, i] = state
    held[...] = state[:, None]
    return result.reshape(call.result.shape)
