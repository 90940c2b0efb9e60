"""Reductions, scans and statistics: along the free axes and across partitions; dropout.

Arithmetic reductions work in float32 and round once. Sums along the free axes go from the first
element to the last (:func:`~difftest.simulator.instructions.values.sum_in_order`). Source: AWS
``nki.isa`` at tag v2.26.0; registers of tensor_scalar_reduce at tag v2.32.0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import FLOAT32, FLOATS, Array, dtype_name, is_integer
from difftest.simulator.errors import DtypeError, KernelError, LimitError, ShapeError
from difftest.simulator.instructions.alu import ALU_OPS, AluOp, kept_bits
from difftest.simulator.instructions.elementwise import apply_scalar, result_like
from difftest.simulator.instructions.record import (
    DST,
    SBUF_ONLY,
    CheckedCall,
    DependenceClass,
    OperandKind,
    Result,
    Role,
    Rule,
    instruction,
)
from difftest.simulator.instructions.registers import (
    REDUCE_INIT,
    REDUCE_RES,
    Accumulate,
    accumulate_register,
    commands,
    loads,
)
from difftest.simulator.instructions.rules import (
    arithmetic,
    arithmetic_in_float32,
    binary,
    can_reduce,
    not_both_in_psum,
    of_integers,
    one_dtype,
    one_of,
    same_partitions_and_free_size,
    vector_ops,
)
from difftest.simulator.instructions.values import (
    as_float,
    column,
    promote_dtypes,
    rows,
    sum_in_order,
)
from difftest.simulator.lifted import as_constant, is_array, made_like
from difftest.simulator.memory import Shape
from difftest.simulator.trace import Engine, Purpose

AVERAGE = AluOp("average", np.add)
"""``nl.average``, an operator only of tensor_partition_reduce (v2.32.0)."""
_ACROSS_PARTITIONS = ("add", AVERAGE.name, "maximum", "bitwise_or", "bitwise_and")
"""The reductions of tensor_partition_reduce (AWS: nisa.tensor_partition_reduce)."""
_WITH_TENSOR_SCALAR = ("add", "subtract", "multiply", "maximum", "minimum")
"""The reductions of tensor_scalar_reduce (AWS: nisa.tensor_scalar_reduce)."""
_OF_TODAY = tuple(name for name in _WITH_TENSOR_SCALAR if name != "subtract")

_ORDERLESS = ("maximum", "minimum")
"""Operators whose results do not depend on the elements' order, so that slices may be reduced."""
_FEW = 16
"""The largest number of elements for which slices are faster than NumPy's own reduction."""


def reduce_array(op: AluOp, values: Array, axes: tuple[int, ...]) -> Array:
    """Return NumPy's reduction of ``values`` over ``axes``, in float32 or on bit patterns."""
    ufunc: Any = op.compute
    if op.bitvec:
        return ufunc.reduce(values, axis=axes)  # type: ignore[no-any-return]
    floats = as_float(values)
    if op.comparison:
        ufunc = getattr(np, op.name)
        floats = floats != 0
    if op.name in _ORDERLESS and isinstance(floats, np.ndarray):
        return extreme_along(ufunc, floats, axes)
    if op.name == "subtract" or (op.name == "add" and 0 not in axes):
        return _reduce_in_order(op, floats, axes)
    # If all terms are -0.0 the sum is -0.0, as along free axes.
    more = (
        {"initial": -0.0} if op.name == "add" and isinstance(floats, np.ndarray) else {}
    )
    return ufunc.reduce(floats, axis=axes, **more)  # type: ignore[no-any-return]


def _reduce_in_order(op: AluOp, floats: Array, axes: tuple[int, ...]) -> Array:
    """Return a sum or a difference from the first element to the last."""
    lead = [k for k in range(floats.ndim) if k not in axes]
    shape = tuple([floats.shape[k] for k in lead])
    terms = math.prod([floats.shape[k] for k in axes])
    lines = floats.transpose(*lead, *axes).reshape(math.prod(shape), terms)
    ordered: Array = (
        sum_in_order(lines) if op.name == "add" else np.subtract.reduce(lines, axis=1)
    )
    return ordered.reshape(shape)


