"""Selections, searches and gathers within partitions (``nki.isa``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, DTYPES, FLOAT32, FLOATS, INT32, TFLOAT32
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    LimitError,
    OutOfBoundsError,
    not_modelled,
)
from difftest.simulator.frontend.arguments import reduce_cmd
from difftest.simulator.plain import rules
from difftest.simulator.plain.elementwise import OPERAND, copied_from_psum, dtype_of, each_element
from difftest.simulator.plain.indices import (
    PlainMask,
    common_shape,
    integers,
    mask_over,
    partitions_first,
)
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.operators import (
    apply,
    math_operator,
    number_as_float32,
    operator_of,
)
from difftest.simulator.plain.registers import accumulate
from difftest.simulator.plain.rounding import WIDE, Array, promoted, to_float32
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Space

UINT16, UINT32 = np.dtype(np.uint16), np.dtype(np.uint32)
AFFINE = (*FLOATS, *(np.dtype(name) for name in ("int8", "uint8", "int16", "uint16")))
PREDICATES = tuple(np.dtype(name) for name in ("int8", "uint8", "int16", "uint16", "bool"))
SELECTED = tuple(one for one in DTYPES if one != TFLOAT32 and one not in WIDE)
COMPARISON = operator_of("equal", "less", "less_equal", "greater", "greater_equal")
RESET_REDUCE = reduce_cmd.reset_reduce
FP32_MIN = float(np.finfo(np.float32).min)
KEEP = 255
"""nc_stream_shuffle leaves a partition alone whose entry is this."""


def _maximum(op: Any, name: str, where: str) -> str:
    """A role: the one reduction that selections have."""
    found = math_operator(op, name, where)
    if found != "maximum":
        raise not_modelled(f"{where}'s {name} other than max", found)
    return found


@means(
    "nisa.affine_select",
    on_true_tile=copied_from_psum("affine_select", dtypes=AFFINE),
    on_false_value=rules.number,
    dtype=rules.dtype,
)
def affine_select(
    pred: Any, on_true_tile: PlainTensor, on_false_value: Any, mask: Any, dtype: Any
) -> PlainTensor:
    """``on_true_tile`` where one comparison of indices holds, else a number."""
    data = on_true_tile
    if not isinstance(pred, PlainMask) or len(pred.parts) != 1:
        raise KernelError(
            "affine_select takes one comparison of indices",
            happened="affine_select got a pred that is not one comparison",
            received=f"{pred!r:.80}",
        )
    result = dtype or data.dtype
    rules.require(result in AFFINE, "affine_select gives some dtypes", result, error=DtypeError)
    chosen, kept = mask_over(pred, data.shape), mask_over(mask, data.shape)
    gone = np.zeros(data.shape, np.bool_)

    def lost(holes: Array) -> Array:
        gone[...] = holes & chosen
        return gone

    def compute(x: Array) -> Array:
        holds = chosen[kept & ~gone]
        return np.where(holds, to_float32(x), number_as_float32(on_false_value))

    return each_element(data.shape, result, (data,), compute, mask, lost=lost)


@means(
    "nisa.range_select",
    on_true_tile=rules.tile(dtypes=FLOATS),
    comp_op0=COMPARISON,
    comp_op1=COMPARISON,
    bound0=rules.tile(dtypes=(FLOAT32,)),
    bound1=rules.tile(dtypes=(FLOAT32,)),
    reduce_cmd=rules.member(reduce_cmd),
    reduce_res=rules.optional(rules.tile()),
    reduce_op=_maximum,
    range_start=rules.whole,
    on_false_value=rules.number,
    dtype=rules.dtype,
)
def range_select(
    on_true_tile: PlainTensor,
    comp_op0: str,
    comp_op1: str,
    bound0: PlainTensor,
    bound1: PlainTensor,
    reduce_cmd: Any,
    reduce_res: PlainTensor | None,
    reduce_op: str,
    range_start: int,
    on_false_value: Any,
    mask: Any,
    dtype: Any,
) -> PlainTensor:
    """``on_true_tile`` where the free index lies between two bounds, else the least float32."""
    where, data = "range_select", on_true_tile
    run = current()
    rules.require(run.machine.nc_version >= 3, f"{where} needs NeuronCore-v3", error=KernelError)
    legal = float(on_false_value) == FP32_MIN
    rules.require(legal, f"{where}'s on_false_value is fp32.min", on_false_value, error=KernelError)
    low, high = (rules.one_element_each(bound, data, where) for bound in (bound0, bound1))
    count = data.rows().shape[1]
    exact = range_start + count <= 2**24
    rules.require(exact, f"{where} compares indices in float32", range_start, error=KernelError)
    line = (range_start + np.arange(count)).astype(np.float32)
    kept = mask_over(mask, data.shape)
    lanes = kept.reshape(-1, count)
    rows = lanes.any(axis=1, keepdims=True)
    carries = bool(kept.all())
    held, holes = data.readable(kept, carries=carries)
    values = to_float32(held).reshape(-1, count)
    ends = [bound.readable(rows, carries=carries) for bound in (low, high)]
    chosen = apply(comp_op0, line, ends[0][0]) & apply(comp_op1, line, ends[1][0])
    gone = (holes.reshape(-1, count) & chosen) | ends[0][1] | ends[1][1]
    result = np.where(chosen, values, np.float32(on_false_value))
    dst = run.allocate(data.shape, dtype or data.dtype)
    dst.put(result.reshape(dst.shape), kept)
    dst.leave_out(kept)
    dst.forget(gone.reshape(dst.shape))
    # A result that is asked for with no command is of this instruction alone.
    command = RESET_REDUCE if reduce_res is not None and not reduce_cmd else reduce_cmd
    if command and kept.any():
        lost = gone.any(axis=1)
        accumulate("vector", result, reduce_op, command, reduce_res, _unless_all(lanes), lost)
    return dst


def _unless_all(kept: Array) -> Array | None:
    """A mask's bools, None where it leaves nothing out."""
    return None if kept.all() else kept


