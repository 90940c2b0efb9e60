"""Reductions: along the free axes (Vector Engine) and across partitions (GpSimd Engine).

Arithmetic reductions work in float32, sums along the free axes from the first element to the last
(:func:`~difftest.simulator.instructions.values.sum_in_order`), and round once. Source: AWS
``nki.isa`` at tag v2.26.0; registers of tensor_scalar_reduce at tag v2.32.0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.instructions.alu import ALU_OPS, AluOp, kept_bits
from difftest.simulator.instructions.elementwise import apply_scalar, like
from difftest.simulator.instructions.record import (
    DST,
    SBUF_ONLY,
    Call,
    Reach,
    Result,
    Role,
    Rule,
    Takes,
    instruction,
)
from difftest.simulator.instructions.registers import (
    REDUCE_INIT,
    REDUCE_RES,
    Accumulate,
    accumulated,
    commands,
    loads,
)
from difftest.simulator.instructions.rules import (
    arithmetic,
    arithmetic_in_float32,
    need_integers,
    operators,
    reducing,
    vector_ops,
)
from difftest.simulator.instructions.values import as_float, sum_in_order
from difftest.simulator.memory import Shape
from difftest.simulator.trace import Engine

_ACROSS_PARTITIONS = ("add", "maximum", "bitwise_or", "bitwise_and")
"""The reductions of tensor_partition_reduce (AWS: nisa.tensor_partition_reduce)."""
AVERAGE = AluOp(name="average", compute=np.add)
"""``nl.average``, an operator of tensor_partition_reduce alone (v2.32.0)."""
_WITH_TENSOR_SCALAR = ("add", "subtract", "multiply", "maximum", "minimum")
"""The reductions of tensor_scalar_reduce (AWS: nisa.tensor_scalar_reduce)."""
_OF_TODAY = tuple(name for name in _WITH_TENSOR_SCALAR if name != "subtract")

_ORDERLESS = ("maximum", "minimum")
"""Their results do not depend on the elements' order, so that they may be reduced by slices."""
_FEW = 16
"""Elements up to which slices are faster than NumPy's own reduction."""


def reduce_array(op: AluOp, values: Array, axes: tuple[int, ...]) -> Array:
    """NumPy's reduction of ``values``, in float32 (or on bit patterns), without ``axes``."""
    ufunc: Any = op.compute
    if op.bitvec:
        return ufunc.reduce(values, axis=axes)  # type: ignore[no-any-return]
    floats = as_float(values)
    if op.comparison:
        ufunc, floats = getattr(np, op.name), floats != 0
    few = op.name in _ORDERLESS and math.prod(values.shape[k] for k in axes) <= _FEW
    if few and isinstance(floats, np.ndarray):
        return _reduce_by_slices(ufunc, floats, axes)
    if op.name == "subtract" or (op.name == "add" and 0 not in axes):
        lead = tuple(k for k in range(values.ndim) if k not in axes)
        shape = tuple(values.shape[k] for k in lead)
        lines = floats.transpose(*lead, *axes).reshape(math.prod(shape), -1)
        ordered = sum_in_order(lines) if op.name == "add" else np.subtract.reduce(lines, axis=1)
        return ordered.reshape(shape)
    result: Array = ufunc.reduce(floats, axis=axes)
    return result


def _reduce_by_slices(ufunc: Any, values: Array, axes: tuple[int, ...]) -> Array:
    """A reduction of few elements as operations on whole slices: several times faster.

    NumPy reduces short axes element by element; a pooling window is such a case.
    """
    front = np.moveaxis(values, axes, range(len(axes)))
    places = list(np.ndindex(front.shape[: len(axes)]))
    result: Array = front[places[0]].copy()
    for place in places[1:]:
        ufunc(result, front[place], out=result)
    return result


# -- tensor_reduce ---------------------------------------------------------------------------------


def _axes(call: Call) -> None:
    """The reduced axes are free ones, each once."""
    axes, data = call["axis"], call["data"]
    ndim = len(data.shape)
    asked = f"axis={axes[0] if len(axes) == 1 else list(axes)}"
    received = f"{asked} of {data!r}"
    if not all(0 < axis < ndim for axis in axes) or len(set(axes)) < len(axes):
        raise ShapeError(
            f"{call.name} reduces free axes",
            happened=f"{call.name} got {asked} for {ndim} dimensions",
            received=received,
            limit=f"axes 1 to {ndim - 1}",
            remedy="across partitions use nisa.tensor_partition_reduce, or transpose first",
        )


def _reducible(call: Call) -> None:
    op: AluOp = call["op"]
    if op.bitvec:
        need_integers(call, data=call["data"].dtype, result=call.wanted_dtype(call["data"].dtype))
        if call["negate"]:
            raise KernelError(
                "negate goes with arithmetic operators",
                happened=f"{call.name} was to negate the result of {op.name}",
                received=f"op={op.name}, negate=True",
            )