def extreme_along(ufunc: Any, values: Array, axes: tuple[int, ...]) -> Array:
    """Return a maximum or minimum; for few elements by operations on slices, several times faster.

    NumPy reduces short axes, such as a pooling window, element by element.
    """
    if math.prod(values.shape[axis] for axis in axes) > _FEW:
        return ufunc.reduce(values, axis=axes)  # type: ignore[no-any-return]
    front = np.moveaxis(values, axes, range(len(axes)))
    places = list(np.ndindex(front.shape[: len(axes)]))
    result: Array = np.array(front[places[0]])
    for place in places[1:]:
        ufunc(result, front[place], out=result)
    return result


# -- tensor_reduce ---------------------------------------------------------------------------------


def _axes(call: CheckedCall) -> None:
    """Require free axes, each only once."""
    axes = call["axis"]
    data = call["data"]
    ndim = len(data.shape)
    asked = f"axis={axes[0] if len(axes) == 1 else list(axes)}"
    received = f"{asked} of {data!r}"
    if not all(0 < axis < ndim for axis in axes) or len(set(axes)) < len(axes):
        raise call.refused(
            "reduces free axes",
            f"got {asked} for {ndim} dimensions",
            received,
            error=ShapeError,
            limit=f"axes 1 to {ndim - 1}",
            remedy="across partitions use nisa.tensor_partition_reduce, or transpose first",
        )


def _not_negated(call: CheckedCall) -> None:
    """Allow negation only with an arithmetic operator."""
    op: AluOp = call["op"]
    if op.bitvec and call["negate"]:
        raise KernelError(
            "negate goes with arithmetic operators",
            happened=f"{call.name} was to negate the result of {op.name}",
            received=f"op={op.name}, negate=True",
        )


def _reduced(call: CheckedCall) -> Result:
    """Return the result without the reduced axes (at least [P, 1]), or with their size 1."""
    data: Descriptor = call["data"]
    axes = call["axis"]
    if call["keepdims"]:
        shape: Shape = tuple(
            1 if k in axes else size for k, size in enumerate(data.shape)
        )
    else:
        kept = tuple(size for k, size in enumerate(data.shape) if k not in axes)
        shape = kept if len(kept) > 1 else (*kept, 1)
    return Result(shape, call.wanted_dtype(data.dtype))


@instruction(
    Engine.VECTOR,
    operands=(Role("data", by_offsets=True),),
    options=("op", "axis", "negate", "keepdims"),
    rules=(can_reduce("op"), _axes, of_integers("op"), _not_negated),
    result=_reduced,
    reduced=lambda call: tuple(call["axis"]),
    reach=DependenceClass.AXES,
    facts=lambda call: {"op": call["op"].name},
)
def tensor_reduce(call: CheckedCall, data: Array) -> Array:
    """``dst = op-reduction of data`` over free axes, times -1 if ``negate``.

    An access pattern takes axes in any order, so the instruction does too. The calls limit the
    axes: nisa.tensor_reduce takes only the last ones, ``nl.sum`` takes any (frontend/axes.py).
    """
    result = reduce_array(call["op"], data, call["axis"]).reshape(call.result.shape)
    result = kept_bits(call["op"], result, call.result.dtype)
    if call["negate"]:
        return -as_float(result)
    return result


# -- tensor_partition_reduce -----------------------------------------------------------------------


@instruction(
    Engine.GPSIMD,
    operands=(Role("data", buffers=SBUF_ONLY),),
    options=("op",),
    destinations=(Role("dst", buffers=SBUF_ONLY),),
    rules=(
        one_of("op", *_ACROSS_PARTITIONS, says="takes few operators", do="reduce with"),
        of_integers("op"),
    ),
    result=lambda call: Result(
        (1, *call["data"].shape[1:]), call.wanted_dtype(call["data"].dtype)
    ),
    reduced=lambda call: (0,),
    reach=DependenceClass.AXES,
    facts=lambda call: {"op": call["op"].name},
)
def tensor_partition_reduce(call: CheckedCall, data: Array) -> Array:
    """``dst = op-reduction of data`` across partitions."""
    if call["op"] is AVERAGE:
        total = reduce_array(ALU_OPS["add"], data, (0,))
        return (total / np.float32(len(data))).reshape(call.result.shape)
    result = reduce_array(call["op"], data, (0,)).reshape(call.result.shape)
    return kept_bits(call["op"], result, call.result.dtype)


# -- tensor_scalar_reduce --------------------------------------------------------------------------