@means(
    "nisa.select_reduce",
    dst=rules.tile(),
    predicate=rules.tile(dtypes=PREDICATES),
    on_true=rules.tile(dtypes=SELECTED),
    on_false=OPERAND,
    reduce_res=rules.optional(rules.tile(dtypes=FLOATS)),
    reduce_cmd=rules.member(reduce_cmd),
    reduce_op=_maximum,
    dtype=rules.dtype,
)
def select_reduce(
    dst: PlainTensor,
    predicate: PlainTensor,
    on_true: PlainTensor,
    on_false: Any,
    reduce_res: PlainTensor | None,
    reduce_cmd: Any,
    reduce_op: str,
    reverse_pred: bool,
    mask: Any,
    dtype: Any,
) -> None:
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
    where = "select_reduce"
    rules.dtype_of(dst, dtype, where)
    rules.not_both_in_psum(where, on_true, predicate)
    rules.same_elements(where, dst, predicate, on_true)
    reads = reduce_res is None or bool(reduce_cmd)
    rules.require(reads, f"{where} reads registers that it uses", reduce_res, error=KernelError)
    other = rules.one_element_each(on_false, on_true, where)
    kept = mask_over(mask, dst.shape).reshape(dst.shape[0], -1)
    rows = np.any(kept, axis=1, keepdims=True)
    dst.leave_out(kept)
    carries = not dst.storage.masked
    held, holes = on_true.rows().readable(kept, carries=carries)
    decided, unknown = predicate.rows().readable(kept, carries=carries)
    chosen = (decided != 0) ^ bool(reverse_pred)
    gone = unknown | (holes & chosen)
    if isinstance(other, PlainTensor):
        number, missing = other.readable(rows, carries=carries)
        beside, gone = to_float32(number), gone | (missing & ~chosen)
    else:
        beside = number_as_float32(other)
    result = np.where(chosen, to_float32(held), beside)
    dst.put(result.reshape(dst.shape), kept.reshape(dst.shape))
    dst.forget(gone.reshape(dst.shape))
    if reduce_cmd and kept.any():
        lost = gone.any(axis=1)
        accumulate("vector", result, reduce_op, reduce_cmd, reduce_res, _unless_all(kept), lost)


# -- gathers --------------------------------------------------------------------------------------


def _inside(where: str, index: Array, size: int) -> None:
    legal = index.size == 0 or (index.min() >= 0 and index.max() < size)
    rules.require(bool(legal), f"{where}: an index beyond the data", size, error=OutOfBoundsError)


