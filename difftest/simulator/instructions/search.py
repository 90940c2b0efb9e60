"""Search and gather within partitions: max8 and its companions, local_gather, shuffles."""

from __future__ import annotations

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import LimitError, OutOfBoundsError, ShapeError
from difftest.simulator.instructions.elementwise import result_like
from difftest.simulator.instructions.record import (
    DST,
    SBUF_ONLY,
    CheckedCall,
    DependenceClass,
    MaskedValues,
    Number,
    OperandKind,
    Result,
    Role,
    instruction,
)
from difftest.simulator.instructions.reduce import all_free_axes
from difftest.simulator.instructions.rules import (
    limits,
    one_dtype,
    rule_factory,
    same_free_size,
    same_partitions,
)
from difftest.simulator.instructions.values import as_float, rows
from difftest.simulator.lifted import made_like, settled, step
from difftest.simulator.trace import Engine

EIGHT = 8
UINT16 = np.dtype(np.uint16)
UINT32 = np.dtype(np.uint32)
INDEX_DTYPES = (UINT16, UINT32)
SEQUENCE_DTYPES = (np.dtype(np.float32), np.dtype(np.int32))
GATHER_WIDTHS = (1, 2, 4, 8, 16, 32)
_COLUMNS = 256
"""The columns into which max8 folds long rows: this takes a fourth to a half of a sort's time."""
_WORTH_FOLDING = 4
KEEP = 255
"""The mask entry of nc_stream_shuffle that leaves a partition unchanged."""


@rule_factory
def length(call: CheckedCall, role: str, *, at_least_eight: bool) -> None:
    """Limit the elements a partition, and the dimensions, of the eight-value instructions.

    The dimensions are at most 5 at v2.26.0, 3 at v2.32.0, and 2 for dst there. nc_match_replace8
    is unlimited.
    """
    lowest, maximum = call.machine.max8_range
    minimum = lowest if at_least_eight else 1
    most = 3 if at_least_eight and call.dialect == "nki" else 5
    tile: Descriptor = call[role]
    wrong = not minimum <= tile.free_size <= maximum or len(tile.shape) > most
    rule = f"{minimum} to {maximum} elements a partition, in up to {most} dimensions"
    dst = call.destinations["dst"].shape if most == 3 else (0, 0)
    limits(
        call,
        (wrong, rule, f"{role} {list(tile.shape)}: {tile.free_size} elements"),
        (len(dst) != 2, "dst is [partitions, 8]", f"dst {list(dst)}"),
    )


def _eight_values(call: CheckedCall) -> None:
    vals: Descriptor = call["vals"]
    if vals.free_size != EIGHT or len(vals.shape) > 3:
        raise call.refused(
            f"takes {EIGHT} values a partition, in up to 3 dimensions",
            f"got {vals.free_size} values a partition, in {len(vals.shape)} dimensions",
            f"vals {vals!r}",
            error=ShapeError,
        )


# -- max8, nc_find_index8, nc_match_replace8 -------------------------------------------------------


@instruction(
    Engine.VECTOR,
    operands=(Role("src"),),
    limits=("max8_range",),
    rules=(length("src", at_least_eight=True),),
    result=lambda call: Result(
        (call["src"].partitions, EIGHT), call.wanted_dtype(call["src"].dtype)
    ),
    reduced=all_free_axes,
    orders=True,
    reach=DependenceClass.ROW,
)
def max8(call: CheckedCall, src: Array) -> Array:
    """Find the 8 largest values of each partition, descending."""
    return -np.sort(-_candidates(as_float(rows(src))), axis=1)[:, :EIGHT]


def _candidates(lines: Array) -> Array:
    """Return elements of each row that include its 8 largest: for a long row, its best 8 columns.

    A row is folded into columns. Each of the 8 largest is in one of the 8 columns with the largest
    maxima.
    """
    partitions, length = lines.shape
    depth = length // _COLUMNS
    if depth < _WORTH_FOLDING or not isinstance(lines, np.ndarray):
        return lines
    folded = lines[:, : depth * _COLUMNS].reshape(partitions, depth, _COLUMNS)
    best = np.argpartition(-np.fmax.reduce(folded, axis=1), EIGHT - 1, axis=1)[
        :, :EIGHT
    ]
    chosen = np.take_along_axis(folded, best[:, None, :], axis=2)
    return np.concatenate(
        (chosen.reshape(partitions, -1), lines[:, depth * _COLUMNS :]), axis=1
    )


