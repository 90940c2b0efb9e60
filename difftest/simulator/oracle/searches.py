"""Searches, gathers and shuffles within partitions, and selections."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.oracle.elementwise import each_partition
from difftest.simulator.oracle.operators import Array, apply, to_float32
from difftest.simulator.oracle.use import Literal, Made, Use, accumulated, means

_EIGHT = 8
_KEEP = 255
"""nc_stream_shuffle leaves a partition alone whose entry is this."""


def _lines(use: Use, name: str) -> tuple[Array, Array, Array]:
    """The rows of an operand, what a mask keeps of them, and whether that is anything."""
    rows = to_float32(use.rows(name))
    kept = use.over(rows.shape)
    return rows, kept, kept.any(axis=1, keepdims=True)


@means("max8")
def max8(use: Use) -> Made:
    """The 8 largest values of each partition, descending."""
    made = each_partition(use, "src", _EIGHT, lambda row: -np.sort(-row)[:_EIGHT])
    return made._replace(slack=None)


def _places(row: Array, wanted: Array, missing: int, *, backwards: bool = False) -> list[int]:
    """The first place of each value; equal values take successive places."""
    taken: dict[int, int] = {}
    for k in reversed(range(_EIGHT)) if backwards else range(_EIGHT):
        found = [int(at) for at in np.flatnonzero(row == wanted[k]) if at not in taken.values()]
        taken[k] = found[0] if found else -1 - k
    return [missing if taken[k] < 0 else taken[k] for k in range(_EIGHT)]


@means("nc_find_index8")
def nc_find_index8(use: Use) -> Made:
    """The index of each of 8 values in its partition; all ones of one that is not there."""
    rows, kept, lanes = _lines(use, "data")
    wanted, ones = to_float32(use.rows("vals")), int(np.iinfo(use.dtype).max)
    values = np.zeros((len(rows), _EIGHT), np.int64)
    for p, (row, counts) in enumerate(zip(rows, kept, strict=True)):
        if counts.any():
            values[p] = _places(row[counts], wanted[p], ones)
    return Made(values, np.broadcast_to(lanes, values.shape))


@means("nc_match_replace8")
def nc_match_replace8(use: Use) -> tuple[Any, Any]:
    """``data`` with an occurrence of each of 8 values replaced by ``imm``, and their places."""
    rows, kept, lanes = _lines(use, "data")
    wanted = to_float32(use.rows("vals"))
    places = np.zeros((len(rows), _EIGHT), np.int64)
    for p in np.flatnonzero(lanes[:, 0]):
        at = _places(rows[p][kept[p]], wanted[p], 0, backwards=use["backwards"])
        places[p] = at
        rows[p][np.flatnonzero(kept[p])[at]] = np.float32(use["imm"])
    return (
        Made(rows.reshape(use.shape)),
        Made(places, np.broadcast_to(lanes, places.shape)),
    )


@means("local_gather")
def local_gather(use: Use) -> Made:
    """Each core gathers in its 16 partitions at the indices that they hold, by columns."""
    rows, held = use.rows("src_buffer"), use.rows("index")
    lanes, (partitions, used, width) = use.machine.gpsimd_core_partitions, use.shape
    result = np.zeros(use.shape, rows.dtype)
    for p in range(partitions):
        core = p - p % lanes
        flat = held[core : core + lanes].T.reshape(-1)[:used].astype(np.int64)
        result[p] = rows[p][(flat[:, None] + np.arange(width)) % rows.shape[1]]
    return Made(result)


@means("gather_flattened", "nc_n_gather")
def gather_flattened(use: Use) -> Made:
    """``data[p, indices[p, i]]``, the free axes of each taken as one."""
    rows, places = use.rows("data"), use.rows("indices").astype(np.int64)
    places = np.where(use.over(places.shape), places, 0) % rows.shape[1]
    picked = np.stack([row[at] for row, at in zip(rows, places, strict=True)])
    return Made(picked.reshape(use.shape))


@means("nc_stream_shuffle")
def nc_stream_shuffle(use: Use) -> Made:
    """In each quadrant partition i of ``dst`` becomes partition shuffle_mask[i] of ``src``."""
    rows, order = use.rows("src"), use["shuffle_mask"]
    quadrant = use.machine.shuffle_quadrant
    values = np.zeros((use.shape[0], rows.shape[1]), rows.dtype)
    chosen = np.zeros(values.shape, np.bool_)
    for p in range(len(values)):
        wanted = p - p % quadrant + order[p % quadrant]
        if order[p % quadrant] != _KEEP and wanted < len(rows):
            values[p], chosen[p] = rows[wanted], True
    return Made(values, chosen & use.over(chosen.shape))


@means("sequence_bounds")
def sequence_bounds(use: Use) -> Made:
    """For each element the start and end of its segment; (n, -1) for padding, id 0."""
    ids = use["segment_ids"].reshape(-1)
    bounds = np.zeros((2, len(ids)), np.int64)
    for i, segment in enumerate(ids):
        same = np.flatnonzero(ids == segment)
        bounds[:, i] = (same[0], same[-1] + 1) if segment else (len(ids), -1)
    return Made(bounds.reshape(use.shape))


@means("nonzero_with_count")
def nonzero_with_count(use: Use) -> Made:
    """Of each 16th partition the indices of what is not 0, padding, and their count."""
    rows, rest = use.rows("src"), use["padding_val"]
    values = np.zeros((len(rows), rows.shape[1] + 1), np.int64)
    chosen = np.zeros(values.shape, np.bool_)
    for p in range(0, len(rows), use.machine.gpsimd_core_partitions):
        found = [use["index_offset"] + int(at) for at in np.flatnonzero(rows[p])]
        values[p] = [*found, *[rest] * (rows.shape[1] - len(found)), len(found)]
        chosen[p] = True
    return Made(values, chosen)


@means("topk")
def topk(use: Use) -> tuple[Any, Any]:
    """The k largest of n elements in each 16 partitions, down the partitions, ascending."""
    rows, count = to_float32(use.rows("src")), use["n"]
    lanes, (partitions, *free) = use.machine.gpsimd_core_partitions, use.shape
    k = int(np.prod(free))
    values, places = np.zeros((partitions, k), np.float32), np.zeros((partitions, k), np.int64)
    chosen = np.zeros(values.shape, np.bool_)
    for first in range(0, partitions, lanes):
        numbers = [rows[first + i % lanes, i // lanes] for i in range(count)]
        order = sorted(range(count), key=lambda place: (float(numbers[place]), -place))[-k:]
        for j, place in enumerate(order):
            at = first + j % lanes, j // lanes
            values[at], places[at], chosen[at] = numbers[place], place, True
    return Made(values, chosen), Made(places, chosen)


# -- selections -----------------------------------------------------------------------------------


@means("affine_select")
def affine_select(use: Use) -> Made:
    """``on_true_tile`` where an affine value of the indices compares with 0, else a number."""
    data, pred = use["on_true_tile"], use["pred"]
    pred = pred.reshape(data.shape) if pred.size == data.size else pred
    chosen = getattr(np, str(use.op("cmp_op")))(pred, 0)
    return Made(np.where(chosen, to_float32(data), np.float32(use["on_false_value"])))


@means("range_select")
def range_select(use: Use) -> tuple[Any, Any]:
    """``on_true_tile`` where the free index lies between two bounds, else the least float32."""
    rows = to_float32(use.rows("on_true_tile"))
    line = (use["range_start"] + np.arange(rows.shape[1])).astype(np.float32)[None]
    low, high = (to_float32(use.vector(name, 2)) for name in ("bound0", "bound1"))
    first, last = str(use.op("comp_op0")), str(use.op("comp_op1"))
    chosen = apply(first, line, low) & apply(last, line, high)
    result = np.where(chosen, rows, np.float32(use["on_false_value"]))
    # A result that is asked for with no command is of this instruction alone.
    alone = use["reduce_cmd"].name == "IDLE" and "reduce_res" in use.call.destinations
    command = "RESET_REDUCE" if alone else ""
    held = accumulated(use, "vector", result, "maximum", command=command)
    return Made(result.reshape(use.shape)), held


@means("select_reduce")
def select_reduce(use: Use) -> tuple[Any, Any]:
    """``predicate ? on_true : on_false``, and optionally its maximum a partition."""
    data = to_float32(use.rows("on_true"))
    chosen = (use.rows("predicate") != 0) ^ bool(use["reverse_pred"])
    result = np.where(chosen, data, to_float32(use.vector("on_false", 2)))
    return Made(result.reshape(use.shape)), accumulated(use, "vector", result, "maximum")


@means("where")
def where(use: Use) -> Made:
    """``condition ? x : y``; of one dtype bit by bit, else through float32."""
    same = all(use.dtype_of(name) == use.dtype for name in ("x", "y"))
    sides = [
        use[name] if same else to_float32(use.vector(name, 1) if number else use[name])
        for name in ("x", "y")
        for number in [not isinstance(use.literals[name], Literal)]
    ]
    return Made(np.where(use["condition"] != 0, *sides))


@means("dropout")
def dropout(use: Use) -> Made:
    """``data``, or 0 where the launch's random numbers say so: which, is taken from the launch."""
    data = use["data"]
    return Made(np.where(use.taken == 0, use.taken.astype(data.dtype), data))
