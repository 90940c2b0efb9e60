"""Copies on chip, and tiles made of constants: tensor_copy and kin, memset, iota.

Source: AWS ``nki.isa`` at tag v2.26.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import INTEGERS, Array, is_float, name_of, round_to
from difftest.simulator.errors import DtypeError, KernelError, ShapeError
from difftest.simulator.index import Index
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.elementwise import no_gpsimd_in_psum, not_both_in_psum
from difftest.simulator.instructions.operands import (
    Scalar,
    as_float,
    check_destination,
    compute_view,
    need_dtype,
    same_elements,
    write,
)
from difftest.simulator.instructions.table import instruction
from difftest.simulator.memory import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

COPY_ENGINES = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)
PREDICATE_DTYPES = tuple(np.dtype(t) for t in ("uint8", "uint16", "uint32", "bool"))


def _through_engine(values: Array, src: Tile, dst: Tile, engine: Engine) -> Array:
    """What an engine's copy does to the values: bit exact only where it need not cast.

    The Scalar Engine always goes through float32; the others only if the dtypes differ.
    """
    if src.dtype == dst.dtype and engine is not Engine.SCALAR:
        return values
    return as_float(values)


@instruction("tensor_copy", Engine.UNKNOWN, *COPY_ENGINES)
def tensor_copy(
    dst: Tile, src: Tile, engine: Engine, *, where: Any = None, move: bool = False
) -> None:
    """``dst = src`` on chip, cast to ``dst``'s dtype."""
    no_gpsimd_in_psum(engine, "tensor_copy", src=src, dst=dst)
    write(dst, _through_engine(compute_view(src), src, dst, engine), where)
    current().emit("tensor_copy", engine, (dst,), (src,), moved=src if move else None)


@instruction("tensor_copy_dynamic_src", Engine.UNKNOWN, *COPY_ENGINES)
def tensor_copy_dynamic_src(dst: Tile, src: IndirectTile, engine: Engine) -> None:
    """``dst = src`` with the source's offset held in a tile."""
    arrays, inside = src.resolve(skip=False)
    src.check_written(arrays, inside)
    write(dst, _through_engine(src.elements()[arrays], src.base, dst, engine))
    current().emit("tensor_copy_dynamic_src", engine, (dst,), (src.base, *src.index_tiles))


def _fills(shape: Shape, target: Shape) -> bool:
    """Whether a shape broadcasts to ``target``, axis by axis."""
    return len(shape) == len(target) and all(
        have in (1, want) for have, want in zip(shape, target, strict=True)
    )


@instruction("tensor_copy_dynamic_dst", Engine.UNKNOWN, *COPY_ENGINES)
def tensor_copy_dynamic_dst(dst: IndirectTile, src: Tile, engine: Engine) -> None:
    """``dst = src`` with the destination's offset held in a tile."""
    check_destination(dst.base)
    arrays, inside = dst.resolve(skip=False)
    values = compute_view(src)
    if not _fills(values.shape, dst.shape):
        raise ShapeError(
            "tensor_copy_dynamic_dst takes src of dst's shape, or one that repeats in it",
            received=f"src {list(src.shape)}, dst {list(dst.shape)}",
        )
    values = np.broadcast_to(values, dst.shape)
    dst.elements()[arrays] = round_to(
        _through_engine(values, src, dst.base, engine), dst.base.dtype
    )
    dst.mark_written(arrays, inside)
    current().emit("tensor_copy_dynamic_dst", engine, (dst.base,), (src, *dst.index_tiles))


def _constant(value: Scalar, dst: Tile) -> Array:
    """A number before it is rounded into ``dst``: an integer for integers stays exact."""
    exact = isinstance(value, (int, np.integer)) and not is_float(dst.dtype)
    return np.asarray(value, dtype=np.int64 if exact else np.float32)


@instruction("tensor_copy_predicated", Engine.VECTOR)
def tensor_copy_predicated(
    dst: Tile, src: Tile | Scalar, predicate: Tile, *, reverse: bool = False, where: Any = None
) -> None:
    """``dst = src`` where the predicate is true; elsewhere ``dst`` keeps its value."""
    need_dtype(predicate, "predicate", "tensor_copy_predicated", PREDICATE_DTYPES)
    same_elements("tensor_copy_predicated", dst=dst, predicate=predicate)
    chosen = compute_view(predicate) != 0
    if reverse:
        chosen = ~chosen
    reads = [predicate]
    if isinstance(src, Tile):
        if src.dtype != dst.dtype:
            raise DtypeError(
                "tensor_copy_predicated takes src and dst of one dtype",
                received=f"src {name_of(src.dtype)}, dst {name_of(dst.dtype)}",
            )
        not_both_in_psum("tensor_copy_predicated", src=src, predicate=predicate)
        same_elements("tensor_copy_predicated", dst=dst, src=src)
        values = compute_view(src)
        reads.append(src)
    else:
        values = _constant(src, dst)
    if where is not None:
        chosen = chosen & where
    write(dst, values, chosen.reshape(dst.shape))
    current().emit("tensor_copy_predicated", Engine.VECTOR, (dst,), tuple(reads))


@instruction("memset", Engine.VECTOR, Engine.GPSIMD)
def memset(dst: Tile, value: Scalar, engine: Engine, *, where: Any = None) -> None:
    """Every element of ``dst`` becomes a constant."""
    write(dst, np.full(dst.shape, _constant(value, dst)), where)
    current().emit("memset", engine, (dst,), value=float(value))


@instruction("iota", Engine.GPSIMD)
def iota(dst: Tile, index: Index, *, where: Any = None) -> None:
    """``dst`` becomes the values of an index expression, computed in 32-bit integers."""
    values = index.array()
    info = np.iinfo(np.int32)
    if values.min() < info.min or values.max() > info.max:
        raise KernelError(
            "iota computes in 32-bit integers",
            received=f"values from {values.min()} to {values.max()}",
            limit=f"{info.min} to {info.max}",
        )
    result = values if dst.dtype in INTEGERS else values.astype(np.float32)
    write(dst, result, where)
    current().emit("iota", Engine.GPSIMD, (dst,))


@instruction("rand", Engine.GPSIMD)
def rand(dst: Tile) -> None:
    """Every element of ``dst`` becomes uniformly random in [0, 1) (a launch's own seed)."""
    write(dst, current().random.random(dst.shape, dtype=np.float32))
    current().emit("rand", Engine.GPSIMD, (dst,))