def ranks_of(vals: Array, *, backwards: bool) -> Array:
    """Return, for each of 8 values, the number of equal values that match before it."""
    equal = vals[:, :, None] == vals[:, None, :]
    earlier = np.tri(EIGHT, k=-1, dtype=np.bool_)
    return np.asarray((equal & (earlier.T if backwards else earlier)).sum(axis=2))


@step
def matches(
    data: Array,
    vals: Array,
    call: CheckedCall,
    *,
    missing: int | None,
    backwards: bool = False,
) -> Array:
    """Return the 8 places for each partition; ``missing`` for a value that is not in the data.

    If ``missing`` is None, such a place is undefined. With ``backwards`` the last of equal values
    takes the first place.
    """
    lines = as_float(rows(data))
    wanted = as_float(rows(vals))
    low, high = (
        end.reduce(wanted, axis=1, keepdims=True) for end in (np.fmin, np.fmax)
    )
    at = np.flatnonzero((lines >= low) & (lines <= high))
    row, column = np.divmod(at, lines.shape[1])
    value = lines.reshape(-1)[at]
    starts = np.searchsorted(row, np.arange(len(lines)))
    ranks = ranks_of(wanted, backwards=backwards)
    places = np.full(wanted.shape, -1, dtype=np.int64)
    for k in range(EIGHT):
        mask = value == wanted[row, k]
        before = np.concatenate(([0], np.cumsum(mask)))
        taken = mask & (before[:-1] - before[starts][row] == ranks[row, k])
        places[row[taken], k] = column[taken]
    absent = places < 0
    if missing is not None:
        places[absent] = missing
    elif absent.any():
        partition, k = np.argwhere(absent)[0]
        raise call.refused(
            "has no documented result for a value that is not in the data",
            "was to find a value that is not in the data",
            f"vals {float(wanted[partition, k])!r} in partition {partition}",
            remedy="take vals from nisa.max8 of the same data",
        )
    return places


@instruction(
    Engine.VECTOR,
    operands=(Role("data"), Role("vals", whole_rows=True)),
    options=("all_ones",),
    limits=("max8_range",),
    rules=(
        length("data", at_least_eight=True),
        _eight_values,
        same_partitions("data", "vals"),
    ),
    destinations=(Role("dst", dtypes=INDEX_DTYPES),),
    result=lambda call: Result(
        (call["data"].partitions, EIGHT), call.wanted_dtype(UINT32)
    ),
    reduced=all_free_axes,
    orders=True,
    reach=DependenceClass.ROW,
)
def nc_find_index8(call: CheckedCall, data: Array, vals: Array) -> Array:
    """Find the index of each of 8 values in its partition; duplicates take successive places.

    For a missing value all bits are set if ``all_ones`` (as v2.32.0 spells it); else the index is
    undefined.
    """
    missing = int(np.iinfo(call.result.dtype).max) if call["all_ones"] else None
    return matches(data, vals, call, missing=missing)


@instruction(
    Engine.VECTOR,
    operands=(
        Role("data"),
        Role("vals", whole_rows=True),
        Role("imm", takes=OperandKind.NUMBER),
    ),
    options=("backwards",),
    destinations=(
        DST,
        Role(
            "dst_idx",
            dtypes=INDEX_DTYPES,
            optional=True,
            shape=lambda call: (call["data"].partitions, EIGHT),
        ),
    ),
    limits=("max8_range",),
    rules=(
        length("data", at_least_eight=False),
        _eight_values,
        same_partitions("data", "vals"),
    ),
    result=result_like("data"),
    orders=True,
    reach=DependenceClass.ROW,
)
def nc_match_replace8(
    call: CheckedCall, data: Array, vals: Array, imm: Number
) -> tuple[Array, Array]:
    """``dst = data`` with the first occurrence of each of 8 values replaced by ``imm``.

    Of equal values the first is matched first, or the last if ``backwards`` (as v2.32.0 spells it).
    """
    places = matches(data, vals, call, missing=None, backwards=call["backwards"])
    lines = as_float(rows(data)).copy()
    np.put_along_axis(lines, places, np.float32(imm), axis=1)
    return lines.reshape(data.shape), places


# -- gathers ---------------------------------------------------------------------------------------


