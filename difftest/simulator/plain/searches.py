"""Searches within partitions (``nki.isa``): where values lie, and others in their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.errors import DtypeError, KernelError, LimitError
from difftest.simulator.plain import rules
from difftest.simulator.plain.indices import mask_over
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.operators import number_as_float32
from difftest.simulator.plain.reductions import check_length
from difftest.simulator.plain.rounding import Array, to_float32
from difftest.simulator.plain.running import current
from difftest.simulator.plain.selections import UINT16, UINT32
from difftest.simulator.plain.tensors import PlainTensor


def _places(where: str, row: Array, wanted: Array) -> list[int]:
    """The first place of each value; equal values take successive places."""
    taken: list[int] = []
    for value in wanted:
        found = [int(at) for at in np.flatnonzero(row == value) if at not in taken]
        if not found:
            raise KernelError(
                f"{where} is undefined for a value that is not there",
                happened=f"{where} was to find a value that is not in the data",
                received=value,
            )
        taken.append(found[0])
    return taken


def _eight(where: str, data: PlainTensor, vals: PlainTensor) -> None:
    rules.same_partitions(where, data, vals)
    rules.require(vals.size == 8 * vals.shape[0], f"{where} takes 8 values a partition", vals)


def eightfold(lanes: Array) -> Array:
    """For each of 8 values a partition whether it counts."""
    return np.repeat(lanes, 8, axis=1)


def lost_rows(*read: tuple[PlainTensor, Array]) -> Array:
    """The partitions of which an operand misses something.

    Raises
    ------
    UnwrittenError : of one operand each partition does.
    """
    lost = np.zeros(len(read[0][1]), np.bool_)
    for tile, holes in read:
        rows = holes.any(axis=1)
        if rows.all():
            tile.read()
        lost |= rows
    return lost


@means("nisa.nc_find_index8", data=rules.tile(), vals=rules.tile(), dtype=rules.dtype)
def nc_find_index8(data: PlainTensor, vals: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """The index of each of 8 values in its partition's unmasked elements."""
    where = "nc_find_index8"
    check_length(where, data, mask)
    _eight(where, data, vals)
    result = dtype or UINT32
    rules.require(
        result in (UINT16, UINT32), f"{where} gives uint16 or uint32", result, error=DtypeError
    )
    chosen = mask_over(mask, data.shape).reshape(data.shape[0], -1)
    lanes = np.any(chosen, axis=1, keepdims=True)
    (held, holes), (eight, unknown) = (
        data.rows().readable(chosen, carries=bool(chosen.all())),
        vals.rows().readable(eightfold(lanes), carries=bool(chosen.all())),
    )
    rows, wanted = to_float32(held), to_float32(eight)
    lost = lost_rows((data, holes), (vals, unknown))
    dst = current().allocate((data.shape[0], 8), result)
    values = np.zeros(dst.shape, np.int64)
    for p, kept in enumerate(chosen):
        if kept.any() and not lost[p]:
            values[p] = _places(where, rows[p][kept], wanted[p])
    written = np.broadcast_to(lanes, dst.shape)
    dst.put(values, written)
    dst.leave_out(written)
    dst.forget(np.broadcast_to(lost[:, None], dst.shape))
    return dst


@means(
    "nisa.nc_match_replace8",
    data=rules.tile(),
    vals=rules.tile(),
    imm=rules.number,
    dst_idx=rules.optional(rules.tile()),
    dtype=rules.dtype,
)
def nc_match_replace8(
    data: PlainTensor,
    vals: PlainTensor,
    imm: Any,
    dst_idx: PlainTensor | None,
    mask: Any,
    dtype: Any,
) -> PlainTensor:
    """``data`` with the first occurrence of each of 8 values replaced by ``imm``."""
    where = "nc_match_replace8"
    chosen = mask_over(mask, data.shape)
    kept = chosen.reshape(data.shape[0], -1)
    lanes = np.any(kept, axis=1, keepdims=True)
    held, holes = data.rows().readable(kept, carries=bool(kept.all()))
    rows = to_float32(held)
    most = current().machine.max8_range[1]
    rules.require(rows.shape[1] <= most, f"{where}: at most {most}", data, error=LimitError)
    _eight(where, data, vals)
    if dst_idx is not None:
        rules.same_elements(f"{where}'s dst_idx", vals, dst_idx)
    eight, unknown = vals.rows().readable(eightfold(lanes), carries=bool(kept.all()))
    wanted = to_float32(eight)
    lost = lost_rows((data, holes), (vals, unknown))
    places = np.zeros((len(rows), 8), np.int64)
    for p in np.flatnonzero(lanes[:, 0] & ~lost):
        places[p] = _places(where, rows[p][kept[p]], wanted[p])
        rows[p][np.flatnonzero(kept[p])[places[p]]] = number_as_float32(imm)
    dst = current().allocate(data.shape, dtype or data.dtype)
    dst.put(rows.reshape(dst.shape), chosen)
    dst.leave_out(chosen)
    dst.forget(np.broadcast_to(lost[:, None], kept.shape).reshape(dst.shape))
    if dst_idx is not None:
        written = np.broadcast_to(lanes, places.shape).reshape(dst_idx.shape)
        dst_idx.put(places.reshape(dst_idx.shape), written)
        dst_idx.leave_out(written)
        dst_idx.forget(np.broadcast_to(lost[:, None], places.shape).reshape(dst_idx.shape))
    return dst
