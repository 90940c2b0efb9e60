"""DMA: copies between HBM and SBUF, with casts, transposes, gathers and scatters.

The DMA engines read and write HBM and SBUF, not PSUM. They cast through float32 where dtypes
differ. Source: AWS ``nki.isa.dma_copy`` (v2.26.0; the rule on sizes as v2.32.0 spells it).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    NARROW,
    WIDE_INTEGERS,
    Array,
    from_bits,
    round_to,
    to_bits,
)
from difftest.simulator.elements import unwritten_error
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    LimitError,
    NotModelledError,
    ShapeError,
    not_modelled,
)
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.anomalies import (
    overflowed,
    record_anomaly,
    record_lost_update,
    rounded_sum,
)
from difftest.simulator.instructions.checks import wrong_buffer
from difftest.simulator.instructions.gate import check_destination, store
from difftest.simulator.instructions.record import (
    DMA_SPACES,
    ISA,
    SBUF_ONLY,
    CheckedCall,
    DestinationFit,
    IterationSpace,
    OperandKind,
    Result,
    Role,
    instruction,
    moved,
)
from difftest.simulator.instructions.rules import one_dtype, one_of, same_size
from difftest.simulator.instructions.values import added, as_float
from difftest.simulator.memory import Shape
from difftest.simulator.strictness import report_undefined
from difftest.simulator.tile import Tile
from difftest.simulator.trace import AnomalyKind, Engine, Purpose, Space

TRANSPOSE_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""The permutations of dma_transpose, by number of dimensions."""

_CAST_BY_ASSIGNMENT = (FLOAT32, FLOAT16, BFLOAT16)
"""Dtypes that NumPy itself converts to float32 and back during a copy."""

DST = Role("dst", buffers=DMA_SPACES)
EITHER = Role("src", takes=OperandKind.TILE_OR_INDIRECT, buffers=DMA_SPACES)


def loaded_shape(shape: Shape) -> Shape:
    """Return the shape of a tile loaded from HBM: at least two dimensions."""
    if len(shape) > 1:
        return shape
    if shape:
        return (*shape, 1)
    return (1, 1)


def _cast(values: Array, src: Tile | IndirectTile, dst: Tile | IndirectTile) -> Array:
    """Convert elements from the storage form of ``src``'s memory to the form of ``dst``'s."""
    if src.dtype == dst.dtype:
        if src.dtype in _CAST_BY_ASSIGNMENT or src._holds_bits == dst._holds_bits:
            return values
        if src._holds_bits:
            return from_bits(values, src.dtype)
        return to_bits(values, dst.dtype)
    plain = as_float(_plain(values, src))
    rounded = round_to(plain, dst.dtype)
    if dst.dtype in NARROW and np.isinf(rounded).any():
        overflowed(plain, rounded)
    if dst._holds_bits:
        return to_bits(rounded, dst.dtype)
    return rounded


def _plain(values: Array, src: Tile | IndirectTile) -> Array:
    """Convert elements from the storage form of ``src``'s memory to an engine's values."""
    if src._holds_bits:
        return from_bits(values, src.dtype)
    return values


def _hardware_descriptors(call: CheckedCall) -> None:
    """Require NeuronCore-v3 or later for hardware descriptor generation."""
    if call["dge_mode"] == "hwdge" and call.machine.nc_version < 3:
        raise KernelError(
            "hardware descriptor generation needs NeuronCore-v3",
            happened=f"dge_mode.hwdge was requested on {call.machine.name}",
            received=f"dge_mode.hwdge on {call.machine.name}",
        )


def _hardware_casts_nothing(call: CheckedCall) -> None:
    """Reject casts with hardware descriptors, which move bytes (stub of dma_copy, v2.32.0)."""
    src = call["src"]
    dst = call.destinations["dst"]
    if call["dge_mode"] == "hwdge" and src.dtype != dst.dtype:
        raise call.refused(
            "with dge_mode.hwdge does not cast",
            "with dge_mode.hwdge got two dtypes",
            f"src {src!r}, dst {dst!r}",
            error=DtypeError,
            remedy="give both one dtype, or leave dge_mode out",
        )


def _moved(call: CheckedCall) -> Result:
    """Return the result of a copy into a new tile."""
    src: Descriptor = call["src"]
    return Result(loaded_shape(src.shape), call.wanted_dtype(src.dtype))


def _skips(call: CheckedCall) -> bool:
    """Return whether elements out of bounds are skipped; otherwise they are an error."""
    return bool(call["oob_mode"] == "skip")


