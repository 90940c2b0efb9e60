"""Tensor Engine: nc_matmul and nc_transpose (and the Vector Engine's small transpose)."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT32, TFLOAT32
from difftest.simulator.errors import BufferError, KernelError, LimitError, ShapeError
from difftest.simulator.instructions.operands import (
    compute_view,
    free_size,
    need_dtype,
    need_tile,
    write,
    wrong_space,
)
from difftest.simulator.instructions.table import choose_engine, instruction
from difftest.simulator.memory import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

MATMUL_DTYPES = (FLOAT8_E4M3, FLOAT8_E5M2, BFLOAT16, FLOAT16, TFLOAT32, FLOAT32)
_PE_TILE = 32
"""PE tiling positions and sizes are multiples of this (AWS: nki.isa.nc_matmul)."""


def matmul_shape(stationary: Tile, moving: Tile) -> Shape:
    """The result's shape; raises where the operands do not fit the PE array.

    ``stationary`` [K, M] and ``moving`` [K, ...N] give [M, ...N]; K and M at most 128, N at most
    512 (AWS: nki.isa.nc_matmul).
    """
    for name, tile in (("stationary", stationary), ("moving", moving)):
        if tile.storage.allocation.space is not Space.SBUF:
            raise wrong_space(tile, name, "nc_matmul", (Space.SBUF,))
        need_dtype(tile, name, "nc_matmul", MATMUL_DTYPES)
    rows, columns = stationary.tile_shape(), moving.tile_shape()
    if rows[0] != columns[0]:
        raise ShapeError(
            "nc_matmul contracts over the partitions of both operands",
            received=f"stationary {list(stationary.shape)}, moving {list(moving.shape)}: "
            f"{rows[0]} and {columns[0]} partitions",
            remedy="give both operands the contraction dimension as their first",
        )
    machine = current().machine
    for name, shape, limit, constant in (
        ("stationary", rows, machine.gemm_stationary_fmax, "gemm_stationary_fmax"),
        ("moving", columns, machine.gemm_moving_fmax, "gemm_moving_fmax"),
    ):
        if free_size(shape) > limit:
            raise LimitError(
                f"the free size of nc_matmul's {name} operand is at most {limit}",
                received=f"{name} {list(shape)}: {free_size(shape)} elements a partition",
                limit=f"{limit} (nl.tile_size.{constant})",
                remedy=f"loop over tiles of {limit}",
            )
    return (free_size(rows), *columns[1:])


def check_pe_tile(position: tuple[int, ...], size: tuple[int, ...], stationary: Tile) -> None:
    """The documented rules for PE tiling (``tile_position`` and ``tile_size``)."""
    shape = stationary.tile_shape()
    wrong = None
    if len(position) != 2 or len(size) != 2:
        wrong = "both are set, each (row, column)"
    elif any(int(value) % _PE_TILE for value in (*position, *size)):
        wrong = f"values are multiples of {_PE_TILE}"
    elif size[0] < shape[0] or size[1] < free_size(shape):
        wrong = "tile_size is at least the stationary tile's size"
    elif size[0] == size[1] == _PE_TILE and current().machine.nc_version == 2:
        wrong = f"({_PE_TILE}, {_PE_TILE}) tiles need NeuronCore-v3"
    elif any(p + s > current().machine.partitions for p, s in zip(position, size, strict=True)):
        wrong = "the PE tile lies in the PE array"
    if wrong:
        raise KernelError(
            f"nc_matmul's PE tiling: {wrong}",
            received=f"tile_position={position}, tile_size={size}, stationary {list(shape)}",
        )


@instruction("nc_matmul", Engine.TENSOR)
def nc_matmul(dst: Tile, stationary: Tile, moving: Tile, *, where: Any = None) -> None:
    """``dst = stationary.T @ moving``, float32 accumulation, into one PSUM bank."""
    rows = compute_view(stationary)
    columns = compute_view(moving)
    if rows.ndim > 2:
        rows = rows.reshape(rows.shape[0], -1)
    if columns.ndim > 2:
        columns = columns.reshape(columns.shape[0], -1)
    storage = dst.storage
    if where is None and storage.dtype == FLOAT32 and dst.is_whole():
        # All of a float32 tensor in order: the product goes straight into its memory.
        np.matmul(rows.T, columns, out=storage.data.reshape(rows.shape[1], columns.shape[1]))
        storage.mark_written(dst.offset, dst.shape, dst.strides)
    else:
        write(dst, np.matmul(rows.T, columns), where)
    current().emit("nc_matmul", Engine.TENSOR, (dst,), (stationary, moving))


def check_bank(dst: Tile) -> None:
    """Raise :class:`LimitError` if a matmul's destination does not lie in one PSUM bank."""
    machine = current().machine
    if dst.storage.allocation.space is not Space.PSUM:
        raise BufferError(
            "the Tensor Engine writes to PSUM",
            received=f"{dst!r}",
            limit="psum",
            remedy="accumulate in nl.zeros(..., buffer=nl.psum), then copy to SBUF",
        )
    if dst.storage.allocation.partition_bytes <= machine.psum_bank_bytes:
        return
    itemsize = dst.itemsize
    row = dst.strides[0] if dst.shape else 0
    first = (dst.offset % row if row else 0) * itemsize
    span = sum((n - 1) * s for n, s in zip(dst.shape[1:], dst.strides[1:], strict=True))
    last = first + span * itemsize + itemsize - 1
    if first // machine.psum_bank_bytes != last // machine.psum_bank_bytes:
        raise LimitError(
            "a matmul accumulates inside one PSUM bank",
            received=f"{dst!r}: bytes {first} to {last} of the partition",
            limit=f"banks of {machine.psum_bank_bytes} bytes "
            f"({machine.psum_fmax} float32, nl.tile_size.psum_fmax)",
            remedy=f"use PSUM tiles of at most {machine.psum_fmax} float32 a partition",
        )


