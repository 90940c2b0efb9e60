"""Selections: affine_select, range_select, select_reduce, where (AWS ``nki.isa`` v2.26.0)."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import (
    DTYPES,
    FLOAT32,
    FLOATS,
    TFLOAT32,
    WIDE_INTEGERS,
    Array,
    DType,
)
from difftest.simulator.errors import NotModelledError, ShapeError
from difftest.simulator.index import Index, Shape, broadcast_shapes
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.copy import holds
from difftest.simulator.instructions.elementwise import result_like
from difftest.simulator.instructions.record import (
    DST,
    SBUF_ONLY,
    CheckedCall,
    DependenceClass,
    Number,
    OperandKind,
    Result,
    Role,
    instruction,
)
from difftest.simulator.instructions.registers import (
    LOADS_NOTHING,
    REDUCE_RES,
    Accumulate,
    one_a_partition,
    reach_of_registers,
    read_if_used,
    reduce_into_register,
)
from difftest.simulator.instructions.rules import (
    needs_generation,
    no_broadcast,
    not_both_in_psum,
    one_of,
    same_partitions_and_free_size,
    same_rank,
)
from difftest.simulator.instructions.values import (
    as_float,
    column,
    operand_dtype,
    promote_dtypes,
)
from difftest.simulator.lifted import as_constant, constant_beside, is_array
from difftest.simulator.trace import Engine, Purpose

RANGE_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
COMPARISONS = tuple(
    op.name for op in ALU_OPS.values() if op.comparison and not op.unary
)
AFFINE_DTYPES = (*FLOATS, *map(DType, ("int8", "uint8", "int16", "uint16")))
"""The dtypes of affine_select's operands and results (AWS: nki.isa.affine_select)."""
PREDICATE_DTYPES = tuple(map(DType, ("int8", "uint8", "int16", "uint16", "bool")))
SELECTED_DTYPES = tuple(d for d in DTYPES if d != TFLOAT32 and d not in WIDE_INTEGERS)
_EXACT_INDEX = 2**24
"""range_select compares indices in float32, which is exact up to this limit."""
_FILL = float(np.finfo(np.float32).min)


# -- affine_select ---------------------------------------------------------------------------------