@means(
    "nisa.local_gather",
    src_buffer=rules.tile(Space.SBUF),
    index=rules.tile(Space.SBUF, dtypes=(UINT16,)),
    num_elem_per_idx=rules.whole,
    num_valid_indices=rules.optional(rules.whole),
)
def local_gather(
    src_buffer: PlainTensor,
    index: PlainTensor,
    num_elem_per_idx: int,
    num_valid_indices: int | None,
    mask: Any,
) -> PlainTensor:
    """Each core gathers in its 16 partitions at the indices that they hold, by columns."""
    where, src, width = "local_gather", src_buffer, num_elem_per_idx
    machine = current().machine
    lanes, most = machine.gpsimd_core_partitions, machine.gather_indices_max
    partitions = src.shape[0]
    rules.same_partitions(where, src, index)
    available = index.size // max(partitions // lanes, 1)
    used = available if num_valid_indices is None else num_valid_indices
    fits = partitions % lanes == 0 and 1 <= used <= min(available, most)
    legal = fits and width in (1, 2, 4, 8, 16, 32)
    rules.require(legal, f"{where}'s sizes", src, index, width, used, error=LimitError)
    chosen = mask_over(mask, (partitions, used, width))
    if not chosen.any():
        nothing = current().allocate(chosen.shape, src.dtype)
        nothing.leave_out(chosen)
        return nothing
    dst = current().allocate(chosen.shape, src.dtype)
    dst.leave_out(chosen)
    part = ~src.rows().missing() if not dst.storage.masked else np.ones(src.rows().shape, np.bool_)
    gone = chosen & ~np.all(part, axis=1)[:, None, None]
    if src.storage.masked or (gone == chosen).all():
        part, gone = np.ones_like(part), np.zeros_like(gone)
    rows, held = src.rows().read(part), index.rows().read()
    result = np.zeros((partitions, used, width), rows.dtype)
    for p in range(partitions):
        core = p - p % lanes
        flat = held[core : core + lanes].T.reshape(-1)[:used].astype(np.int64)
        columns = flat[:, None] + np.arange(width)
        _inside(where, columns, rows.shape[1])
        result[p] = rows[p][columns]
    dst.write(result, chosen & ~gone)
    return dst