def transpose_shape(data: Tile) -> Shape:
    """[F, P] for data [P, ...F]: the free axes collapse into one."""
    shape = data.tile_shape()
    return (free_size(shape), shape[0])


def transpose_engine(data: Tile, wanted: Engine) -> Engine:
    """The engine of a transpose; raises where it cannot take the tile (AWS: nki.isa.nc_transpose).

    With no engine named, the Tensor Engine does it if the data lie in SBUF, else the Vector Engine.
    """
    machine = current().machine
    need_tile(data, "data", "nc_transpose")
    if wanted is Engine.UNKNOWN and data.space is Space.PSUM:
        wanted = Engine.VECTOR
    engine = choose_engine("nc_transpose", wanted)
    if engine is Engine.TENSOR and data.space is not Space.SBUF:
        raise wrong_space(data, "data", "nc_transpose on the Tensor Engine", (Space.SBUF,))
    limit = machine.partitions if engine is Engine.TENSOR else machine.vector_transpose_max
    rows, columns = transpose_shape(data)
    if rows > limit or columns > limit:
        raise LimitError(
            f"a transpose on the {engine.value} engine takes at most {limit} x {limit} elements",
            received=f"data {list(data.shape)}: {columns} partitions, {rows} elements each",
            limit=f"{limit} partitions, {limit} elements each",
            remedy="transpose tile by tile",
        )
    return engine


@instruction("nc_transpose", Engine.TENSOR, Engine.VECTOR)
def nc_transpose(dst: Tile, data: Tile, engine: Engine, *, where: Any = None) -> None:
    """``dst = data.T`` between the partition axis and the collapsed free axes."""
    source = compute_view(data)
    flat = source.reshape(source.shape[0], -1) if source.ndim > 2 else source
    write(dst, np.ascontiguousarray(flat.T) if where is None else flat.T, where)
    current().emit("nc_transpose", engine, (dst,), (data,))