def _predicate_repeats(call: CheckedCall) -> None:
    """Require a predicate with a value for each element, or one that repeats."""
    shape = call["on_true_tile"].shape
    walked = call["pred"].shape
    if call.into_existing and math.prod(walked) == math.prod(shape):
        return  # counted in each partition, as v2.32.0 spells it
    fits = len(walked) <= len(shape) and all(
        have in (1, want) for have, want in zip(walked[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise call.refused(
            "takes pred of on_true_tile's shape, or one that repeats in it",
            f"got pred {list(walked)} for on_true_tile {list(shape)}",
            f"pred {list(walked)}, on_true_tile {list(shape)}",
            error=ShapeError,
        )


@functools.lru_cache(maxsize=16)
def _mask(compute: Any, shape: Shape, start: int, steps: Shape) -> Array:
    """Return where an affine expression is true; cached, because heads and exact runs repeat it."""
    mask: Array = compute(Index(shape, start, steps).array(), 0)
    return mask


@instruction(
    Engine.GPSIMD,
    operands=(
        Role("on_true_tile", buffers=SBUF_ONLY, dtypes=AFFINE_DTYPES),
        Role("pred", takes=OperandKind.INDEX),
        Role("on_false_value", takes=OperandKind.NUMBER),
    ),
    options=("cmp_op",),
    destinations=(Role("dst", buffers=SBUF_ONLY, dtypes=AFFINE_DTYPES),),
    rules=(
        _predicate_repeats,
        one_of("cmp_op", *COMPARISONS, says="takes a comparison", do="compare with"),
    ),
    only={"nki": (no_broadcast("dst", "on_true_tile"),)},
    result=result_like("on_true_tile"),
    purpose=Purpose.FILL,
)
def affine_select(
    call: CheckedCall, on_true_tile: Array, pred: Index, on_false_value: Number
) -> Array:
    """``dst = on_true_tile`` where an affine expression compares with 0, else a constant."""
    chosen = _mask(call["cmp_op"].compute, pred.shape, pred.start, pred.steps)
    if chosen.size == on_true_tile.size:  # otherwise it repeats
        chosen = chosen.reshape(on_true_tile.shape)
    return np.where(chosen, as_float(on_true_tile), as_constant(on_false_value))


# -- range_select ----------------------------------------------------------------------------------


def _range_rules(call: CheckedCall) -> None:
    last = call["range_start"] + call["on_true_tile"].free_size
    if last > _EXACT_INDEX:
        raise call.refused(
            "compares indices in float32",
            f"was to compare indices up to {last - 1}",
            f"indices up to {last - 1}",
            limit=f"{_EXACT_INDEX}",
        )


_KEEPS_THE_LARGEST = one_of(
    "reduce_op",
    "maximum",
    says="reduces with max only",
    do="reduce with",
    error=NotModelledError,
)


def _fills_with_the_least(call: CheckedCall) -> None:
    """Require a number that is the smallest float32 once it is rounded, as -3.4028235e38 is."""
    value = call["on_false_value"]
    if np.float32(value) != _FILL:
        raise call.refused(
            "fills with the smallest float32, nl.fp32.min",
            f"got on_false_value={value}",
            f"on_false_value={value}",
            limit=str(_FILL),
        )


def _in_range(call: CheckedCall, data: Array, bound0: Array, bound1: Array) -> Array:
    """Return where the free index is between the bounds of its partition."""
    places = np.arange(data[0].size) if call.places is None else call.places
    index = (call["range_start"] + places.astype(np.float32)).reshape(
        1, *data.shape[1:]
    )
    low, high = (column(bound, data.ndim) for bound in (bound0, bound1))
    chosen: Array = np.logical_and(
        call["comp_op0"].compute(index, low), call["comp_op1"].compute(index, high)
    )
    return chosen


@instruction(
    Engine.VECTOR,
    operands=(
        Role("on_true_tile", dtypes=FLOATS),
        Role("bound0", takes=OperandKind.VECTOR, dtypes=(FLOAT32,)),
        Role("bound1", takes=OperandKind.VECTOR, dtypes=(FLOAT32,)),
    ),
    options=(
        "comp_op0",
        "comp_op1",
        "range_start",
        "on_false_value",
        "reduce_op",
        "reduce_cmd",
    ),
    destinations=(DST, REDUCE_RES),
    rules=(
        needs_generation(3),
        *(
            one_of(name, *RANGE_COMPARISONS, says="compares", do="compare with")
            for name in ("comp_op0", "comp_op1")
        ),
        _fills_with_the_least,
        _range_rules,
        LOADS_NOTHING,
        _KEEPS_THE_LARGEST,
    ),
    result=result_like("on_true_tile"),
    reach=DependenceClass.ROW,
    counts_places=True,
    purpose=Purpose.SELECT,
)
def range_select(
    call: CheckedCall, on_true_tile: Array, bound0: Array, bound1: Array
) -> tuple[Array, Array | None]:
    """``dst = on_true_tile`` where the free index is between two bounds; NeuronCore-v3 on."""
    values = as_float(on_true_tile)
    chosen = _in_range(call, values, bound0, bound1)
    fill = constant_beside(values, call["on_false_value"])
    result = np.where(chosen, values, fill)
    command: Accumulate = call["reduce_cmd"]
    if "reduce_res" in call.destinations and command is Accumulate.IDLE:
        command = Accumulate.RESET_REDUCE
    return result, reduce_into_register("vector", result, call["reduce_op"], command)


# -- select_reduce ---------------------------------------------------------------------------------


@instruction(
    Engine.VECTOR,
    operands=(
        Role("on_true", dtypes=SELECTED_DTYPES),
        Role("predicate", dtypes=PREDICATE_DTYPES),
        Role("on_false", takes=OperandKind.VECTOR_OR_NUMBER),
    ),
    options=("reverse_pred", "reduce_op", "reduce_cmd"),
    destinations=(
        DST,
        Role("reduce_res", dtypes=FLOATS, optional=True, shape=one_a_partition),
    ),
    rules=(
        not_both_in_psum("on_true", "predicate"),
        same_partitions_and_free_size("dst", "predicate", "on_true"),
        LOADS_NOTHING,
        read_if_used,
        _KEEPS_THE_LARGEST,
    ),
    result=lambda call: Result(
        call.destinations["dst"].shape, call.destinations["dst"].dtype
    ),
    reach=reach_of_registers,
    purpose=Purpose.PICK,
)
def select_reduce(
    call: CheckedCall, on_true: Array, predicate: Array, on_false: Any
) -> tuple[Array, Array | None]:
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
    values = as_float(on_true)
    chosen = holds(call, predicate).reshape(values.shape)
    is_vector = is_array(on_false)
    other = (
        as_float(column(on_false, values.ndim)) if is_vector else as_constant(on_false)
    )
    result = np.where(chosen, values, other).reshape(call.result.shape)
    return result, reduce_into_register(
        "vector", result, call["reduce_op"], call["reduce_cmd"]
    )


# -- where -----------------------------------------------------------------------------------------


def _chosen(call: CheckedCall) -> Result:
    """Return the result: shapes broadcast; the dtype is the only tile's, or a promotion."""
    shape = call["condition"].shape
    sides = [call[name] for name in ("x", "y")]
    tiles = [side for side in sides if isinstance(side, Descriptor)]
    for tile in tiles:
        shape = broadcast_shapes(shape, tile.shape, "nl.where's condition, x and y")
    if len(tiles) == 1:
        dtype = tiles[0].dtype
    else:
        dtype = promote_dtypes(*(operand_dtype(side) for side in sides))
    return Result(shape, call.wanted_dtype(dtype))


@instruction(
    Engine.VECTOR,
    operands=(
        Role("condition"),
        Role("x", takes=OperandKind.TILE_OR_NUMBER),
        Role("y", takes=OperandKind.TILE_OR_NUMBER),
    ),
    rules=(same_rank("condition", "x", "y"),),
    result=_chosen,
    pages=("nki/api/generated/nki.language.where",),
)
def where(call: CheckedCall, condition: Array, x: Any, y: Any) -> Array:
    """``dst = condition ? x : y``, element by element (``nl.where``)."""
    sides: list[Array] = [v if is_array(v) else as_constant(v) for v in (x, y)]
    if not all(side.dtype == call.result.dtype for side in sides):
        sides = [as_float(side) for side in sides]
    first, second = sides
    return np.where(condition != 0, first, second)