def _registers_do_not_subtract(call: CheckedCall) -> None:
    op = call["reduce_op"]
    command = call["reduce_cmd"]
    if op.name == "subtract" and command is not Accumulate.RESET_REDUCE:
        raise KernelError(
            "the Vector Engine's registers do not subtract",
            happened="tensor_scalar_reduce was to subtract in the registers",
            received=f"reduce_op=subtract, {command.name.lower()}",
            limit="reset_reduce, or one of add, multiply, maximum, minimum",
        )


def _reductions(*names: str) -> Rule:
    return one_of("reduce_op", *names, says="takes few reductions", do="reduce with")


@instruction(
    Engine.VECTOR,
    operands=(
        Role("data", by_offsets=True),
        Role("operand0", takes=OperandKind.VECTOR_OR_NUMBER),
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
    result=result_like("data"),
    reach=DependenceClass.ROW,
    facts=lambda call: {"op": f"{call['op0'].name}+{call['reduce_op'].name}"},
)
def tensor_scalar_reduce(
    call: CheckedCall, data: Array, operand0: Any, reduce_init: Any
) -> tuple[Array, Array]:
    """``dst = data <op0> operand0``, and its reduction along the free axes into the registers."""
    result = apply_scalar(call["op0"], as_float(data), operand0, reverse=False)
    if call["reduce_op"].name == "subtract":
        reduced = reduce_array(call["reduce_op"], result, tuple(range(1, result.ndim)))[
            :, None
        ]
    else:
        reduced = accumulate_register(
            "vector", result, call["reduce_op"], call["reduce_cmd"], reduce_init
        )
    return result, -reduced if call["reduce_res_negate"] else reduced


BN_STATS_FIELDS = 6
"""Count, mean and variance * count of the even elements, then of the odd ones."""
BN_TUPLE = 3
BN_AGGR_FIELDS = 2
"""Mean and variance."""


# -- tensor_tensor_scan ----------------------------------------------------------------------------


def _scanned(call: CheckedCall) -> Result:
    data: Descriptor = call["data0"]
    return Result(
        data.shape, call.wanted_dtype(promote_dtypes(data.dtype, call["data1"].dtype))
    )


@instruction(
    Engine.VECTOR,
    operands=(
        Role("data0"),
        Role("data1"),
        Role("initial", takes=OperandKind.VECTOR_OR_NUMBER),
    ),
    options=("op0", "op1", "reverse0", "reverse1"),
    rules=(
        not_both_in_psum("data0", "data1"),
        same_partitions_and_free_size("data0", "data1"),
        arithmetic("op0", "op1"),
        binary("op0", "op1"),
        vector_ops("op0", "op1"),
    ),
    result=_scanned,
    reduced=lambda call: (),
    reach=DependenceClass.ROW,
    facts=lambda call: {"op": f"{call['op0'].name}+{call['op1'].name}"},
)
def tensor_tensor_scan(
    call: CheckedCall, data0: Array, data1: Array, initial: Any
) -> Array:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""
    lines = as_float(rows(data0))
    others = as_float(rows(data1))
    start = as_float(column(initial, 2)) if is_array(initial) else as_constant(initial)
    state = np.broadcast_to(start, (lines.shape[0], 1))[:, 0]
    result: Array = made_like(lines, lines.shape)
    op0 = call["op0"].compute
    op1 = call["op1"].compute
    for i in range(lines.shape[1]):
        here = lines[:, i]
        other = others[:, i]
        partial = op0(state, here) if call["reverse0"] else op0(here, state)
        state = op1(other, partial) if call["reverse1"] else op1(partial, other)
        result[:, i] = state
    return result.reshape(call.result.shape)


# -- bn_stats and bn_aggr --------------------------------------------------------------------------


def all_free_axes(call: CheckedCall) -> tuple[int, ...]:
    """Return all free axes of the first operand, which a result of one row a partition lacks."""
    first: Descriptor = next(iter(call.tiles.values()))
    return tuple(range(1, len(first.shape)))


def _bn_length(call: CheckedCall) -> None:
    most = call.machine.bn_stats_fmax
    data = call["data"]
    if data.free_size > most:
        raise call.refused(
            f"takes at most {most} elements a partition",
            f"got {data.free_size} elements a partition",
            f"{data!r}: {data.free_size}",
            error=LimitError,
            limit=f"{most} (nl.tile_size.bn_stats_fmax)",
            remedy="call it on slices and aggregate with bn_aggr",
        )


def _fields(count: int) -> Any:
    return lambda call: Result(
        (call["data"].partitions, count), call.wanted_dtype(call["data"].dtype)
    )


def _moments(values: Array) -> list[Array]:
    """Return count, mean and variance * count of each row, float32: a column each."""
    count = values.shape[1]
    means = (
        values.mean(axis=1, dtype=np.float32)
        if count
        else np.zeros(len(values), np.float32)
    )
    mean = means[:, None]
    spread = np.square(values - mean).sum(axis=1, dtype=np.float32, keepdims=True)
    return [np.full_like(mean, count), mean, spread]


@instruction(
    Engine.VECTOR,
    operands=(Role("data"),),
    limits=("bn_stats_fmax",),
    rules=(_bn_length,),
    result=_fields(BN_STATS_FIELDS),
    reduced=all_free_axes,
    reach=DependenceClass.ROW,
)
def bn_stats(call: CheckedCall, data: Array) -> Array:
    """Count, mean and variance * count of each partition's even, then odd, elements: [P, 6]."""
    lines = as_float(rows(data))
    return np.concatenate(_moments(lines[:, 0::2]) + _moments(lines[:, 1::2]), axis=1)


def _bn_tuples(call: CheckedCall) -> None:
    data: Descriptor = call["data"]
    if data.free_size % BN_TUPLE:
        raise call.refused(
            "takes (count, mean, variance * count) tuples",
            f"got {data.free_size} elements a partition",
            f"{data!r}: {data.free_size} elements a partition",
            error=ShapeError,
            limit=f"a multiple of {BN_TUPLE}",
        )


@instruction(
    Engine.VECTOR,
    operands=(Role("data"),),
    rules=(_bn_tuples,),
    result=_fields(BN_AGGR_FIELDS),
    reduced=all_free_axes,
    reach=DependenceClass.ROW,
)
def bn_aggr(call: CheckedCall, data: Array) -> Array:
    """Mean and variance of each partition from bn_stats' tuples: [P, 2]."""
    lines = as_float(rows(data))
    count, mean, spread = (lines[:, k::BN_TUPLE] for k in range(BN_TUPLE))
    total = count.sum(axis=1, keepdims=True)
    centre = (count * mean).sum(axis=1, keepdims=True) / total
    variance = (spread + count * np.square(mean - centre)).sum(
        axis=1, keepdims=True
    ) / total
    return np.concatenate([centre, variance], axis=1)


# -- dropout ---------------------------------------------------------------------------------------


def _keeps_integers(call: CheckedCall) -> None:
    data: Descriptor = call["data"]
    wanted = call.wanted_dtype(data.dtype)
    if is_integer(data.dtype) and wanted != data.dtype:
        raise call.refused(
            "of integers keeps their dtype",
            f"was to cast {dtype_name(data.dtype)} to {dtype_name(wanted)}",
            f"dtype={wanted} for {data!r}",
            error=DtypeError,
        )


def _probability_of_integers(call: CheckedCall) -> None:
    data = call["data"]
    prob = call["prob"]
    if (
        is_integer(data.dtype)
        and isinstance(prob, Descriptor)
        and prob.dtype != FLOAT32
    ):
        raise call.refused(
            "of integers takes prob as a number or a float32 vector",
            f"of integers got prob in {dtype_name(prob.dtype)}",
            f"prob = {prob!r} for {data!r}",
            error=DtypeError,
            limit="float32",
            remedy="cast it to float32 by nisa.tensor_copy",
        )


@instruction(
    Engine.VECTOR,
    operands=(
        Role("data"),
        Role("prob", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=FLOATS),
    ),
    rules=(_keeps_integers, _probability_of_integers),
    only={"nki": (one_dtype("data", "dst"),)},
    result=result_like("data"),
    purpose=Purpose.DRAW,
)
def dropout(call: CheckedCall, data: Array, prob: Any) -> Array:
    """``dst = data`` with elements replaced by 0 at the given probability (a launch's own seed).

    It draws one float32 number for each element, in row-major order. Under a mask, it draws for
    all elements of the smallest box around the mask.
    """
    chance = column(prob, data.ndim) if is_array(prob) else FLOAT32.type(prob)
    keep = current().numbers().random(data.shape, dtype=np.float32) >= chance
    return np.where(keep, data, data.dtype.type(0))