def _used(call: CheckedCall) -> int:
    """Return the number of indices that each GpSimd core uses."""
    count: int | None = call["num_valid_indices"]
    if count is None:
        return _available(call)
    return count


def _available(call: CheckedCall) -> int:
    cores = call.machine.gpsimd_core_partitions
    src = call["src_buffer"]
    if src.partitions % cores:
        return 0
    return int(call["index"].size // (src.partitions // cores))


def _gatherable(call: CheckedCall) -> None:
    cores = call.machine.gpsimd_core_partitions
    width = call["num_elem_per_idx"]
    used = _used(call)
    partitions = call["src_buffer"].partitions
    available = _available(call)
    most = call.machine.gather_indices_max
    limits(
        call,
        (
            partitions % cores,
            f"partitions are a multiple of {cores}",
            f"{partitions} partitions",
        ),
        (
            width not in GATHER_WIDTHS,
            f"num_elem_per_idx is one of {GATHER_WIDTHS}",
            f"num_elem_per_idx={width}",
        ),
        (used > most, f"at most {most} indices a core", f"{used} indices"),
        (used < 1, "at least one index", f"{used} indices"),
        (
            used > available,
            f"at most the {available} indices of a core's slice",
            f"{used} indices",
        ),
    )


@instruction(
    Engine.GPSIMD,
    operands=(
        Role("src_buffer", buffers=SBUF_ONLY),
        Role("index", buffers=SBUF_ONLY, dtypes=(UINT16,)),
    ),
    destinations=(Role("dst", buffers=SBUF_ONLY),),
    options=("num_elem_per_idx", "num_valid_indices"),
    limits=("gpsimd_core_partitions", "gather_indices_max"),
    rules=(
        same_partitions("src_buffer", "index"),
        _gatherable,
        one_dtype("src_buffer", "dst"),
    ),
    result=lambda call: Result(
        (call["src_buffer"].partitions, _used(call), call["num_elem_per_idx"]),
        call.wanted_dtype(call["src_buffer"].dtype),
    ),
    reach=DependenceClass.TILE,
)
def local_gather(call: CheckedCall, src_buffer: Array, index: Array) -> Array:
    """Gather within each 16 partitions at their own indices: [P, indices, elements]."""
    lanes = call.machine.gpsimd_core_partitions
    width = call["num_elem_per_idx"]
    used = _used(call)
    lines = rows(src_buffer)
    result: Array = made_like(lines, (lines.shape[0], used, width))
    for start in range(0, lines.shape[0], lanes):
        group = slice(start, start + lanes)
        order = index[group].reshape(lanes, -1).T.reshape(-1)[:used].astype(np.int64)
        columns = order[:, None] + np.arange(width)
        if columns.max() >= lines.shape[1]:
            raise call.refused(
                "is undefined for indices beyond src_buffer",
                f"got an index of {int(columns.max())} in {lines.shape[1]}",
                f"element {int(columns.max())} of {call['src_buffer']!r}",
                error=OutOfBoundsError,
                limit=f"0 to {lines.shape[1] - 1}",
            )
        result[group] = np.take(lines[group], columns, axis=1)
    return result


@instruction(
    Engine.GPSIMD,
    operands=(
        Role("indices", dtypes=(UINT32,)),
        Role("data", whole_rows=True),
    ),
    rules=(same_partitions("data", "indices"),),
    result=lambda call: Result(
        call["indices"].shape, call.wanted_dtype(call["data"].dtype)
    ),
    pages=("nki/api/generated/nki.language.gather_flattened",),
)
def gather_flattened(call: CheckedCall, indices: Array, data: Array) -> Array:
    """``dst[p, i] = data[p, indices[p, i]]`` over the flattened free axes."""
    rule = "gather_flattened returns garbage for indices beyond the data"
    return taken_along_rows(call, data, indices, rule)


def taken_along_rows(
    call: CheckedCall, data: Array, indices: Array, rule: str
) -> Array:
    """Return ``data[p, indices[p, i]]``, with the free axes of each flattened.

    Raises
    ------
    OutOfBoundsError : an index is beyond the row; ``rule`` is the broken rule.
    """
    lines = rows(data)
    places = rows(indices).astype(np.int64)
    if places.max() >= lines.shape[1]:
        raise OutOfBoundsError(
            rule,
            happened=f"{call.name} got an index of {int(places.max())} in {lines.shape[1]}",
            received=f"index {int(places.max())} into {call['data']!r}",
            limit=f"0 to {lines.shape[1] - 1}",
        )
    return np.take_along_axis(lines, places, axis=1).reshape(call.result.shape)


# -- nc_stream_shuffle -----------------------------------------------------------------------------


def _shuffle_mask(call: CheckedCall) -> None:
    quadrant = call.machine.shuffle_quadrant
    order = list(call["shuffle_mask"])
    if len(order) != quadrant or any(
        not (0 <= k < quadrant or k == KEEP) for k in order
    ):
        raise call.refused(
            f"takes a list of {quadrant} partitions",
            f"got a shuffle_mask of {len(order)} numbers",
            f"shuffle_mask={order}",
            limit=f"0 to {quadrant - 1}, or {KEEP} to leave a partition alone",
        )


def _shuffle_starts(call: CheckedCall) -> None:
    """Require whole quadrants to begin where the hardware can address their number."""
    quadrant = call.machine.shuffle_quadrant
    sides = {"src": call["src"], "dst": call.destinations["dst"]}
    quadrants = max(-(-side.partitions // quadrant) for side in sides.values())
    step = {1: quadrant, 2: 2 * quadrant}.get(quadrants, call.machine.partitions)
    for name, side in sides.items():
        if side.start % step:
            raise call.refused(
                f"of {quadrants * quadrant} active partitions begins at certain partitions",
                f"got {name} that begins at partition {side.start}",
                f"{name} = {side!r}, which begins at partition {side.start}",
                error=LimitError,
                limit=", ".join(map(str, range(0, call.machine.partitions, step))),
            )


@instruction(
    Engine.VECTOR,
    operands=(Role("src"),),
    options=("shuffle_mask",),
    limits=("partitions", "shuffle_quadrant"),
    rules=(
        _shuffle_mask,
        one_dtype("src", "dst"),
        same_free_size("src", "dst"),
        _shuffle_starts,
    ),
    result=lambda call: Result(call.destinations["dst"].shape, call["src"].dtype),
    reach=DependenceClass.TILE,
)
def nc_stream_shuffle(call: CheckedCall, src: Array) -> MaskedValues:
    """Move partitions within each quadrant of 32: ``dst[q + i] = src[q + order[i]]``."""
    order = call["shuffle_mask"]
    quadrant = call.machine.shuffle_quadrant
    lines = rows(src)
    partitions = call.result.shape[0]
    values = made_like(lines, (partitions, lines.shape[1]))
    chosen = np.zeros(values.shape, dtype=np.bool_)
    to = np.arange(partitions)
    sources = np.array(order)[to % quadrant]
    there = (sources != KEEP) & (to - to % quadrant + sources < lines.shape[0])
    chosen[there] = True
    values[there] = lines[(to - to % quadrant + sources)[there]]
    return MaskedValues(
        values.reshape(call.result.shape), chosen.reshape(call.result.shape)
    )


# -- sequence_bounds -------------------------------------------------------------------------------


@instruction(
    Engine.GPSIMD,
    operands=(
        Role(
            "segment_ids",
            buffers=SBUF_ONLY,
            dtypes=SEQUENCE_DTYPES,
            shape=lambda call: (1, *call["segment_ids"].shape[1:]),
        ),
    ),
    destinations=(Role("dst", buffers=SBUF_ONLY, dtypes=SEQUENCE_DTYPES),),
    carries=False,
    result=lambda call: Result(
        (1, 2, *call["segment_ids"].shape[1:]),
        call.wanted_dtype(call["segment_ids"].dtype),
    ),
)
def sequence_bounds(call: CheckedCall, segment_ids: Array) -> Array:
    """Start and end of each element's segment, (n, -1) for id 0: [1, 2, n] for ids [1, n]."""
    ids = settled(segment_ids.reshape(-1))
    wrong = ~((ids >= 0) & (np.mod(ids, 1) == 0))
    if wrong.any():
        raise call.refused(
            "takes integers of at least 0 as segment_ids",
            f"got the segment {float(ids[wrong][0]):g}",
            f"{float(ids[wrong][0]):g} at element {int(np.flatnonzero(wrong)[0])}",
        )
    bounds = np.empty((2, ids.size), dtype=np.float32)
    for i, segment in enumerate(ids):
        same = np.flatnonzero(ids == segment)
        bounds[:, i] = (same[0], same[-1] + 1) if segment != 0 else (ids.size, -1)
    return bounds.reshape(call.result.shape)
