"""Scalar Engine: ``func(data * scale + bias)``, computed in float32.

Source: AWS ``nki.isa.activation`` at tag v2.26.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import BFLOAT16, DTYPES, FLOAT16, FLOAT32, TFLOAT32, Array
from difftest.simulator.errors import DtypeError, KernelError, NotModelledError
from difftest.simulator.instructions.elementwise import like
from difftest.simulator.instructions.functions import ACTIVATIONS, check_range
from difftest.simulator.instructions.record import DST, ISA, Call, Role, Takes, instruction
from difftest.simulator.instructions.registers import (
    REDUCE_RES,
    Accumulate,
    reach_of_registers,
    reads_what_it_uses,
    registers,
)
from difftest.simulator.instructions.rules import reducing
from difftest.simulator.instructions.values import as_float, column
from difftest.simulator.trace import Engine

BIAS_DTYPES = (FLOAT32, FLOAT16, BFLOAT16)


def _bias(call: Call) -> None:
    """``bias`` is a vector of float32, float16 or bfloat16.

    Today's dialect takes a bias of other dtypes, and a number from NeuronCore-v3 on (v2.32.0).
    """
    bias = call["bias"]
    if isinstance(bias, type):
        if not call.into_existing or call.machine.nc_version < 3:
            raise KernelError(
                "activation takes bias as a vector with one element in each partition",
                received=f"bias of type {bias.__name__} on {call.machine.name}",
                remedy="fill a [P, 1] tile with it",
            )
        return
    if bias is not None and not call.into_existing and bias.dtype not in BIAS_DTYPES:
        raise DtypeError(
            "activation takes bias of certain dtypes",
            received=f"bias = {bias!r}",
            limit="float32, float16, bfloat16",
        )


def _adds_up(call: Call) -> None:
    """The Scalar Engine's registers add."""
    op = call["reduce_op"]
    if call["command"] is not Accumulate.IDLE and op is not None and op.name != "add":
        raise NotModelledError(
            "the Scalar Engine accumulates with add", received=f"reduce_op={op.name}"
        )


@instruction(
    Engine.SCALAR,
    operands=(
        Role(name="data"),
        Role(name="scale", takes=Takes.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        Role(
            name="bias",
            takes=Takes.VECTOR_OR_NUMBER,
            dtypes=tuple(dtype for dtype in DTYPES if dtype != TFLOAT32),
            optional=True,
        ),
    ),
    options=("op", "reduce_op", "command"),
    destinations=(DST, REDUCE_RES),
    rules=(_bias, reducing("reduce_op"), reads_what_it_uses, _adds_up),
    result=like("data"),
    reach=reach_of_registers,
    facts=lambda call: {"op": call["op"]},
    pages=(f"{ISA}activation", f"{ISA}activation_reduce"),
)
def activation(call: Call, data: Array, scale: Any, bias: Any) -> tuple[Any, Any]:
    """``dst = op(data * scale + bias)``, and a reduction of it into the engine's registers."""
    values = as_float(data)
    if isinstance(scale, np.ndarray):
        values = values * column(scale, values.ndim)
    elif scale != 1.0:
        values = values * np.float32(scale)
    if isinstance(bias, np.ndarray):
        values = values + as_float(column(bias, values.ndim))
    elif bias is not None:
        values = values + np.float32(bias)
    name = call["op"]
    check_range(name, values)
    result = np.asarray(ACTIVATIONS[name](values), dtype=np.float32)
    return result, registers("scalar", result, call["reduce_op"], call["command"])
