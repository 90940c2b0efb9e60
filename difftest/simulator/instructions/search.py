"""Search and gather within partitions: max8 and kin, local_gather, shuffles (``nki.isa``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, LimitError, OutOfBoundsError, ShapeError
from difftest.simulator.instructions.operands import (
    as_float,
    compute_view,
    need_dtype,
    need_elements,
    same_partitions,
    write,
)
from difftest.simulator.instructions.table import instruction
from difftest.simulator.memory import Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

EIGHT = 8
UINT16 = np.dtype(np.uint16)
UINT32 = np.dtype(np.uint32)
GATHER_WIDTHS = (1, 2, 4, 8, 16, 32)
MAX_GATHER_INDICES = 4096
SEQUENCE_DTYPES = (np.dtype(np.float32), np.dtype(np.int32))
KEEP = 255
"""nc_stream_shuffle leaves a partition alone whose mask entry is this."""


def _rows(tile: Tile) -> Array:
    values = compute_view(tile)
    return values.reshape(values.shape[0], -1)


def _check_length(tile: Tile, name: str, where: str, minimum: int) -> None:
    maximum = current().machine.max8_range[1]
    count = tile.size // tile.tile_shape()[0]
    if not minimum <= count <= maximum:
        raise LimitError(
            f"{where} takes {minimum} to {maximum} elements a partition",
            received=f"{name} {list(tile.shape)}: {count}",
            limit=f"{minimum} to {maximum}",
        )


def _check_eight(tile: Tile, where: str) -> None:
    if tile.size // tile.tile_shape()[0] != EIGHT:
        raise ShapeError(
            f"{where} takes vals with {EIGHT} elements a partition", received=f"vals {tile!r}"
        )


@instruction("max8", Engine.VECTOR)
def max8(dst: Tile, src: Tile) -> None:
    """The 8 largest values of each partition, descending."""
    _check_length(src, "src", "max8", current().machine.max8_range[0])
    rows = as_float(_rows(src))
    top = -np.sort(-rows, axis=1)[:, :EIGHT]
    write(dst, top)
    current().emit("max8", Engine.VECTOR, (dst,), (src,))


def _match(row: Array, vals: Array, taken: Array) -> list[int | None]:
    """The first place of each value; equal values take successive places."""
    places: list[int | None] = []
    for value in vals:
        found = np.flatnonzero((row == value) & ~taken)
        place = int(found[0]) if found.size else None
        if place is not None:
            taken[place] = True
        places.append(place)
    return places


def _matches(data: Tile, vals: Tile, where: str) -> list[list[int]]:
    """For each partition the 8 places; a value that is not there has no defined result."""
    rows, wanted = as_float(_rows(data)), as_float(_rows(vals))
    result = []
    for p, (row, eight) in enumerate(zip(rows, wanted, strict=True)):
        places = _match(row, eight, np.zeros(row.shape, dtype=np.bool_))
        if None in places:
            raise KernelError(
                f"{where} is undefined for a value that is not in the data",
                received=f"vals {float(eight[places.index(None)])!r} in partition {p}",
                remedy="take vals from nisa.max8 of the same data",
            )
        result.append([place for place in places if place is not None])
    return result


@instruction("nc_find_index8", Engine.VECTOR)
def nc_find_index8(dst: Tile, data: Tile, vals: Tile) -> None:
    """The index of each of 8 values in its partition; duplicates take successive places."""
    _check_length(data, "data", "nc_find_index8", current().machine.max8_range[0])
    _check_eight(vals, "nc_find_index8")
    same_partitions("nc_find_index8", data=data, vals=vals)
    need_dtype(dst, "the result", "nc_find_index8", (UINT16, UINT32))
    write(dst, np.asarray(_matches(data, vals, "nc_find_index8"), dtype=np.int64))
    current().emit("nc_find_index8", Engine.VECTOR, (dst,), (data, vals))


@instruction("nc_match_replace8", Engine.VECTOR)
def nc_match_replace8(
    dst: Tile,
    data: Tile,
    vals: Tile,
    replacement: float,
    indices: Tile | None = None,
    *,
    where: Any = None,
) -> None:
    """``dst = data`` with the first occurrence of each of 8 values replaced."""
    _check_length(data, "data", "nc_match_replace8", 1)
    _check_eight(vals, "nc_match_replace8")
    same_partitions("nc_match_replace8", data=data, vals=vals)
    if indices is not None:
        need_elements(indices, "dst_idx", "nc_match_replace8", data, EIGHT)
        need_dtype(indices, "dst_idx", "nc_match_replace8", (UINT16, UINT32))
    places = _matches(data, vals, "nc_match_replace8")
    rows = as_float(_rows(data)).copy()
    np.put_along_axis(rows, np.asarray(places), np.float32(replacement), axis=1)
    write(dst, rows.reshape(dst.shape), where)
    writes: tuple[Tile, ...] = (dst,)
    if indices is not None:
        write(indices, np.asarray(places, dtype=np.int64).reshape(indices.shape))
        writes = (dst, indices)
    current().emit("nc_match_replace8", Engine.VECTOR, writes, (data, vals))


def local_gather_shape(src: Tile, index: Tile, width: int, count: int | None) -> tuple[Shape, int]:
    """The result's shape [P, indices, width] and the indices used by each GpSimd core."""
    cores = current().machine.gpsimd_core_partitions
    partitions = src.tile_shape()[0]
    same_partitions("local_gather", src_buffer=src, index=index)
    need_dtype(index, "index", "local_gather", (UINT16,))
    available = index.size // (partitions // cores) if partitions % cores == 0 else 0
    used = available if count is None else count
    for wrong, rule, received in (
        (partitions % cores, f"partitions are a multiple of {cores}", f"{partitions}"),
        (width not in GATHER_WIDTHS, f"num_elem_per_idx is one of {GATHER_WIDTHS}", f"{width}"),
        (used > MAX_GATHER_INDICES, f"at most {MAX_GATHER_INDICES} indices a core", f"{used}"),
        (used < 1, "at least one index", f"{used}"),
        (used > available, f"at most the {available} indices of a core's slice", f"{used}"),
    ):
        if wrong:
            raise LimitError(f"local_gather: {rule}", received=received)
    return (partitions, used, width), used