def _software_descriptors(call: CheckedCall) -> None:
    """Require software descriptors for an offset in each row."""
    mode = call["dge_mode"]
    sides = (call["src"], call.destinations["dst"])
    if mode in ("none", "hwdge") and any(side.indirect == "rows" for side in sides):
        raise KernelError(
            "an offset for each row needs software descriptors",
            happened=f"{call.name} with dge_mode.{mode} got an offset for each row",
            received=f"dge_mode.{mode} with src {sides[0]!r}, dst {sides[1]!r}",
            remedy="leave dge_mode out, or use dge_mode.swdge",
        )


def _one_thing(call: CheckedCall) -> None:
    """Let a classic copy with indices either gather or scatter, and add only without skips."""
    gathers = call["src"].indirect
    adds = call["dst_rmw_op"] is not None
    if adds and _skips(call):
        raise call.refused(
            "with dst_rmw_op takes oob_mode.error only",
            "with dst_rmw_op got oob_mode.skip",
            "oob_mode.skip",
        )
    dst = call.destinations.get("dst")
    if gathers and (adds or (dst is not None and dst.indirect)):
        raise not_modelled(
            "a dma_copy that gathers and scatters or adds", f"{call['src']!r}, {dst!r}"
        )


def _gathers_or_scatters(call: CheckedCall) -> tuple[str, Purpose]:
    """Return the event's name and purpose, by the side that has indices."""
    if call.destinations and call.destinations["dst"].indirect:
        return "dma_scatter", Purpose.SCATTER
    if call["src"].indirect:
        return ("dma_gather", Purpose.GATHER)
    return (call.name, Purpose.COPY)


@instruction(
    Engine.DMA,
    operands=(EITHER,),
    options=("dst_rmw_op", "oob_mode", "dge_mode"),
    defaults={"dst_rmw_op": None, "oob_mode": None, "dge_mode": "unknown"},
    destinations=(Role("dst", takes=OperandKind.TILE_OR_INDIRECT, buffers=DMA_SPACES),),
    rules=(
        same_size("src", "dst"),
        one_of("dst_rmw_op", "add", says="adds", do="compute"),
        _hardware_descriptors,
    ),
    only={
        "nki": (_software_descriptors, _hardware_casts_nothing),
        "classic": (_one_thing,),
    },
    result=_moved,
    reads_dst=lambda call: call["dst_rmw_op"] is not None,
    event=_gathers_or_scatters,
    in_place=True,
    moves=moved,
    fit=DestinationFit.TOTAL,
    pages=(f"{ISA}dma_copy", "nki/api/generated/nki.language.atomic_rmw"),
    purpose=Purpose.COPY,
)
def dma_copy(
    call: CheckedCall,
    dst: Tile | IndirectTile,
    src: Tile | IndirectTile,
    *,
    where: Array | None,
) -> None:
    """``dst = src``, or ``dst += src``, between HBM and SBUF, in row-major order.

    Indices may name the rows of either side. An element that one of them skips is not moved.
    """
    if isinstance(dst, IndirectTile):
        _scatter(call, dst, src, where)
        return
    if isinstance(src, IndirectTile):
        values = src._elements()
        inside = src._inside.reshape(dst.shape)
        where = None if inside.all() else inside
    else:
        values = src._read(where, unwritten=True)
    if values.shape != dst.shape:
        values = values.reshape(dst.shape)
    if call.options["dst_rmw_op"] is None:
        moved = _cast(values, src, dst)
    else:
        held = _plain(dst._read(where), dst)
        total = round_to(added((held, _plain(values, src)), dst.dtype), dst.dtype)
        moved = to_bits(total, dst.dtype) if dst._holds_bits else total
    check_destination(dst)
    store(dst, moved, where)


def _scatter(
    call: CheckedCall, dst: IndirectTile, src: Tile | IndirectTile, where: Array | None
) -> None:
    check_destination(dst._base)
    assert dst._resolved is not None
    arrays, inside = dst._resolved
    if isinstance(src, IndirectTile):
        values = src._elements()
        inside = inside & src._inside.reshape(dst.shape)
        dst._resolved = arrays, inside
    else:
        values = src._read(inside, unwritten=True)
    values = values.reshape(dst.shape)[inside]
    place = tuple(array[inside] for array in arrays)
    view = dst._base._elements()
    if _skips(call):
        record_anomaly(
            current(),
            AnomalyKind.INDEX_SKIPPED,
            "dst",
            ~inside if where is None else where & ~inside,
        )
    if call["dst_rmw_op"] is None:
        moved = _cast(values, src, dst)
        view[place] = moved
        record_lost_update(current(), dst, view[place], moved)
        dst._mark()
    else:
        missing = dst._unwritten()
        if missing is not None:
            report_undefined(unwritten_error(dst, missing))
        whole = as_float(_plain(view, dst)).astype(np.float32, copy=True)
        np.add.at(whole, place, as_float(_plain(values, src)))
        if dst.dtype in WIDE_INTEGERS:
            exact = _plain(view, dst).astype(np.float64)
            np.add.at(exact, place, _plain(values, src))
            rounded_sum(whole[place], exact[place])
        total = round_to(whole[place], dst.dtype)
        view[place] = to_bits(total, dst.dtype) if dst._holds_bits else total


