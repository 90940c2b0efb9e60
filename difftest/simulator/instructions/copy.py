"""On-chip copies (tensor_copy and its variants), and constant tiles: memset, iota.

Source: AWS ``nki.isa`` at tag v2.26.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import (
    FLOAT8_E8M0FNU,
    FLOAT32,
    INTEGERS,
    Array,
    DType,
    from_bits,
    is_float,
    round_to,
    to_bits,
)
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.index import Index
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.anomalies import rounded_integers
from difftest.simulator.instructions.elementwise import result_like
from difftest.simulator.instructions.gate import check_destination, write
from difftest.simulator.instructions.record import (
    SBUF_ONLY,
    CheckedCall,
    MaskedValues,
    OperandKind,
    Result,
    Role,
    instruction,
    moved,
)
from difftest.simulator.instructions.rules import (
    no_gpsimd_in_psum,
    not_both_in_psum,
    one_dtype,
    same_partitions_and_free_size,
    same_shape,
)
from difftest.simulator.instructions.values import as_float
from difftest.simulator.lifted import as_constant, is_array
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Purpose

COPY_ENGINES = (Engine.UNKNOWN, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)
"""The compiler chooses the engine, unless the kernel names one."""
PREDICATE_DTYPES = tuple(map(DType, ("uint8", "uint16", "uint32", "bool")))


def through_engine(call: CheckedCall, values: Array, dtype: DType) -> Array:
    """Return the values after an engine's copy: bit exact if no cast is needed.

    The Scalar Engine always converts through float32; the others only if the dtypes differ.
    """
    if dtype == call.result.dtype and call.engine is not Engine.SCALAR:
        return values
    return as_float(values)


def _no_scalar_engine_of_v2(call: CheckedCall) -> None:
    if call.engine is Engine.SCALAR and call.machine.nc_version == 2:
        raise KernelError(
            "tensor_copy does not support engine.scalar on NeuronCore-v2 (Trn1/Inf2). Use "
            "nisa.activation with op=nl.copy instead.",
            happened="tensor_copy was to run on the Scalar Engine of NeuronCore-v2",
            received=f"engine.scalar on {call.machine.name}",
        )


@instruction(
    *COPY_ENGINES,
    operands=(Role("src", by_offsets=True),),
    rules=(no_gpsimd_in_psum,),
    only={"nki": (_no_scalar_engine_of_v2,)},
    result=result_like("src"),
    moves=moved,
    purpose=Purpose.COPY,
)
def tensor_copy(call: CheckedCall, src: Array) -> Array:
    """``dst = src`` on chip, cast to ``dst``'s dtype."""
    return through_engine(call, src, call["src"].dtype)


@instruction(
    *COPY_ENGINES,
    operands=(Role("src", takes=OperandKind.INDIRECT),),
    rules=(no_gpsimd_in_psum,),
    result=result_like("src"),
    in_place=True,
    moves=moved,
)
def tensor_copy_dynamic_src(
    call: CheckedCall, dst: Tile, src: IndirectTile, *, where: Array | None
) -> None:
    """``dst = src`` with the source's offset held in a tile."""
    picked = src._elements()
    values = from_bits(picked, src.dtype) if src._holds_bits else picked
    write(dst, through_engine(call, values, src.dtype), where)


@instruction(
    *COPY_ENGINES,
    operands=(Role("src"),),
    destinations=(Role("dst", takes=OperandKind.INDIRECT),),
    result=result_like("src"),
    rules=(same_shape("src", "dst"), no_gpsimd_in_psum),
    in_place=True,
    moves=moved,
)
def tensor_copy_dynamic_dst(
    call: CheckedCall, dst: IndirectTile, src: Tile, *, where: Array | None
) -> None:
    """``dst = src`` with the destination's offset held in a tile."""
    check_destination(dst._base)
    values = through_engine(call, src._engine_values(unwritten=True), src.dtype)
    rounded = round_to(values, dst.dtype)
    held = to_bits(rounded, dst.dtype) if dst._holds_bits else rounded
    dst._give(dst._base._elements(), held)
    dst._mark()


# -- where a predicate holds -----------------------------------------------------------------------


def holds(call: CheckedCall, predicate: Array) -> Array:
    """Return where a predicate is true, or false if the call reverses it."""
    chosen: Array = predicate == 0 if call["reverse_pred"] else predicate != 0
    return chosen


