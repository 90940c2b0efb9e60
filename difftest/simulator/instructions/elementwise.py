"""Vector, Scalar and GpSimd Engines, element by element: tensor_tensor, tensor_scalar and kin.

Arithmetic casts operands to float32, computes, and rounds once into the destination's dtype.
Bitvec operators take integers as bit patterns. Add, subtract and multiply of tiles that are all
of 32-bit integers, the result too, are the GpSimd Engine's (the rule as v2.32.0 spells it): exact,
and beyond 32 bits they wrap, which is assumed. Source: AWS ``nki.isa`` at tag v2.26.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT32, Array
from difftest.simulator.errors import BufferError, DtypeError, KernelError, ShapeError
from difftest.simulator.index import broadcast_shapes
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.operands import (
    ON_CHIP,
    Scalar,
    as_float,
    compute_view,
    is_number,
    need_integers,
    need_tile,
    same_partitions,
    write,
)
from difftest.simulator.instructions.table import choose_engine, instruction
from difftest.simulator.memory import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

WIDE_INTEGERS = (np.dtype(np.int32), np.dtype(np.uint32))
_EXACT_INTEGER_OPS = ("add", "subtract", "multiply")
_SCALAR_ENGINE_PAIRS = (("multiply", "add"), ("multiply", None), ("add", None))
"""What the Scalar Engine's tensor_scalar can do (AWS: nki.isa.tensor_scalar)."""


def not_both_in_psum(where: str, **tiles: Tile) -> None:
    """Raise :class:`BufferError` if two inputs lie in PSUM, which has one read port for them."""
    if sum(tile.space is Space.PSUM for tile in tiles.values()) > 1:
        raise BufferError(
            f"{where}: the two inputs are not both in PSUM",
            received=", ".join(f"{name} = {tile!r}" for name, tile in tiles.items()),
            limit="at most one of them in psum",
            remedy="copy one of them to SBUF first (nisa.tensor_copy)",
        )


def tensor_tensor_engine(
    data1: Tile, data2: Tile, op: AluOp, wanted: Engine, result: np.dtype[Any]
) -> Engine:
    """The engine that a tensor_tensor runs on; raises where the operands do not fit it.

    ``result`` is the destination's dtype: integers that become floats are the Vector Engine's.
    """
    if op.unary:
        raise KernelError(
            "tensor_tensor takes a binary operator",
            received=f"op={op.name}",
            remedy="use nisa.tensor_scalar or nisa.activation",
        )
    exact = _is_exact(op, data1.dtype, data2.dtype, result)
    if op.engines == (Engine.GPSIMD,) or (exact and wanted is not Engine.VECTOR):
        engine = choose_engine("tensor_tensor", wanted, (Engine.GPSIMD,))
    else:
        engine = choose_engine("tensor_tensor", wanted)
    no_gpsimd_in_psum(engine, f"tensor_tensor({op.name})", data1=data1, data2=data2)
    return engine


def no_gpsimd_in_psum(engine: Engine, where: str, **tiles: Tile) -> None:
    """Raise :class:`BufferError` if the GpSimd Engine is to touch PSUM."""
    for name, tile in tiles.items():
        if engine is Engine.GPSIMD and tile.space is Space.PSUM:
            raise BufferError(
                "the GpSimd Engine cannot access PSUM",
                received=f"{where} with {name} = {tile!r}",
                limit="sbuf",
                remedy="copy it to SBUF first (nisa.tensor_copy)",
            )


def tensor_tensor_shape(data1: Tile, data2: Tile, where: str = "tensor_tensor") -> Shape:
    """The result's shape: free dimensions broadcast, partitions must be equal."""
    same_partitions(where, data1=data1, data2=data2)
    same_rank(where, data1, data2)
    return broadcast_shapes(data1.tile_shape(), data2.tile_shape(), f"{where} operands")


def same_rank(where: str, *tiles: Tile) -> None:
    """Raise :class:`ShapeError` if tiles have different numbers of dimensions.

    NumPy would align the last dimensions, and so the partitions of one with free elements of the
    other, which no engine does.
    """
    if len({len(tile.tile_shape()) for tile in tiles}) > 1:
        raise ShapeError(
            f"{where} takes operands with the same number of dimensions",
            received=" and ".join(str(list(tile.shape)) for tile in tiles),
            remedy="insert dimensions of size 1 behind the partitions: tile[:, None, :]",
        )