def _reduced(call: Call) -> Result:
    """The reduced axes removed (at least [P, 1]), or kept with size 1."""
    data: Descriptor = call["data"]
    axes = call["axis"]
    if call["keepdims"]:
        shape: Shape = tuple(1 if k in axes else size for k, size in enumerate(data.shape))
    else:
        kept = tuple(size for k, size in enumerate(data.shape) if k not in axes)
        shape = kept if len(kept) > 1 else (*kept, 1)
    return Result(shape, call.wanted_dtype(data.dtype))


@instruction(
    Engine.VECTOR,
    operands=(Role(name="data"),),
    options=("op", "axis", "negate", "keepdims"),
    rules=(reducing("op"), _axes, _reducible),
    result=_reduced,
    reduced=lambda call: tuple(call["axis"]),
    reach=Reach.AXES,
    facts=lambda call: {"op": call["op"].name},
)
def tensor_reduce(call: Call, data: Array) -> Array:
    """``dst = op-reduction of data`` over free axes, times -1 if ``negate``.

    An access pattern takes axes in any order, so the instruction does. That nisa.tensor_reduce
    takes the last ones alone, and ``nl.sum`` not, is a matter of the calls (frontend/axes.py).
    """
    result = reduce_array(call["op"], data, call["axis"]).reshape(call.result.shape)
    result = kept_bits(call["op"], result, call.result.dtype)
    return -as_float(result) if call["negate"] else result


# -- tensor_partition_reduce -----------------------------------------------------------------------


def _across_partitions(call: Call) -> None:
    op: AluOp = call["op"]
    if op.name not in _ACROSS_PARTITIONS and op is not AVERAGE:
        raise KernelError(
            "tensor_partition_reduce takes few operators",
            happened=f"tensor_partition_reduce was to reduce with {op.name}",
            received=op.name,
            limit=f"add, {'average, ' * call.into_existing}max, bitwise_or, bitwise_and",
        )
    if op.bitvec:
        need_integers(call, data=call["data"].dtype, result=call.wanted_dtype(call["data"].dtype))


@instruction(
    Engine.GPSIMD,
    operands=(Role(name="data", buffers=SBUF_ONLY),),
    options=("op",),
    destinations=(Role(name="dst", buffers=SBUF_ONLY),),
    rules=(_across_partitions,),
    result=lambda call: Result((1, *call["data"].shape[1:]), call.wanted_dtype(call["data"].dtype)),
    reduced=lambda call: (0,),
    reach=Reach.AXES,
    facts=lambda call: {"op": call["op"].name},
)
def tensor_partition_reduce(call: Call, data: Array) -> Array:
    """``dst = op-reduction of data`` across partitions."""
    if call["op"] is AVERAGE:
        total = reduce_array(ALU_OPS["add"], data, (0,))
        return (total / np.float32(len(data))).reshape(call.result.shape)
    result = reduce_array(call["op"], data, (0,)).reshape(call.result.shape)
    return kept_bits(call["op"], result, call.result.dtype)


# -- tensor_scalar_reduce --------------------------------------------------------------------------


def _registers_do_not_subtract(call: Call) -> None:
    op, command = call["reduce_op"], call["reduce_cmd"]
    if op.name == "subtract" and command is not Accumulate.RESET_REDUCE:
        raise KernelError(
            "the Vector Engine's registers do not subtract",
            happened="tensor_scalar_reduce was to subtract in the registers",
            received=f"reduce_op=subtract, {command.name.lower()}",
            limit="reset_reduce, or one of add, multiply, maximum, minimum",
        )


def _reductions(*names: str) -> Rule:
    return operators("reduce_op", names, "takes few reductions", "reduce with")


@instruction(
    Engine.VECTOR,
    operands=(
        Role(name="data"),
        Role(name="operand0", takes=Takes.VECTOR_OR_NUMBER),
        REDUCE_INIT,
    ),
    options=("op0", "reduce_op", "reduce_cmd", "reduce_res_negate"),
    destinations=(DST, REDUCE_RES),
    rules=(
        arithmetic("op0"),
        _reductions(*_WITH_TENSOR_SCALAR),
        _registers_do_not_subtract,
        vector_ops("op0"),
        commands(Accumulate.RESET_REDUCE, Accumulate.REDUCE, Accumulate.LOAD_REDUCE),
        loads("reduce_init"),
    ),
    only={"nki": (_reductions(*_OF_TODAY), arithmetic_in_float32(op0="operand0"))},
    result=like("data"),
    reach=Reach.ROW,
    facts=lambda call: {"op": f"{call['op0'].name}+{call['reduce_op'].name}"},
)
def tensor_scalar_reduce(
    call: Call, data: Array, operand0: Any, reduce_init: Any
) -> tuple[Array, Array]:
    """``dst = data <op0> operand0``, and its reduction along the free axes into the registers."""
    result = apply_scalar(call["op0"], as_float(data), operand0, reverse=False)
    if call["reduce_op"].name == "subtract":
        reduced = reduce_array(call["reduce_op"], result, tuple(range(1, result.ndim)))[:, None]
    else:
        reduced = accumulated("vector", result, call["reduce_op"], call["reduce_cmd"], reduce_init)
    return result, -reduced if call["reduce_res_negate"] else reduced