def constant(value: Any, dtype: DType) -> Array:
    """Return a number to be rounded into ``dtype``; an integer for integers stays exact.

    An integer of more than 64 bits is clipped to 64 bits: it saturates anyway.
    """
    if dtype == FLOAT8_E8M0FNU or (dtype.names and value == 0):
        # as a host casts: E8M0 lacks a zero, and gets NaN
        return as_constant(value).astype(dtype)
    exact = isinstance(value, (int, np.integer)) and not is_float(dtype)
    if not exact:
        return as_constant(value)
    return np.asarray(min(max(int(value), -(2**63)), 2**63 - 1), dtype=np.int64)


@instruction(
    Engine.VECTOR,
    operands=(
        Role("src", takes=OperandKind.TILE_OR_NUMBER),
        Role("predicate", by_offsets=True, dtypes=PREDICATE_DTYPES),
    ),
    options=("reverse_pred",),
    rules=(
        same_partitions_and_free_size("dst", "predicate", "src"),
        not_both_in_psum("src", "predicate"),
        one_dtype("src", "dst"),
    ),
    result=lambda call: Result(
        call.destinations["dst"].shape, call.destinations["dst"].dtype
    ),
    purpose=Purpose.PICK,
)
def tensor_copy_predicated(
    call: CheckedCall, src: Any, predicate: Array
) -> MaskedValues:
    """``dst = src`` where the predicate is true; elsewhere ``dst`` keeps its value."""
    shape = call.result.shape
    chosen = holds(call, predicate).reshape(shape)
    values = src.reshape(shape) if is_array(src) else constant(src, call.result.dtype)
    return MaskedValues(values, chosen)


# -- constants -------------------------------------------------------------------------------------


def _of_shape(call: CheckedCall) -> Result:
    """Return an existing tile's result, or a result of the shape that the kernel names."""
    dst = call.destinations.get("dst")
    return Result(
        call["shape"] if dst is None else dst.shape, call.wanted_dtype(FLOAT32)
    )


@instruction(
    Engine.VECTOR,
    Engine.GPSIMD,
    operands=(Role("value", takes=OperandKind.NUMBER),),
    options=("shape",),
    defaults={"shape": None},
    destinations=(Role("dst", blocks=True),),
    rules=(no_gpsimd_in_psum,),
    result=_of_shape,
    purpose=Purpose.FILL,
)
def memset(call: CheckedCall, value: Any) -> Array:
    """Every element of ``dst`` becomes a constant."""
    return constant(value, call.result.dtype)


def _two_dimensions(call: CheckedCall) -> None:
    expr: Index = call["expr"]
    if expr.ndim < 2:
        raise call.refused(
            "takes an expression of at least two dimensions, partition and free",
            f"got an expression of {expr.ndim} dimensions",
            f"{expr!r}",
            error=ShapeError,
            remedy="give the index of partitions the shape [P, 1], and the free ones [1, F]",
        )


@instruction(
    Engine.GPSIMD,
    operands=(Role("expr", takes=OperandKind.INDEX),),
    destinations=(Role("dst", buffers=SBUF_ONLY),),
    rules=(_two_dimensions,),
    result=lambda call: Result(call["expr"].shape, call.wanted_dtype(FLOAT32)),
)
def iota(call: CheckedCall, expr: Index) -> Array:
    """``dst`` becomes the values of an index expression, computed in 32-bit integers."""
    values = expr.array()
    info = np.iinfo(np.int32)
    if values.min() < info.min or values.max() > info.max:
        raise call.refused(
            "computes in 32-bit integers",
            f"was to make numbers from {values.min()} to {values.max()}",
            f"values from {values.min()} to {values.max()}",
            limit=f"{info.min} to {info.max}",
        )
    if call.result.dtype in INTEGERS:
        return values
    rounded_integers(values.astype(np.int32))
    return values.astype(np.float32)


@instruction(
    Engine.GPSIMD,
    operands=(),
    options=("shape",),
    defaults={"shape": None},
    destinations=(Role("dst", buffers=SBUF_ONLY),),
    result=_of_shape,
    pages=("nki/api/generated/nki.language.rand",),
    purpose=Purpose.DRAW,
)
def rand(call: CheckedCall) -> Array:
    """Every element of ``dst`` becomes uniformly random in [0, 1) (a launch's own seed)."""
    return current().numbers().random(call.result.shape, dtype=np.float32)