@means(
    "nl.gather_flattened",
    data=rules.tile(),
    indices=rules.tile(dtypes=(UINT32,)),
    dtype=rules.dtype,
)
def gather_flattened(data: PlainTensor, indices: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """``data[p, indices[p, i]]`` over the flattened free axes."""
    rules.same_partitions("gather_flattened", data, indices)
    chosen = mask_over(mask, indices.shape)
    places = indices.read(chosen).astype(np.int64)
    size = data.rows().shape[1]
    _inside("gather_flattened", places[chosen], size)
    columns = np.where(chosen, places, 0).reshape(data.shape[0], -1)
    positions = np.take_along_axis(data.rows().positions, columns, axis=1)
    picked = data.at(positions.reshape(indices.shape), 0)
    result = dtype or data.dtype
    return each_element(indices.shape, result, (picked,), lambda x: x, mask)


def _first_partition(tile: PlainTensor) -> int:
    storage = tile.storage
    element = int(tile.positions.flat[0]) * tile.dtype.itemsize // storage.dtype.itemsize
    return int(np.unravel_index(element, storage.shape)[storage.partition])


@means(
    "nisa.nc_stream_shuffle",
    src=rules.tile(),
    dst=rules.tile(),
    dtype=rules.dtype,
)
def nc_stream_shuffle(
    src: PlainTensor, dst: PlainTensor, shuffle_mask: Any, dtype: Any, mask: Any
) -> None:
    """In each quadrant partition i of ``dst`` becomes partition shuffle_mask[i] of ``src``."""
    where, quadrant = "nc_stream_shuffle", current().machine.shuffle_quadrant
    rules.dtype_of(dst, dtype, where)
    order = integers(shuffle_mask, "shuffle_mask")
    legal = len(order) == quadrant and all(0 <= k < quadrant or k == KEEP for k in order)
    rules.require(legal, f"{where} takes {quadrant} partitions", order, error=KernelError)
    source, target = src.rows(), dst.rows()
    same = src.dtype == dst.dtype and source.shape[1] == target.shape[1]
    rules.require(same, f"{where} takes dst of src's dtype and elements", src, dst)
    active = -(-max(source.shape[0], target.shape[0]) // quadrant)
    starts = [k * quadrant for k in {1: (0, 1, 2, 3), 2: (0, 2), 3: (0,), 4: (0,)}[active]]
    for side in (src, dst):
        begins = _first_partition(side) in starts
        rules.require(begins, f"{where} begins at {starts}", side, error=LimitError)
    kept = mask_over(mask, dst.shape)
    dst.leave_out(kept)
    if not kept.any():
        return
    chosen = kept.reshape(target.shape)
    whole = np.ones(source.shape, dtype=np.bool_)
    gone = ~whole if dst.storage.masked else source.holes(whole)
    values = source.read(~gone)
    for p in range(target.shape[0]):
        wanted = p - p % quadrant + order[p % quadrant]
        if order[p % quadrant] != KEEP and wanted < len(values):
            line, lost = target.at(target.positions[p : p + 1], 0), gone[wanted : wanted + 1]
            line.write(values[wanted : wanted + 1], chosen[p : p + 1] & ~lost)
            line.forget(chosen[p : p + 1] & lost)


@means(
    "nisa.sequence_bounds",
    segment_ids=rules.tile(Space.SBUF, dtypes=(FLOAT32, INT32)),
    dtype=rules.dtype,
)
def sequence_bounds(segment_ids: PlainTensor, dtype: Any) -> PlainTensor:
    """For each element the start and end of its segment; (n, -1) for padding, id 0."""
    where = "sequence_bounds"
    result = dtype or segment_ids.dtype
    rules.require(segment_ids.shape[0] == 1, f"{where} takes one partition", segment_ids)
    legal = result in (FLOAT32, INT32)
    rules.require(legal, f"{where} gives float32 or int32", result, error=DtypeError)
    ids = segment_ids.read().reshape(-1)
    whole = bool((np.isfinite(ids) & (ids >= 0) & (ids == np.rint(ids))).all())
    rules.require(whole, f"{where} takes integers that are not negative", ids, error=KernelError)
    bounds = np.zeros((2, len(ids)), np.int64)
    for i, segment in enumerate(ids):
        same = np.flatnonzero(ids == segment)
        bounds[:, i] = (same[0], same[-1] + 1) if segment else (len(ids), -1)
    dst = current().allocate((1, 2, *segment_ids.shape[1:]), result)
    dst.put(bounds.reshape(dst.shape))
    return dst


# -- nl.where --------------------------------------------------------------------------------------


def condition_of_where(value: Any, name: str, where: str) -> Any:
    """A role: a tile, or a comparison of indices."""
    return value if isinstance(value, PlainMask) else rules.tile()(value, name, where)


@means("nl.where", condition=condition_of_where, x=OPERAND, y=OPERAND, dtype=rules.dtype)
def where(condition: Any, x: Any, y: Any, dtype: Any, mask: Any) -> PlainTensor:
    """``condition ? x : y``; of one dtype bit by bit, else through float32."""
    tiles = tuple(side for side in (x, y) if isinstance(side, PlainTensor))
    if isinstance(condition, PlainMask):
        error = KernelError(
            "nl.where takes a tile as condition",
            happened="nl.where got a comparison of indices",
            received=f"{condition.values.shape}",
        )
        note(error)
        held = condition.values
        for tile in tiles[:1]:
            partitions_first(held.shape, tile.shape, "a condition")
        extent = common_shape(held.shape, tiles[0].shape if tiles else held.shape)
        condition = current().allocate(extent, BOOL)
        condition.put(np.broadcast_to(held, extent))
    rules.require(
        all(tile.ndim == condition.ndim for tile in tiles), "nl.where: one rank", condition, *tiles
    )
    shape = common_shape(condition.shape, *(tile.shape for tile in tiles))
    dtypes = [dtype_of(side) for side in (tiles if len(tiles) == 1 else (x, y))]
    result = dtype or promoted(*dtypes)
    exact = len(tiles) == 2 and all(tile.dtype == result for tile in tiles)

    def compute(chosen: Array, *parts: Array) -> Array:
        given = iter(parts)
        sides = [
            next(given) if isinstance(side, PlainTensor) else number_as_float32(side)
            for side in (x, y)
        ]
        if not exact:
            sides = [to_float32(side) for side in sides]
        first, second = sides
        return np.where(chosen != 0, first, second)

    kept = mask_over(mask, shape)

    def lost(unknown: Array, *holes: Array) -> Array:
        chosen = condition.spread(shape).read(kept & ~unknown) != 0
        given = iter(holes)
        for side, takes in ((x, chosen), (y, ~chosen)):
            if isinstance(side, PlainTensor):
                unknown = unknown | (next(given) & takes)
        return unknown

    return each_element(shape, result, (condition, *tiles), compute, mask, lost=lost)
