"""Copies on chip and by DMA, constants; gathers, scatters, searches, shuffles and selections."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.oracle.elementwise import each_partition
from difftest.simulator.oracle.operators import (
    Array,
    DType,
    apply_literal,
    epsilon,
    literal_constant,
    round_literal,
    to_float32,
)
from difftest.simulator.oracle.use import (
    Literal,
    LiteralResult,
    LiteralUse,
    accumulate_literal,
    means,
)
from difftest.simulator.trace import Engine

_TURNED = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def cast(elements: Array, dtype: DType | None, wanted: DType) -> Array:
    """Return a copy's elements: bit by bit into the same dtype, else through float32."""
    if dtype == wanted:
        return elements
    return round_literal(to_float32(elements), wanted)


@means("tensor_copy", "tensor_copy_dynamic_src", "tensor_copy_dynamic_dst")
def tensor_copy(use: LiteralUse) -> LiteralResult:
    """Return ``src``; the Scalar Engine always converts through float32."""
    src: Literal = use.literals["src"]
    bits = src.dtype == use.dst.dtype and use.call.engine is not Engine.SCALAR
    elements = src.read()
    return LiteralResult(elements if bits else to_float32(elements))


@means("tensor_copy_predicated")
def tensor_copy_predicated(use: LiteralUse) -> LiteralResult:
    """Return ``src`` where the predicate is true; elsewhere ``dst`` keeps its value."""
    shape = use.dst.places.shape
    chosen = (use["predicate"] != 0).reshape(shape) ^ bool(use["reverse_pred"])
    src = use["src"]
    if isinstance(use.literals["src"], Literal):
        values = src.reshape(shape)
    else:
        values = np.full(shape, literal_constant(src, use.dst.dtype))
    return LiteralResult(values, chosen & use.over(shape))


@means("memset")
def memset(use: LiteralUse) -> LiteralResult:
    """Return a number for every element."""
    return LiteralResult(np.full(use.shape, literal_constant(use["value"], use.dtype)))


@means("iota")
def iota(use: LiteralUse) -> LiteralResult:
    """Return the values of an index expression."""
    return LiteralResult(use["expr"])


# -- DMA -------------------------------------------------------------------------------------------


@means("dma_copy")
def dma_copy(use: LiteralUse) -> LiteralResult:
    """Return ``src`` or ``dst + src`` in row-major order; elements out of bounds are not moved."""
    src: Literal = use.literals["src"]
    dst = use.dst
    places = use.dst.places
    sources = src.places.reshape(places.shape)
    kept = use.over(places.shape) & (sources >= 0) & (places >= 0)
    elements = src.read().reshape(places.shape)
    if use["dst_rmw_op"] is None:
        return LiteralResult(cast(elements, src.dtype, dst.dtype), kept, is_cast=True)
    return LiteralResult(_added(dst, places, to_float32(elements), kept), kept)


def _added(dst: Literal, places: Array, terms: Array, kept: Array) -> Array:
    """Return ``dst`` plus terms in float32, one by one, so that repeated places add up."""
    held = dst.read()
    totals = {
        int(at): to_float32(value)
        for at, value in zip(places.flat, held.flat, strict=True)
    }
    for at, term, counts in zip(places.flat, terms.flat, kept.flat, strict=True):
        if counts:
            totals[int(at)] = totals[int(at)] + term
    return np.array([totals[int(at)] for at in places.flat], np.float32).reshape(
        places.shape
    )


@means("dma_transpose")
def dma_transpose(use: LiteralUse) -> LiteralResult:
    """Return ``src`` with its dimensions in the documented order."""
    src: Literal = use.literals["src"]
    shape = use.call.operands["src"].shape
    axes = _TURNED[len(shape)]
    kept = use.over(shape) & (src.places.reshape(shape) >= 0)
    elements = cast(src.read().reshape(shape), src.dtype, use.dst.dtype)
    return LiteralResult(elements.transpose(axes), kept.transpose(axes), is_cast=True)


