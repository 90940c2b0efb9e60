"""Today's dialect in plain mode: selections, searches, gathers and shuffles."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import BFLOAT16, FLOAT32, INT32
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    LimitError,
    OutOfBoundsError,
    not_modelled,
)
from difftest.simulator.plain import rules
from difftest.simulator.plain.indices import integer, integers
from difftest.simulator.plain.meanings import means, meant
from difftest.simulator.plain.nki.computing import same_count
from difftest.simulator.plain.nki.moves import affine, classic_command, into, rows_of, tile
from difftest.simulator.plain.nki.running import TODAYS
from difftest.simulator.plain.nki.tensors import refuse
from difftest.simulator.plain.operators import apply, math_operator, number_as_float32
from difftest.simulator.plain.rounding import Array, to_float32
from difftest.simulator.plain.running import current
from difftest.simulator.plain.searches import lost_rows
from difftest.simulator.plain.selections import AFFINE, UINT16, UINT32
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.trace import Space

IN_SBUF = rules.view(Space.SBUF)
EIGHT = 8


# -- selections -----------------------------------------------------------------------------------


@means(f"{TODAYS}nisa.affine_select", dst=IN_SBUF, cmp_op=math_operator)
def affine_select(
    dst: PlainTensor,
    pattern: Any,
    channel_multiplier: Any,
    on_true_tile: Any,
    on_false_value: Any,
    cmp_op: str,
    offset: Any,
) -> None:
    """``on_true_tile`` where an affine value of the indices compares with 0, else a number."""
    if not isinstance(on_true_tile, PlainTensor):
        raise not_modelled("affine_select with its offset third in plain mode", f"{pattern!r:.60}")
    data = IN_SBUF(on_true_tile, "on_true_tile", "affine_select")
    same_count(dst, data)
    for side in (dst, data):
        rules.require(side.dtype in AFFINE, "affine_select's dtypes", side, error=DtypeError)
    numbers = affine(dst, pattern, offset, channel_multiplier)
    chosen = apply(cmp_op, numbers, np.zeros((), np.int64)) != 0
    elements, holes = data.readable(np.ones(data.shape, np.bool_), carries=True)
    held = to_float32(elements).reshape(dst.shape)
    dst.put(np.where(chosen, held, number_as_float32(on_false_value)))
    dst.forget(holes.reshape(dst.shape) & chosen)


@means(f"{TODAYS}nisa.range_select", dst=tile, on_true_tile=tile, bound0=tile, bound1=tile)
def range_select(dst: PlainTensor, **given: Any) -> None:
    """``on_true_tile`` where the free index lies between two bounds."""
    command = classic_command(given.pop("reduce_cmd"), "range_select")
    data, bounds = given.pop("on_true_tile"), {n: given.pop(n) for n in ("bound0", "bound1")}
    given["on_false_value"] = float(np.float32(given["on_false_value"]))
    made = meant(
        "nisa.range_select",
        on_true_tile=data.rows(),
        **{name: bound.rows() for name, bound in bounds.items()},
        reduce_cmd=command,
        dtype=dst.dtype,
        mask=None,
        **given,
    )
    into(dst, made)


@means(f"{TODAYS}nisa.select_reduce", dst=tile, predicate=tile, on_true=tile)
def select_reduce(
    dst: PlainTensor,
    predicate: PlainTensor,
    on_true: PlainTensor,
    on_false: Any,
    reduce_cmd: Any,
    **given: Any,
) -> None:
    """``dst = predicate ? on_true : on_false``, and its maximum a partition."""
    meant(
        "nisa.select_reduce",
        dst=dst.rows(),
        predicate=predicate.rows(),
        on_true=on_true.rows(),
        on_false=rows_of(on_false),
        reduce_cmd=classic_command(reduce_cmd, "select_reduce"),
        dtype=None,
        mask=None,
        **given,
    )


# -- searches -------------------------------------------------------------------------------------


def _lines(
    where: str, data: PlainTensor, vals: PlainTensor, least: int
) -> tuple[Array, Array, Array]:
    """The rows, the values wanted in each, and which of them follow from what nothing wrote."""
    rules.same_partitions(where, data, vals)
    rules.require(vals.size == EIGHT * vals.shape[0], f"{where} takes 8 values", vals)
    most = current().machine.max8_range[1]
    count = data.rows().shape[1]
    fits = least <= count <= most
    rules.require(fits, f"{where}: {least} to {most} elements", data, error=LimitError)
    (held, holes), (eight, unknown) = (
        one.rows().readable(np.ones(one.rows().shape, np.bool_), carries=True)
        for one in (data, vals)
    )
    return to_float32(held), to_float32(eight), lost_rows((data, holes), (vals, unknown))


def _place(row: Array, value: Any, taken: list[int]) -> int | None:
    return next((int(at) for at in np.flatnonzero(row == value) if at not in taken), None)


@means(f"{TODAYS}nisa.nc_find_index8", dst=tile, data=tile, vals=tile)
def nc_find_index8(dst: PlainTensor, data: PlainTensor, vals: PlainTensor) -> None:
    """The index of each of 8 values, equal ones in turn; all ones for one that is not there."""
    legal = dst.dtype in (UINT16, UINT32)
    rules.require(legal, "nc_find_index8 gives uint16 or uint32", dst, error=DtypeError)
    rows, wanted, lost = _lines("nc_find_index8", data, vals, EIGHT)
    found = np.full(wanted.shape, np.iinfo(dst.dtype).max, np.int64)
    for p, row in enumerate(rows):
        taken: list[int] = []
        for k, value in enumerate(wanted[p]):
            at = _place(row, value, taken)
            if at is not None:
                found[p, k] = at
                taken.append(at)
    same = dst.shape[:1] == data.shape[:1] and dst.size == found.size
    rules.require(same, "nc_find_index8 writes 8 indices a partition", dst)
    dst.put(found.reshape(dst.shape))
    dst.forget(np.broadcast_to(lost[:, None], found.shape).reshape(dst.shape))


@means(f"{TODAYS}nisa.nc_match_replace8", dst=tile, data=tile, vals=tile, imm=rules.number)
def nc_match_replace8(
    dst: PlainTensor, data: PlainTensor, vals: PlainTensor, imm: Any, dst_idx: Any
) -> None:
    """``data`` with an occurrence of each of 8 values replaced; of equal ones the last is first."""
    where = "nc_match_replace8"
    rows, wanted, lost = _lines(where, data, vals, 1)
    same_count(dst, data)
    places = np.zeros(wanted.shape, np.int64)
    for p, row in enumerate(rows):
        taken: list[int] = []
        if lost[p]:
            continue
        for k in reversed(range(EIGHT)):
            at = _place(row, wanted[p, k], taken)
            if at is None:
                refuse(f"{where} finds its values in the data", vals, KernelError)
            taken.append(at)
            places[p, k] = at
        row[taken] = number_as_float32(imm)
    dst.put(rows.reshape(dst.shape))
    dst.forget(np.broadcast_to(lost[:, None], rows.shape).reshape(dst.shape))
    if dst_idx is not None:
        target = tile(dst_idx, "dst_idx", where)
        legal = target.dtype in (UINT16, UINT32) and target.shape == places.shape
        rules.require(legal, f"{where}'s dst_idx is [P, 8], uint16 or uint32", target)
        target.put(places)
        target.forget(np.broadcast_to(lost[:, None], places.shape))


# -- gathers --------------------------------------------------------------------------------------


@means(f"{TODAYS}nisa.local_gather", dst=IN_SBUF)
def local_gather(dst: PlainTensor, **given: Any) -> None:
    """Each core gathers in its 16 partitions at the indices that they hold."""
    made = meant("nisa.local_gather", mask=None, **given)
    rules.require(dst.dtype == made.dtype, "local_gather does not cast", dst, error=DtypeError)
    into(dst, made)


@means(f"{TODAYS}nisa.nc_n_gather", dst=IN_SBUF, data=IN_SBUF, indices=IN_SBUF)
def nc_n_gather(dst: PlainTensor, data: PlainTensor, indices: PlainTensor) -> None:
    """``dst[p, i] = data[p, indices[p, i]]`` over the free axes as one."""
    where = "nc_n_gather"
    same = data.dtype == dst.dtype and indices.dtype == UINT32
    rules.require(same, f"{where} takes uint32 and does not cast", data, indices, error=DtypeError)
    rules.same_partitions(where, data, indices)
    every = np.ones(data.rows().shape, np.bool_)
    places = indices.rows().read().astype(np.int64)
    held, holes = data.rows().readable(every, carries=True)
    inside = places.max() < held.shape[1]
    rules.require(bool(inside), f"{where} stays inside", indices, error=OutOfBoundsError)
    same_count(dst, indices)
    picked, gone = (
        np.stack([row[at] for row, at in zip(lines, places, strict=True)])
        for lines in (held, holes)
    )
    if gone.all():
        data.read()
    dst.write(picked.reshape(dst.shape))
    dst.forget(gone.reshape(dst.shape))


@means(f"{TODAYS}nisa.nc_stream_shuffle", dst=tile, src=tile)
def nc_stream_shuffle(dst: PlainTensor, src: PlainTensor, shuffle_mask: Any) -> None:
    """In each quadrant partition i of ``dst`` becomes partition shuffle_mask[i] of ``src``."""
    given = {"src": src.rows(), "dst": dst.rows(), "shuffle_mask": shuffle_mask}
    meant("nisa.nc_stream_shuffle", **given, dtype=None, mask=None)


@means(f"{TODAYS}nisa.sequence_bounds", dst=IN_SBUF)
def sequence_bounds(dst: PlainTensor, segment_ids: Any) -> None:
    """For each element the start and end of its segment."""
    into(dst, meant("nisa.sequence_bounds", segment_ids=segment_ids, dtype=dst.dtype))


@means(f"{TODAYS}nisa.nonzero_with_count", dst=IN_SBUF, src=IN_SBUF)
def nonzero_with_count(
    dst: PlainTensor, src: PlainTensor, index_offset: Any, padding_val: Any
) -> None:
    """Of each 16th partition the indices of what is not 0, padding, and their count."""
    where = "nonzero_with_count"
    rules.require(current().machine.nc_version >= 3, f"{where} needs v3", error=KernelError)
    legal = src.dtype in (FLOAT32, INT32) and dst.dtype == INT32
    rules.require(legal, f"{where} gives int32", src, dst, error=DtypeError)
    target, source = dst.rows(), src.rows()
    fits = target.shape == (source.shape[0], source.shape[1] + 1)
    rules.require(fits, f"{where} writes one element more", src, dst)
    start, rest = integer(index_offset, "index_offset"), integer(padding_val, "padding_val")
    lanes = current().machine.gpsimd_core_partitions
    for p in range(0, source.shape[0], lanes):
        row = source.at(source.positions[p : p + 1], 0).read()[0]
        found = [start + int(at) for at in np.flatnonzero(row)]
        line = [*found, *[rest] * (len(row) - len(found)), len(found)]
        target.at(target.positions[p : p + 1], 0).put(np.array([line], np.int64))


@means(f"{TODAYS}nisa.topk", val_dst=IN_SBUF, idx_dst=IN_SBUF, src=IN_SBUF)
def topk(
    val_dst: PlainTensor, idx_dst: PlainTensor, src: PlainTensor, n: Any, **order_of: Any
) -> None:
    """The k largest of n elements in each 16 partitions, down the partitions, ascending."""
    if order_of["sorted"]:
        raise not_modelled("topk's sorted=True", "True")
    count = integers(n, "n")[0]
    lanes = current().machine.gpsimd_core_partitions
    dtypes = (src.dtype, val_dst.dtype, idx_dst.dtype)
    rules.require(dtypes == (BFLOAT16, BFLOAT16, UINT32), "topk's dtypes", src, error=DtypeError)
    held, values, places = (one.rows() for one in (src, val_dst, idx_dst))
    partitions, k = values.shape
    rules.require(val_dst.shape == idx_dst.shape, "topk's results have one shape", val_dst, idx_dst)
    rules.require(partitions == src.shape[0], "topk's tiles have the same partitions", src, val_dst)
    legal = partitions % lanes == 0 and 8 <= count < 65536 and k <= min(count, 32767)
    legal = legal and held.shape[1] * lanes >= count
    rules.require(legal, "topk's sizes", src, val_dst, count, error=LimitError)
    for first in range(0, partitions, lanes):
        at = [(first + i % lanes, i // lanes) for i in range(count)]
        snake = held.at(np.array([[held.positions[one] for one in at]]), 0).read()[0]
        numbers = to_float32(snake)
        order = sorted_places(numbers)[-k:]
        for j, place in enumerate(order):
            lane, column = first + j % lanes, j // lanes
            for target, found in ((values, numbers[place]), (places, place)):
                target.at(target.positions[lane : lane + 1, column : column + 1], 0).put(
                    np.array([[found]])
                )
        for j in range(k, -(-k // lanes) * lanes):
            lane, column = first + j % lanes, j // lanes
            for target in (values, places):
                one = target.at(target.positions[lane : lane + 1, column : column + 1], 0)
                one.forget(np.ones((1, 1), np.bool_))


def sorted_places(numbers: Array) -> list[int]:
    """The places of numbers, the least first; of equal ones the later place first."""
    return sorted(range(len(numbers)), key=lambda place: (float(numbers[place]), -place))
