"""Reductions: along the free axes (Vector Engine) and across partitions (GpSimd Engine).

Arithmetic reductions work in float32 and round once. Source: AWS ``nki.isa`` at tag v2.26.0.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.index import as_integer
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.elementwise import (
    Operand,
    apply_step,
    need_vector_ops,
    no_gpsimd_in_psum,
)
from difftest.simulator.instructions.operands import (
    as_float,
    compute_view,
    need_column,
    need_integers,
    write,
)
from difftest.simulator.instructions.table import instruction
from difftest.simulator.memory import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

_WITH_TENSOR_SCALAR = ("add", "subtract", "multiply", "maximum", "minimum")
"""The reductions of tensor_scalar_reduce (AWS: nisa.tensor_scalar_reduce)."""


_UFUNCS: dict[str, Any] = {
    "add": np.add,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
_LOGICAL_UFUNCS: dict[str, Any] = {
    "add": np.add,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}

_ORDERLESS = ("maximum", "minimum")
"""Their results do not depend on the elements' order, so that they may be reduced by slices."""
_FEW = 16
"""Elements up to which slices are faster than NumPy's own reduction."""


class Accumulate(Enum):
    """``nisa.reduce_cmd``: what an instruction does with its engine's accumulation registers."""

    IDLE = 0
    RESET = 1
    REDUCE = 2
    RESET_REDUCE = 3