# -- dma_transpose ---------------------------------------------------------------------------------


def _permutation(call: CheckedCall) -> None:
    """Require the one permutation for the number of dimensions."""
    src: Descriptor = call["src"]
    rank = len(src.shape)
    if rank not in TRANSPOSE_AXES:
        raise call.refused(
            "takes 2 to 4 dimensions",
            f"got a src of {rank} dimensions",
            f"{src!r}",
            error=ShapeError,
            limit="2, 3, 4",
        )
    axes: Sequence[int] | None = call["axes"]
    if axes is not None and tuple(axes) != TRANSPOSE_AXES[rank]:
        raise call.refused(
            "makes one permutation for each number of dimensions",
            f"was to permute {rank} dimensions by {tuple(axes)}",
            f"axes={axes}",
            error=NotModelledError,
            limit=f"{TRANSPOSE_AXES[rank]} for {rank} dimensions",
        )
    partitions = call.machine.partitions
    size = src.shape[TRANSPOSE_AXES[rank][0]]
    if size > partitions:
        raise LimitError(
            f"the partition size of a tile is at most {partitions}",
            happened=f"a transpose was to make {size} partitions",
            received=f"transpose of {src!r}: {size} partitions",
            limit=f"{partitions}",
            remedy=f"transpose {partitions} of the last dimension's elements at a time",
        )


def _offset_rules(call: CheckedCall, src: Descriptor) -> dict[str, bool]:
    """Return the rules for a source with an offset for each row, and whether they hold."""
    shape = src.shape
    rank = len(shape)
    index = src.index
    mode = call["dge_mode"]
    most = call.machine.partitions
    few = call.machine.dge_rows
    rows = index.shape[0]
    return {
        "dge_mode is unknown or swdge": mode in ("unknown", "swdge"),
        "it runs on NeuronCore-v3 and newer": call.machine.nc_version >= 3,
        "src[1] or src[2] has one element if src has four dimensions": rank != 4
        or 1 in shape[1:3],
        f"src.shape[0] is a multiple of {few}": shape[0] % few == 0,
        "the indices have two dimensions": len(index.shape) == 2,
        "the indices are uint32": index.dtype == np.uint32,
        f"the indices' shape[0] is {few} to {most} and a multiple of {few}": few
        <= rows
        <= most
        and rows % few == 0,
        f"the indices' shape[0] is {most} if they have several columns": rows == most
        or index.shape[-1] == 1,
    }


def _hardware_rules(shape: Shape, few: int) -> dict[str, bool]:
    """Return the rules of hardware descriptors for a source's shape, and whether they hold."""
    rank = len(shape)
    halves = [few >> k for k in reversed(range(few.bit_length()))]
    return {
        f"src.shape[0] is {few} for two dimensions": rank != 2 or shape[0] == few,
        f"src.shape[0] is one of {', '.join(map(str, halves))}, and src.shape[0] * "
        f"src.shape[-2] a multiple of {few}": rank <= 2
        or (shape[0] in halves and shape[0] * shape[-2] % few == 0),
    }


def _descriptors_transpose(call: CheckedCall) -> None:
    """Limit transposes by the kind of their descriptors (stub of dma_transpose, v2.32.0)."""
    src: Descriptor = call["src"]
    shape = src.shape
    mode = call["dge_mode"]
    most = call.machine.partitions
    few = call.machine.dge_rows
    rules = {
        "src's dtype has 2 bytes": src.dtype.itemsize == 2,
        f"src.shape[-1] is at most {most}": shape[-1] <= most,
    }
    with_what = f"dge_mode.{mode}"
    if src.indirect == "rows":
        with_what = "an offset for each row"
        rules |= _offset_rules(call, src)
    elif mode == "hwdge":
        rules |= _hardware_rules(shape, few)
    else:
        rules = {"it is for a src with an offset for each row": mode != "swdge"}
    broken = next((rule for rule, holds in rules.items() if not holds), None)
    if broken:
        raise call.refused(
            f"with {with_what}: {broken}",
            f"with {with_what} got a src that it does not take",
            f"src = {src!r}, dge_mode.{mode}",
        )