@means("dma_compute")
def dma_compute(use: LiteralUse) -> LiteralResult:
    """Return the sum of the sources in float32, in order, rounded once."""
    sources = [
        literal for literal in use.literals.values() if isinstance(literal, Literal)
    ]
    total = to_float32(sources[0].read()).reshape(-1)
    for source in sources[1:]:
        total = total + to_float32(source.read()).reshape(-1)
    return LiteralResult(total.reshape(use.dst.places.shape))


# -- products --------------------------------------------------------------------------------------


_EPSILON = epsilon(FLOAT32)
_LEAST = 2.0**-149
_FLOAT8 = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
}
_LARGEST_EXPONENT = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}


@means("nc_matmul")
def nc_matmul(use: LiteralUse) -> LiteralResult:
    """Return ``stationary.T @ moving`` in float32, added to the values of ``dst`` if accumulating.

    In double_row each partition has two rows of the contraction. A product computed earlier is
    stored where ``dst`` is unwritten.
    """
    if "product" in use.literals:
        held = np.where(use.dst.touched(), to_float32(use.dst.read()), np.float32(0))
        return LiteralResult(to_float32(use["product"]).reshape(held.shape) + held)
    left, right = (to_float32(use.rows(name)) for name in ("stationary", "moving"))
    if use["perf_mode"] == "double_row":
        left, right = (side.reshape(2 * len(side), -1) for side in (left, right))
    return _product(use, left, right)


def _product(use: LiteralUse, left: Array, right: Array) -> LiteralResult:
    """Return a sum over the contraction, whose order is undocumented.

    If the magnitudes of its terms add up to more than float32's largest number, the order decides
    what overflows.
    """
    taken = use.over((len(left), left.shape[1], right.shape[1]))
    depth = taken.any(axis=(1, 2))
    mask = taken.any(axis=0)
    left, right = left[depth].astype(np.float64), right[depth].astype(np.float64)
    shape = use.dst.places.shape
    total, size, mask = (
        np.reshape(part, shape)
        for part in (left.T @ right, np.abs(left).T @ np.abs(right), mask)
    )
    slack = (size * _EPSILON + _LEAST) * (len(left) + 1)
    adds = use.asked
    if adds is not False:
        held = to_float32(use.dst.read())
        if adds is None:
            held = np.where(use.dst.products(), held, 0)
        total = held + total
        size = size + np.abs(held)
        slack = slack + (np.abs(held) + np.abs(total)) * _EPSILON
    slack = np.where(size > np.finfo(np.float32).max, np.inf, slack)
    return LiteralResult(total.astype(np.float32), mask, slack)


@means("nc_transpose")
def nc_transpose(use: LiteralUse) -> LiteralResult:
    """Return the data with partitions and collapsed free axes swapped."""
    rows = use.rows("data")
    return LiteralResult(rows.T, use.over(rows.shape).T)


# -- microscaling ----------------------------------------------------------------------------------


@means("nc_matmul_mx")
def nc_matmul_mx(use: LiteralUse) -> LiteralResult:
    """Return the product of packed elements times the powers of two shared by groups of 32."""
    return _product(use, *(_scaled(use, name) for name in ("stationary", "moving")))