@instruction("local_gather", Engine.GPSIMD)
def local_gather(dst: Tile, src: Tile, index: Tile, width: int, used: int) -> None:
    """Each group of 16 partitions gathers elements at indices held in the same partitions."""
    lanes = current().machine.gpsimd_core_partitions
    rows, indices = _rows(src), compute_view(index)
    result = np.empty((rows.shape[0], used, width), dtype=rows.dtype)
    for start in range(0, rows.shape[0], lanes):
        group = slice(start, start + lanes)
        order = indices[group].reshape(lanes, -1).flatten(order="F")[:used].astype(np.int64)
        columns = order[:, None] + np.arange(width)
        if columns.max() >= rows.shape[1]:
            raise OutOfBoundsError(
                "local_gather is undefined for indices beyond src_buffer",
                received=f"element {int(columns.max())} of {src!r}",
                limit=f"0 to {rows.shape[1] - 1}",
            )
        result[group] = rows[group][:, columns]
    write(dst, result.reshape(dst.shape))
    current().emit("local_gather", Engine.GPSIMD, (dst,), (src, index))


@instruction("gather_flattened", Engine.GPSIMD)
def gather_flattened(dst: Tile, data: Tile, indices: Tile, *, where: Any = None) -> None:
    """``dst[p, i] = data[p, indices[p, i]]`` over the flattened free axes."""
    need_dtype(indices, "indices", "gather_flattened", (UINT32,))
    same_partitions("gather_flattened", data=data, indices=indices)
    rows, places = _rows(data), _rows(indices).astype(np.int64)
    if places.max() >= rows.shape[1]:
        raise OutOfBoundsError(
            "gather_flattened returns garbage for indices beyond the data",
            received=f"index {int(places.max())} into {data!r}",
            limit=f"0 to {rows.shape[1] - 1}",
        )
    write(dst, np.take_along_axis(rows, places, axis=1).reshape(dst.shape), where)
    current().emit("gather_flattened", Engine.GPSIMD, (dst,), (data, indices))


@instruction("nc_stream_shuffle", Engine.VECTOR)
def nc_stream_shuffle(dst: Tile, src: Tile, order: list[int], *, where: Any = None) -> None:
    """Move partitions within each quadrant of 32: ``dst[q + i] = src[q + order[i]]``."""
    quadrant = current().machine.shuffle_quadrant
    if len(order) != quadrant or any(not (0 <= k < quadrant or k == KEEP) for k in order):
        raise KernelError(
            f"nc_stream_shuffle takes a list of {quadrant} partitions",
            received=f"shuffle_mask={order}",
            limit=f"0 to {quadrant - 1}, or {KEEP} to leave a partition alone",
        )
    if src.dtype != dst.dtype or src.size // len(src) != dst.size // len(dst):
        raise ShapeError(
            "nc_stream_shuffle takes dst of src's dtype and elements a partition",
            received=f"src {src!r}, dst {dst!r}",
        )
    values = _rows(src).copy()
    partitions = dst.tile_shape()[0]
    for p in range(partitions):
        source = order[p % quadrant]
        start = p - p % quadrant
        if source == KEEP or start + source >= values.shape[0]:
            continue
        line = dst[p : p + 1]
        write(line, values[start + source].reshape(line.shape), where)
    current().emit("nc_stream_shuffle", Engine.VECTOR, (dst,), (src,))


@instruction("sequence_bounds", Engine.GPSIMD)
def sequence_bounds(dst: Tile, segment_ids: Tile) -> None:
    """For each element the start and end of its segment; (n, -1) for padding (id 0)."""
    if segment_ids.tile_shape()[0] != 1:
        raise ShapeError(
            "sequence_bounds takes one partition", received=f"segment_ids {segment_ids!r}"
        )
    need_dtype(segment_ids, "segment_ids", "sequence_bounds", SEQUENCE_DTYPES)
    need_dtype(dst, "the result", "sequence_bounds", SEQUENCE_DTYPES)
    ids = compute_view(segment_ids).reshape(-1)
    count = ids.size
    wrong = ~((ids >= 0) & (np.mod(ids, 1) == 0))
    if wrong.any():
        raise KernelError(
            "sequence_bounds takes integers of at least 0 as segment_ids",
            received=f"{ids[wrong][0]!r} at element {int(np.flatnonzero(wrong)[0])}",
        )
    bounds = np.empty((2, count), dtype=np.float32)
    for i, segment in enumerate(ids):
        same = np.flatnonzero(ids == segment)
        bounds[:, i] = (same[0], same[-1] + 1) if segment != 0 else (count, -1)
    write(dst, bounds.reshape(dst.shape))
    current().emit("sequence_bounds", Engine.GPSIMD, (dst,), (segment_ids,))