def _into_sbuf(call: CheckedCall) -> None:
    dst = call.destinations["dst"]
    if dst.space is not Space.SBUF:
        raise wrong_buffer(dst, "dst", call.name, SBUF_ONLY)


def _source_iterations(call: CheckedCall) -> IterationSpace:
    """Return the source as a mask's range."""
    shape: Shape = call["src"].shape
    return IterationSpace(
        shape,
        shape,
        {"src": tuple(range(len(shape))), "dst": TRANSPOSE_AXES[len(shape)]},
    )


def _turned(call: CheckedCall) -> Result:
    src: Descriptor = call["src"]
    shape = tuple(src.shape[k] for k in TRANSPOSE_AXES[len(src.shape)])
    return Result(shape, call.wanted_dtype(src.dtype))


def turned(call: CheckedCall, plane: Array) -> Array:
    """Return elements of the source, or properties of them, in the order of the result."""
    # for a row or an element of a tile it has two dimensions
    shape: Shape = call["src"].shape
    return plane.reshape(shape).transpose(TRANSPOSE_AXES[len(shape)])


@instruction(
    Engine.DMA,
    operands=(EITHER,),
    options=("axes", "dge_mode", "oob_mode"),
    defaults={"axes": None, "dge_mode": "unknown", "oob_mode": "error"},
    destinations=(DST,),
    limits=("partitions", "dge_rows"),
    rules=(_permutation, _hardware_descriptors),
    only={"nki": (_into_sbuf, one_dtype("src", "dst"), _descriptors_transpose)},
    result=_turned,
    in_place=True,
    walk=_source_iterations,
    moves=turned,
    fit=DestinationFit.EXACT,
    purpose=Purpose.TRANSPOSE,
)
def dma_transpose(
    call: CheckedCall, dst: Tile, src: Tile | IndirectTile, *, where: Array | None
) -> None:
    """``dst = src`` with its axes permuted by the DMA engines.

    Indices may name the source's rows. Skipped rows leave ``dst`` unchanged.
    """
    check_destination(dst)
    if isinstance(src, IndirectTile):
        values = src._elements()
        inside = src._inside
        if _skips(call):
            record_anomaly(current(), AnomalyKind.INDEX_SKIPPED, "src", ~inside)
        there = turned(call, inside)
        where = there if where is None else there & where
    else:
        values = src._read(unwritten=True)
    store(dst, _cast(turned(call, values), src, dst), where)


# -- the sum of several tensors during a transfer --------------------------------------------------
# Its indirect forms are a gather or a scatter that adds: ``dma_copy`` with ``dst_rmw_op``.


MOST_SOURCES = 16
SOURCES = tuple(
    Role(f"src{number}", buffers=DMA_SPACES, optional=number > 0)
    for number in range(MOST_SOURCES)
)


def _scales(call: CheckedCall) -> None:
    """Require scales of 1."""
    scales = call["scales"]
    if scales is not None and (
        len(scales) != len(call.tiles) or any(scale != 1.0 for scale in scales)
    ):
        raise call.refused(
            "scales each source by 1.0",
            f"got the scales {list(scales)}",
            f"scales={list(scales)} for {len(call.tiles)} sources",
            limit=f"None, or {[1.0] * len(call.tiles)}",
        )


@instruction(
    Engine.DMA,
    operands=SOURCES,
    options=("reduce_op", "scales"),
    destinations=(DST,),
    rules=(
        same_size("dst", *(role.name for role in SOURCES)),
        one_of("reduce_op", "add", says="adds", do="reduce with"),
        _scales,
    ),
    result=lambda call: Result(
        loaded_shape(call["src0"].shape), call.wanted_dtype(call["src0"].dtype)
    ),
    fit=DestinationFit.TOTAL,
    in_place=True,
    carries=False,
    moves=lambda call, *srcs: functools.reduce(
        np.add, [src.reshape(-1) for src in srcs if src is not None]
    ),
    classic=False,
    purpose=Purpose.SUM,
)
def dma_compute(
    call: CheckedCall, dst: Tile, *srcs: Tile | None, where: Array | None
) -> None:
    """``dst = srcs[0] + srcs[1] + ...`` in float32, in this order, rounded once."""
    terms = [src._values().reshape(dst.shape) for src in srcs if src is not None]
    total = added(terms, dst.dtype)
    check_destination(dst)
    rounded = round_to(total, dst.dtype)
    store(dst, to_bits(rounded, dst.dtype) if dst._in_hbm else rounded, where)
