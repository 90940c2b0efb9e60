"""DMA: copies between HBM and SBUF, with casts, transposes, gathers and scatters.

The DMA engines read and write HBM and SBUF, not PSUM. They cast through float32 where dtypes
differ. Source: AWS ``nki.isa.dma_copy`` (v2.26.0; the rule on sizes as v2.32.0 spells it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    Array,
    from_bits,
    round_to,
    to_bits,
)
from difftest.simulator.errors import KernelError, LimitError, NotModelledError, ShapeError
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.operands import (
    DMA_SPACES,
    as_float,
    check_destination,
    need_tile,
    store,
)
from difftest.simulator.instructions.table import instruction
from difftest.simulator.memory import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

TRANSPOSE_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""The permutations that dma_transpose makes, by number of dimensions."""


_CAST_BY_ASSIGNMENT = (FLOAT32, FLOAT16, BFLOAT16)
"""Dtypes that NumPy itself converts to float32 and back while it copies, without a detour."""


def dma_tile(value: object, name: str, where: str = "dma_copy") -> Tile:
    """``value`` as a tile that DMA can reach: HBM or SBUF, never PSUM."""
    tile = need_tile(value, name, where, DMA_SPACES)
    if not tile.in_hbm:
        tile.tile_shape()
    return tile


def _cast(values: Array, src: Tile, dst: Tile) -> Array:
    """Elements as stored in ``src``'s memory, as ``dst``'s memory stores them."""
    if src.dtype == dst.dtype:
        if src.in_hbm == dst.in_hbm or src.dtype in _CAST_BY_ASSIGNMENT:
            return values
        return from_bits(values, src.dtype) if src.in_hbm else to_bits(values, dst.dtype)
    plain = from_bits(values, src.dtype) if src.in_hbm else values
    rounded = round_to(as_float(plain), dst.dtype)
    return to_bits(rounded, dst.dtype) if dst.in_hbm else rounded


def _check_sizes(dst: Tile | IndirectTile, src: Tile | IndirectTile) -> None:
    if dst.shape == src.shape:
        return
    if dst.size != src.size:
        raise ShapeError(
            "dma_copy moves as many elements as both sides have",
            received=f"src {list(src.shape)} ({src.size} elements), "
            f"dst {list(dst.shape)} ({dst.size} elements)",
            remedy="index both sides so that they cover the same elements",
        )


def _arrange(values: Array, shape: Shape) -> Array:
    return values if values.shape == shape else values.reshape(shape)


@instruction("dma_copy", Engine.DMA)
def dma_copy(
    dst: Tile,
    src: Tile,
    *,
    where: Any = None,
    rmw: AluOp | None = None,
    dge: str = "unknown",
) -> None:
    """``dst = src`` between HBM and SBUF, element by element in row-major order."""
    _check_sizes(dst, src)
    check_destination(dst)
    values = src.read()
    if rmw is not None:
        old = as_float(from_bits(dst.read(), dst.dtype) if dst.in_hbm else dst.read())
        new = from_bits(values, src.dtype) if src.in_hbm else values
        total = round_to(rmw.compute(old, as_float(_arrange(new, dst.shape))), dst.dtype)
        moved = to_bits(total, dst.dtype) if dst.in_hbm else total
    else:
        moved = _cast(values, src, dst)
    store(dst, _arrange(moved, dst.shape), where)
    reads = (src,) if rmw is None else (src, dst)
    current().emit("dma_copy", Engine.DMA, (dst,), reads, dge=dge)


@instruction("dma_gather", Engine.DMA)
def dma_gather(dst: Tile, src: IndirectTile, *, skip: bool = False, dge: str = "unknown") -> None:
    """``dst = src`` with the source's rows named by a tile of indices."""
    _check_sizes(dst, src)
    check_destination(dst)
    arrays, inside = src.resolve(skip=skip)
    src.check_written(arrays, inside)
    shaped = inside.reshape(dst.shape)
    picked = _cast(src.elements()[tuple(a[inside] for a in arrays)], src.base, dst)
    if shaped.all():
        store(dst, picked.reshape(dst.shape))
    else:
        moved = np.empty(dst.shape, picked.dtype)
        moved[shaped] = picked
        store(dst, moved, shaped)
    current().emit("dma_gather", Engine.DMA, (dst,), (src.base, *src.index_tiles), dge=dge)


@instruction("dma_scatter", Engine.DMA)
def dma_scatter(
    dst: IndirectTile,
    src: Tile,
    *,
    skip: bool = False,
    rmw: AluOp | None = None,
    dge: str = "unknown",
) -> None:
    """``dst = src``, or ``dst <op>= src``, with the destination's rows named by indices."""
    base = dst.base
    check_destination(base)
    if rmw is not None and skip:
        raise KernelError(
            "dma_copy with dst_rmw_op takes oob_mode.error only", received="oob_mode.skip"
        )
    _check_sizes(dst, src)
    arrays, inside = dst.resolve(skip=skip)
    place = tuple(a[inside] for a in arrays)
    values = src.read().reshape(dst.shape)[inside]
    view = dst.elements()
    if rmw is None:
        view[place] = _cast(values, src, base)
    else:
        dst.check_written(arrays, inside)
        plain = from_bits(values, src.dtype) if src.in_hbm else values
        whole = as_float(from_bits(view, base.dtype)).astype(np.float32, copy=True)
        np.add.at(whole, place, as_float(plain))
        view[place] = to_bits(round_to(whole[place], base.dtype), base.dtype)
    dst.mark_written(arrays, inside)
    reads = (src, *dst.index_tiles) if rmw is None else (src, base, *dst.index_tiles)
    current().emit("dma_scatter", Engine.DMA, (base,), reads, dge=dge)


def dma_transpose_shape(src: Tile, axes: Sequence[int] | None) -> Shape:
    """The transposed shape; raises for permutations that DMA does not make."""
    if src.ndim not in TRANSPOSE_AXES:
        raise ShapeError(
            "dma_transpose takes 2 to 4 dimensions", received=f"{src!r}", limit="2, 3, 4"
        )
    known = TRANSPOSE_AXES[src.ndim]
    if axes is not None and tuple(axes) != known:
        raise NotModelledError(
            "dma_transpose makes one permutation for each number of dimensions",
            received=f"axes={axes}",
            limit=f"{known} for {src.ndim} dimensions",
        )
    shape = tuple(src.shape[k] for k in known)
    partitions = current().machine.partitions
    if shape[0] > partitions:
        raise LimitError(
            f"the partition size of a tile is at most {partitions}",
            received=f"transpose of {src!r}: {shape[0]} partitions",
            limit=f"{partitions}",
            remedy=f"transpose {partitions} of the last dimension's elements at a time",
        )
    return shape


@instruction("dma_transpose", Engine.DMA)
def dma_transpose(dst: Tile, src: Tile, *, where: Any = None, dge: str = "unknown") -> None:
    """``dst = src`` with its axes permuted by the DMA engines."""
    values = src.read().transpose(TRANSPOSE_AXES[src.ndim])
    check_destination(dst)
    store(dst, _cast(values, src, dst), where)
    current().emit("dma_transpose", Engine.DMA, (dst,), (src,), dge=dge)