def _scaled(use: LiteralUse, name: str) -> Array:
    """Return elements times their scales: [4 P, F]."""
    bits = use.rows(name)
    dtype = use.dtype_of(name)
    assert dtype is not None
    assert dtype.names is not None
    codes = use.rows(f"{name}_scale").view(np.uint8).astype(np.float64)
    elements: Any = np.ascontiguousarray(bits).view(np.uint8).reshape(*bits.shape, -1)
    if dtype.names[0] in _FLOAT8:
        elements = elements.view(_FLOAT8[dtype.names[0]])
    else:
        nibbles = np.stack([elements & 15, elements >> 4], axis=-1).reshape(
            *bits.shape, 4
        )
        elements = nibbles.view(ml_dtypes.float4_e2m1fn)
    rows = [p // 32 * 32 + p % 32 // 8 for p in range(len(bits))]
    scales = 2.0 ** (codes[rows] - 127)
    values: Array = elements.astype(np.float64) * scales[..., None]
    return values.transpose(0, 2, 1).reshape(-1, bits.shape[1])


@means("quantize_mx")
def quantize_mx(use: LiteralUse) -> tuple[Any, Any]:
    """Return groups of 32 elements, each divided by a power of two, and those powers.

    A group has 4 elements in each of 8 partitions.
    """
    rows = to_float32(use.rows("src")).astype(np.float64)
    name = str((use.dtype.names or [0])[0])
    partitions = len(rows)
    columns = rows.shape[1] // 4
    scale = use.call.destinations["dst_scale"]
    codes = np.zeros((scale.shape[0], columns), np.uint8)
    chosen = np.zeros(codes.shape, np.bool_)
    quotient = np.zeros((partitions, columns, 4), _FLOAT8[name])
    for p in range(0, partitions, 8):
        for column in range(columns):
            group = rows[p : p + 8, 4 * column : 4 * column + 4]
            largest = np.abs(group).max()
            exponent = -127 if largest == 0 else int(np.floor(np.log2(largest)))
            exponent = max(
                exponent - (_LARGEST_EXPONENT[name] - 1) * (largest != 0), -127
            )
            quotient[p : p + 8, column] = np.ldexp(group, -exponent).astype(
                _FLOAT8[name]
            )
            at = p // 32 * 32 + p % 32 // 8
            codes[at, column] = exponent + 127
            chosen[at, column] = True
    packed = quotient.view(np.uint32).reshape(partitions, columns)
    shape = scale.shape
    scales = codes.reshape(shape).view(scale.dtype)
    return LiteralResult(packed), LiteralResult(scales, chosen.reshape(shape))


_EIGHT = 8
_KEEP = 255
"""The entry of nc_stream_shuffle that leaves a partition unchanged."""


def _lines(use: LiteralUse, name: str) -> tuple[Array, Array, Array]:
    """Return the rows of an operand, their mask, and whether the mask keeps any of a row."""
    rows = to_float32(use.rows(name))
    kept = use.over(rows.shape)
    return rows, kept, kept.any(axis=1, keepdims=True)


@means("max8")
def max8(use: LiteralUse) -> LiteralResult:
    """Return the 8 largest values of each partition, descending."""
    result = each_partition(use, "src", _EIGHT, lambda row: -np.sort(-row)[:_EIGHT])
    return result._replace(slack=None)


def _places(
    row: Array, wanted: Array, missing: int, *, backwards: bool = False
) -> list[int]:
    """Return the first place of each value; equal values take successive places."""
    taken: dict[int, int] = {}
    for k in reversed(range(_EIGHT)) if backwards else range(_EIGHT):
        places = [
            int(at)
            for at in np.flatnonzero(row == wanted[k])
            if at not in taken.values()
        ]
        taken[k] = places[0] if places else -1 - k
    return [missing if taken[k] < 0 else taken[k] for k in range(_EIGHT)]


@means("nc_find_index8")
def nc_find_index8(use: LiteralUse) -> LiteralResult:
    """Return the index of each of 8 values in its partition; all bits set if it is missing."""
    rows, kept, lanes = _lines(use, "data")
    wanted = to_float32(use.rows("vals"))
    ones = int(np.iinfo(use.dtype).max)
    values = np.zeros((len(rows), _EIGHT), np.int64)
    for p, (row, counts) in enumerate(zip(rows, kept, strict=True)):
        if counts.any():
            values[p] = _places(row[counts], wanted[p], ones)
    return LiteralResult(values, np.broadcast_to(lanes, values.shape))


@means("nc_match_replace8")
def nc_match_replace8(use: LiteralUse) -> tuple[Any, Any]:
    """Return ``data`` with one occurrence of each value replaced by ``imm``, and the places."""
    rows, kept, lanes = _lines(use, "data")
    wanted = to_float32(use.rows("vals"))
    places = np.zeros((len(rows), _EIGHT), np.int64)
    for p in np.flatnonzero(lanes[:, 0]):
        at = _places(rows[p][kept[p]], wanted[p], 0, backwards=use["backwards"])
        places[p] = at
        rows[p][np.flatnonzero(kept[p])[at]] = np.float32(use["imm"])
    return (
        LiteralResult(rows.reshape(use.shape)),
        LiteralResult(places, np.broadcast_to(lanes, places.shape)),
    )


@means("local_gather")
def local_gather(use: LiteralUse) -> LiteralResult:
    """Gather, for each core, from its 16 partitions at the indices in them, column by column."""
    rows = use.rows("src_buffer")
    held = use.rows("index")
    lanes = use.machine.gpsimd_core_partitions
    (partitions, used, width) = use.shape
    result = np.zeros(use.shape, rows.dtype)
    for p in range(partitions):
        core = p - p % lanes
        flat = held[core : core + lanes].T.reshape(-1)[:used].astype(np.int64)
        result[p] = rows[p][(flat[:, None] + np.arange(width)) % rows.shape[1]]
    return LiteralResult(result)


@means("gather_flattened", "nc_n_gather")
def gather_flattened(use: LiteralUse) -> LiteralResult:
    """Return ``data[p, indices[p, i]]``, with the free axes of each flattened."""
    rows = use.rows("data")
    places = use.rows("indices").astype(np.int64)
    places = np.where(use.over(places.shape), places, 0) % rows.shape[1]
    picked = np.stack([row[at] for row, at in zip(rows, places, strict=True)])
    return LiteralResult(picked.reshape(use.shape))


@means("nc_stream_shuffle")
def nc_stream_shuffle(use: LiteralUse) -> LiteralResult:
    """Move partition shuffle_mask[i] of ``src`` to partition i of ``dst`` in each quadrant."""
    rows = use.rows("src")
    order = use["shuffle_mask"]
    quadrant = use.machine.shuffle_quadrant
    values = np.zeros((use.shape[0], rows.shape[1]), rows.dtype)
    chosen = np.zeros(values.shape, np.bool_)
    for p in range(len(values)):
        wanted = p - p % quadrant + order[p % quadrant]
        if order[p % quadrant] != _KEEP and wanted < len(rows):
            values[p] = rows[wanted]
            chosen[p] = True
    return LiteralResult(values, chosen & use.over(chosen.shape))


@means("sequence_bounds")
def sequence_bounds(use: LiteralUse) -> LiteralResult:
    """Return the start and end of each element's segment; (n, -1) for padding, id 0."""
    ids = use["segment_ids"].reshape(-1)
    bounds = np.zeros((2, len(ids)), np.int64)
    for i, segment in enumerate(ids):
        same = np.flatnonzero(ids == segment)
        bounds[:, i] = (same[0], same[-1] + 1) if segment else (len(ids), -1)
    return LiteralResult(bounds.reshape(use.shape))


@means("nonzero_with_count")
def nonzero_with_count(use: LiteralUse) -> LiteralResult:
    """Return the indices of each 16th partition's nonzero elements, padding, and their count."""
    rows = use.rows("src")
    rest = use["padding_val"]
    values = np.zeros((len(rows), rows.shape[1] + 1), np.int64)
    chosen = np.zeros(values.shape, np.bool_)
    for p in range(0, len(rows), use.machine.gpsimd_core_partitions):
        places = [use["index_offset"] + int(at) for at in np.flatnonzero(rows[p])]
        values[p] = [*places, *[rest] * (rows.shape[1] - len(places)), len(places)]
        chosen[p] = True
    return LiteralResult(values, chosen)


@means("topk")
def topk(use: LiteralUse) -> tuple[Any, Any]:
    """Return the k largest of n elements in each 16 partitions, down the partitions, ascending."""
    rows = to_float32(use.rows("src"))
    count = use["n"]
    lanes = use.machine.gpsimd_core_partitions
    (partitions, *free) = use.shape
    k = int(np.prod(free))
    values = np.zeros((partitions, k), np.float32)
    places = np.zeros((partitions, k), np.int64)
    chosen = np.zeros(values.shape, np.bool_)
    for first in range(0, partitions, lanes):
        numbers = [rows[first + i % lanes, i // lanes] for i in range(count)]
        keys = [
            (n == n, n if n == n else 0.0, -at)
            for at, n in enumerate(map(float, numbers))
        ]
        order = sorted(range(count), key=keys.__getitem__)[-k:]  # NaN is the least
        for j, place in enumerate(order):
            at = first + j % lanes, j // lanes
            values[at] = numbers[place]
            places[at] = place
            chosen[at] = True
    return LiteralResult(values, chosen), LiteralResult(places, chosen)


# -- selections -----------------------------------------------------------------------------------


@means("affine_select")
def affine_select(use: LiteralUse) -> LiteralResult:
    """Return ``on_true_tile`` where an affine index value compares with 0, else a number."""
    data = use["on_true_tile"]
    pred = use["pred"]
    if pred.size == data.size:
        pred = pred.reshape(data.shape)
    chosen = getattr(np, str(use.op("cmp_op")))(pred, 0)
    return LiteralResult(
        np.where(chosen, to_float32(data), np.float32(use["on_false_value"]))
    )


@means("range_select")
def range_select(use: LiteralUse) -> tuple[Any, Any]:
    """Return ``on_true_tile`` where the free index is within two bounds, else the least float32."""
    rows = to_float32(use.rows("on_true_tile"))
    line = (use["range_start"] + np.arange(rows.shape[1])).astype(np.float32)[None]
    low, high = (to_float32(use.vector(name, 2)) for name in ("bound0", "bound1"))
    first = str(use.op("comp_op0"))
    last = str(use.op("comp_op1"))
    chosen = apply_literal(first, line, low) & apply_literal(last, line, high)
    result = np.where(chosen, rows, np.float32(use["on_false_value"]))
    # Without a command, a requested result covers this instruction alone.
    alone = use["reduce_cmd"].name == "IDLE" and "reduce_res" in use.call.destinations
    command = "RESET_REDUCE" if alone else ""
    held = accumulate_literal(use, "vector", result, "maximum", command=command)
    return LiteralResult(result.reshape(use.shape)), held


@means("select_reduce")
def select_reduce(use: LiteralUse) -> tuple[Any, Any]:
    """Return ``predicate ? on_true : on_false``, and optionally its maximum a partition."""
    data = to_float32(use.rows("on_true"))
    chosen = (use.rows("predicate") != 0) ^ bool(use["reverse_pred"])
    result = np.where(chosen, data, to_float32(use.vector("on_false", 2)))
    return LiteralResult(result.reshape(use.shape)), accumulate_literal(
        use, "vector", result, "maximum"
    )


@means("where")
def where(use: LiteralUse) -> LiteralResult:
    """Return ``condition ? x : y``, bit by bit if the dtypes are equal, else through float32."""
    same = all(use.dtype_of(name) == use.dtype for name in ("x", "y"))
    sides = [
        use[name] if same else to_float32(use.vector(name, 1) if number else use[name])
        for name in ("x", "y")
        for number in [not isinstance(use.literals[name], Literal)]
    ]
    return LiteralResult(np.where(use["condition"] != 0, *sides))


@means("dropout")
def dropout(use: LiteralUse) -> LiteralResult:
    """Return ``data``, or 0 where the launch dropped an element: the choice is the launch's."""
    data = use["data"]
    return LiteralResult(np.where(use.taken == 0, use.taken.astype(data.dtype), data))