def _is_exact(op: AluOp, *dtypes: np.dtype[Any]) -> bool:
    """Whether it is one of the integer operations that the GpSimd Engine does in 32 bits."""
    return op.name in _EXACT_INTEGER_OPS and all(dtype in WIDE_INTEGERS for dtype in dtypes)


def _apply(op: AluOp, left: Array, right: Array, *, exact: bool = False) -> Array:
    if not op.bitvec:
        kind = np.dtype(np.int64) if exact else FLOAT32
        left, right = left.astype(kind, copy=False), right.astype(kind, copy=False)
    with np.errstate(all="ignore"):
        result: Array = op.compute(left) if op.unary else op.compute(left, right)
    return result


@instruction("tensor_tensor", Engine.VECTOR, Engine.GPSIMD)
def tensor_tensor(
    dst: Tile, data1: Tile, data2: Tile, op: AluOp, engine: Engine, *, where: Any = None
) -> None:
    """``dst = data1 <op> data2``, element by element."""
    not_both_in_psum("tensor_tensor", data1=data1, data2=data2)
    if op.bitvec:
        need_integers(
            f"tensor_tensor({op.name})", data1=data1.dtype, data2=data2.dtype, result=dst.dtype
        )
    exact = engine is Engine.GPSIMD and _is_exact(op, data1.dtype, data2.dtype, dst.dtype)
    result = _apply(op, compute_view(data1), compute_view(data2), exact=exact)
    if exact:
        result = result.astype(dst.dtype)  # the low 32 bits
    write(dst, result, where)
    current().emit("tensor_tensor", engine, (dst,), (data1, data2), op=op.name)


class Operand(NamedTuple):
    """One step of tensor_scalar: the operator, a scalar or a [P, 1] tile, and the order."""

    op: AluOp
    value: Tile | Scalar
    reverse: bool = False


def vector_or_scalar(value: object, name: str, where: str, data: Tile) -> Tile | Scalar:
    """``value`` as a number, or as a tile with one element in each of ``data``'s partitions."""
    if is_number(value):
        return value
    tile = need_tile(value, name, where)
    shape, wanted = tile.tile_shape(), (data.tile_shape()[0], 1)
    if shape[0] != wanted[0] or tile.size != wanted[0]:
        raise ShapeError(
            f"{where} takes {name} as a scalar or a vector with one element in each partition",
            received=f"{name} {list(tile.shape)} for data {list(data.shape)}",
            limit=f"a number, or shape {list(wanted)}",
            remedy="use nisa.tensor_tensor for operands of the data's own shape",
        )
    return tile


def operand_values(value: Tile | Scalar, ndim: int, dtype: np.dtype[Any]) -> Array:
    """A scalar or [P, 1] operand, shaped to broadcast against ``ndim`` dimensions."""
    if isinstance(value, Tile):
        column = compute_view(value)
        return column.reshape((column.shape[0],) + (1,) * (ndim - 1))
    return np.asarray(value, dtype=dtype)


def _bit_pattern(step: Operand, ndim: int, dtype: np.dtype[Any]) -> Array:
    """A bitvec operator's operand; a number may be spelled signed or unsigned.

    Raises
    ------
    DtypeError : it is no integer, or has more bits than the data.
    """
    value = step.value
    if isinstance(value, Tile):
        need_integers("tensor_scalar", operand=value.dtype)
        return operand_values(value, ndim, dtype)
    if step.op.unary:
        return np.zeros((), dtype=dtype)
    bits = 8 * dtype.itemsize
    number = float(value)
    if not number.is_integer() or not -(1 << (bits - 1)) <= number < (1 << bits):
        raise DtypeError(
            "bitvec operators take integer operands of the data's width",
            received=f"{step.op.name} of {dtype} with operand {value!r}",
            limit=f"{-(1 << (bits - 1))} to {(1 << bits) - 1}",
        )
    return np.array(int(number) % (1 << bits), dtype=f"u{dtype.itemsize}").view(dtype)


def apply_step(step: Operand, values: Array) -> Array:
    """``values <op> operand`` (or reversed) for one step of tensor_scalar."""
    if step.op.bitvec:
        operand = _bit_pattern(step, values.ndim, values.dtype)
    else:
        operand = operand_values(step.value, values.ndim, FLOAT32)
    left, right = (operand, values) if step.reverse else (values, operand)
    return _apply(step.op, left, right)