def reduce_array(op: AluOp, values: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
    """NumPy's reduction of ``values``, in float32 (or on bit patterns)."""
    ufunc = _UFUNCS.get(op.name)
    if op.name in _ORDERLESS and math.prod(values.shape[k] for k in axes) <= _FEW:
        return _reduce_by_slices(ufunc, as_float(values), axes, keepdims=keepdims)
    if ufunc is not None:
        source = values if op.bitvec else as_float(values)
        return np.asarray(ufunc.reduce(source, axis=axes, keepdims=keepdims))
    floats = as_float(values)
    if op.name == "subtract":
        return _subtract_along(floats, axes, keepdims=keepdims)
    truth = floats != 0
    logical: Any = _LOGICAL_UFUNCS[op.name]
    return np.asarray(logical.reduce(truth, axis=axes, keepdims=keepdims))


def _reduce_by_slices(ufunc: Any, values: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
    """A reduction of few elements as operations on whole slices: several times faster.

    NumPy reduces short axes element by element; a pooling window is such a case.
    """
    front = np.moveaxis(values, axes, range(len(axes)))
    places = list(np.ndindex(front.shape[: len(axes)]))
    result = front[places[0]].copy()
    for place in places[1:]:
        ufunc(result, front[place], out=result)
    return np.expand_dims(result, axes) if keepdims else result


def _subtract_along(values: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
    """The first element minus the others, in order along the reduced axes."""
    lead = tuple(k for k in range(values.ndim) if k not in axes)
    moved = values.transpose(*lead, *axes).reshape(*(values.shape[k] for k in lead), -1)
    result: Array = moved[..., 0] - moved[..., 1:].sum(axis=-1, dtype=np.float32)
    return np.expand_dims(result, axes) if keepdims else result


def reduced_shape(data: Tile, axes: tuple[int, ...], *, keepdims: bool) -> Shape:
    """The result's shape: the reduced axes removed (at least [P, 1]) or kept with size 1."""
    shape = data.tile_shape()
    if keepdims:
        return tuple(1 if k in axes else size for k, size in enumerate(shape))
    kept = tuple(size for k, size in enumerate(shape) if k not in axes)
    return kept if len(kept) > 1 else (*kept, 1)


def reduction_axes(axis: object, data: Tile, where: str, *, trailing: bool) -> tuple[int, ...]:
    """The reduced axes, ascending.

    Raises
    ------
    ShapeError : one is the partition axis or beyond the tile; or, with ``trailing``, they are not
        the last consecutive ones.
    """
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = len(data.tile_shape())
    axes: list[int] = []
    for item in given:
        number = as_integer(item, f"{where}'s axis")
        number = number + ndim if number < 0 else number
        if not 0 < number < ndim or number in axes:
            raise ShapeError(
                f"{where} reduces free axes",
                received=f"axis={axis} of {data!r}",
                limit=f"axes 1 to {ndim - 1}",
                remedy="across partitions use nisa.tensor_partition_reduce, or transpose first",
            )
        axes.append(number)
    axes.sort()
    if trailing and axes != list(range(ndim - len(axes), ndim)):
        raise ShapeError(
            f"{where} reduces the last consecutive axes of the tile",
            received=f"axis={axis} of {data!r}",
            limit=f"{[list(range(k, ndim)) for k in range(ndim - 1, 0, -1)]}",
            remedy="index the tile with nl.mgrid so that the axes to reduce come last",
        )
    return tuple(axes)


@instruction("tensor_reduce", Engine.VECTOR)
def tensor_reduce(
    dst: Tile,
    data: Tile,
    op: AluOp,
    axes: tuple[int, ...],
    *,
    negate: bool = False,
) -> None:
    """``dst = op-reduction of data`` over free axes, times -1 if ``negate``."""
    if op.bitvec:
        need_integers(f"tensor_reduce({op.name})", data=data.dtype, result=dst.dtype)
        if negate:
            raise KernelError(
                "negate goes with arithmetic operators", received=f"op={op.name}, negate=True"
            )
    result = reduce_array(op, compute_view(data), axes, keepdims=False)
    result = np.asarray(result).reshape(dst.shape)
    write(dst, -as_float(result) if negate else result)
    current().emit("tensor_reduce", Engine.VECTOR, (dst,), (data,), op=op.name, axes=axes)


@instruction("tensor_partition_reduce", Engine.GPSIMD)
def tensor_partition_reduce(dst: Tile, data: Tile, op: AluOp) -> None:
    """``dst = op-reduction of data`` across partitions."""
    no_gpsimd_in_psum(Engine.GPSIMD, "tensor_partition_reduce", data=data)
    if op.bitvec:
        need_integers(f"tensor_partition_reduce({op.name})", data=data.dtype, result=dst.dtype)
    write(dst, reduce_array(op, compute_view(data), (0,), keepdims=True))
    current().emit("tensor_partition_reduce", Engine.GPSIMD, (dst,), (data,), op=op.name)


def accumulate(
    engine: str,
    values: Array,
    op: AluOp | None,
    command: Accumulate,
    into: Tile | None,
) -> None:
    """Add up ``values`` along the free axes in an engine's registers, and read them out.

    With the operator maximum their largest is kept instead. The registers are one for each
    partition and live across instructions (AWS: ``nisa.reduce_cmd``). ``into`` receives them,
    [P, 1].
    """
    core = current()
    largest = op is not None and op.name == "maximum"
    lanes = values.shape[0]
    if command in (Accumulate.RESET, Accumulate.RESET_REDUCE) or engine not in core.accumulators:
        start = np.float32(-np.inf if largest else 0)
        core.accumulators[engine] = np.full((core.machine.partitions, 1), start)
    held = core.accumulators[engine][:lanes]
    if command in (Accumulate.REDUCE, Accumulate.RESET_REDUCE):
        flat = values.reshape(lanes, -1)
        if largest:
            held[...] = np.maximum(held, np.maximum.reduce(flat, axis=1, keepdims=True))
        else:
            held += np.add.reduce(flat, axis=1, keepdims=True, dtype=np.float32)
    if into is not None:
        write(into, held.copy())


@instruction("tensor_scalar_reduce", Engine.VECTOR)
def tensor_scalar_reduce(
    dst: Tile, data: Tile, step: Operand, op: AluOp, reduce_into: Tile, *, where: Any = None
) -> None:
    """``dst = data <op0> operand0``, and its reduction along the free axes into ``reduce_res``."""
    if step.op.bitvec:
        raise KernelError(
            "tensor_scalar_reduce takes an arithmetic operator", received=f"op0={step.op.name}"
        )
    if op.name not in _WITH_TENSOR_SCALAR:
        raise KernelError(
            "tensor_scalar_reduce takes few reductions",
            received=f"reduce_op={op.name}",
            limit=", ".join(_WITH_TENSOR_SCALAR),
        )
    need_vector_ops("tensor_scalar_reduce", step.op)
    need_column(reduce_into, "reduce_res", "tensor_scalar_reduce", data)
    result = apply_step(step, as_float(compute_view(data)))
    axes = tuple(range(1, result.ndim))
    reduced = reduce_array(op, result, axes, keepdims=True).reshape(result.shape[0], 1)
    write(dst, result, where)
    write(reduce_into, reduced)
    vectors = (step.value,) if isinstance(step.value, Tile) else ()
    current().emit(
        "tensor_scalar_reduce",
        Engine.VECTOR,
        (dst, reduce_into),
        (data, *vectors),
        op=f"{step.op.name}+{op.name}",
    )