def same_kind(where: str, *ops: AluOp) -> None:
    """Raise :class:`KernelError` if bitvec and arithmetic operators meet in one instruction."""
    if len({op.bitvec for op in ops}) > 1:
        raise KernelError(
            f"{where}'s two operators are both bitvec or both arithmetic",
            received=" and ".join(op.name for op in ops),
            remedy="use two instructions",
        )


def need_vector_ops(where: str, *ops: AluOp) -> None:
    """Raise :class:`KernelError` if an operator is not the Vector Engine's."""
    for op in ops:
        if Engine.VECTOR not in op.engines:
            raise KernelError(
                f"{where} runs on the Vector Engine",
                received=f"op={op.name}",
                limit=f"{op.name} runs on {', '.join(engine.value for engine in op.engines)}",
                remedy="use nisa.tensor_scalar or nisa.activation for it",
            )


def _check_kinds(steps: list[Operand], data: Tile, dst: Tile, engine: Engine) -> None:
    same_kind("tensor_scalar", *(step.op for step in steps))
    if steps[0].op.bitvec:
        need_integers("tensor_scalar", data=data.dtype, result=dst.dtype)
    names = tuple(step.op.name for step in steps) + (None,) * (2 - len(steps))
    if engine is Engine.SCALAR and names not in _SCALAR_ENGINE_PAIRS:
        raise KernelError(
            "the Scalar Engine's tensor_scalar has few operators",
            received=f"op0={names[0]}, op1={names[1]}",
            limit="multiply then add, multiply, add",
            remedy="leave engine out, or name nisa.vector_engine",
        )


def tensor_scalar_engine(steps: list[Operand], wanted: Engine) -> Engine:
    """The engine of a tensor_scalar: rsqrt and power are the GpSimd Engine's."""
    if any(Engine.VECTOR not in step.op.engines for step in steps):
        return choose_engine("tensor_scalar", wanted, (Engine.GPSIMD, Engine.SCALAR))
    return choose_engine("tensor_scalar", wanted)


@instruction("tensor_scalar", Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)
def tensor_scalar(
    dst: Tile, data: Tile, steps: list[Operand], engine: Engine, *, where: Any = None
) -> None:
    """``dst = (data <op0> operand0) <op1> operand1``, operands broadcast along the free axes."""
    _check_kinds(steps, data, dst, engine)
    no_gpsimd_in_psum(engine, "tensor_scalar", data=data)
    result = compute_view(data)
    for step in steps:
        result = apply_step(step, result)
    write(dst, result, where)
    vectors = tuple(step.value for step in steps if isinstance(step.value, Tile))
    current().emit(
        "tensor_scalar", engine, (dst,), (data, *vectors), op="+".join(s.op.name for s in steps)
    )


@instruction("scalar_tensor_tensor", Engine.VECTOR)
def scalar_tensor_tensor(
    dst: Tile,
    data: Tile,
    first: Operand,
    second: AluOp,
    operand1: Tile,
    reverse1: bool,
    *,
    where: Any = None,
) -> None:
    """``dst = (data <op0> operand0) <op1> operand1``, operand1 of the data's shape."""
    not_both_in_psum("scalar_tensor_tensor", data=data, operand1=operand1)
    same_kind("scalar_tensor_tensor", first.op, second)
    need_vector_ops("scalar_tensor_tensor", first.op, second)
    if second.bitvec:
        need_integers(
            "scalar_tensor_tensor", data=data.dtype, operand1=operand1.dtype, result=dst.dtype
        )
    partial = apply_step(first, compute_view(data))
    other = compute_view(operand1)
    left, right = (other, partial) if reverse1 else (partial, other)
    write(dst, _apply(second, left, right), where)
    vectors = (first.value,) if isinstance(first.value, Tile) else ()
    current().emit(
        "scalar_tensor_tensor",
        Engine.VECTOR,
        (dst,),
        (data, *vectors, operand1),
        op=f"{first.op.name}+{second.name}",
    )


@instruction("reciprocal", Engine.VECTOR)
def reciprocal(dst: Tile, data: Tile, *, where: Any = None) -> None:
    """``dst = 1 / data``."""
    with np.errstate(all="ignore"):
        write(dst, np.float32(1) / as_float(compute_view(data)), where)
    current().emit("reciprocal", Engine.VECTOR, (dst,), (data,))


def need_operand(value: object, name: str, where: str) -> Tile | Scalar:
    """``value`` as a number or an on-chip tile."""
    if is_number(value):
        return value
    return need_tile(value, name, where, ON_CHIP)
