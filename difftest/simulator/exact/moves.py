"""Error rules of what moves data, makes constants and draws random numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32, is_float
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import Bounded
from difftest.simulator.exact.shadow import Settle, Shadow, move, rule
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.dma import TRANSPOSE_AXES
from difftest.simulator.instructions.record import Call, Masked
from difftest.simulator.memory import Storage
from difftest.simulator.tile import Tile


def _is_plain(src: Tile | IndirectTile, dst: Tile | IndirectTile) -> bool:
    """Whether a copy changes no value, and neither side has other exact values."""
    storages: list[Storage] = [
        side.base.storage if isinstance(side, IndirectTile) else side.storage for side in (src, dst)
    ]
    same = src.dtype == dst.dtype or dst.dtype == FLOAT32 or not is_float(dst.dtype)
    return same and not any(storage.exact is not None or storage.shared for storage in storages)


@rule("tensor_copy")
def tensor_copy(run: Shadow, call: Call, src: Bounded) -> Bounded:
    """The numbers of ``src``."""
    return src


@move("dma_copy")
def dma_copy(run: Shadow, call: Call, dst: Tile, src: Tile, *, where: Any) -> Settle | None:
    """The numbers of ``src``, or their sum with those of ``dst``."""
    if call["dst_rmw_op"] is None and _is_plain(src, dst):
        return None
    made = run.stored(src).shaped(lambda array: array.reshape(dst.shape))
    if call["dst_rmw_op"] is not None:
        made = bounded.add(run.stored(dst), made)
    return lambda: run.put(dst, made, where)


@move("dma_transpose")
def dma_transpose(
    run: Shadow, call: Call, dst: Tile, src: Tile | IndirectTile, *, where: Any
) -> Settle | None:
    """The numbers of ``src`` with their axes permuted."""
    if _is_plain(src, dst):
        return None
    shape = call["src"].shape
    axes = TRANSPOSE_AXES[len(shape)]
    picked, inside = _source(run, src, skip=call["oob_mode"] == "skip")
    made = picked.shaped(lambda array: array.reshape(shape).transpose(axes))
    there = inside.reshape(shape).transpose(axes)
    chosen = there if where is None else there & where
    return lambda: run.put(dst, made, None if chosen.all() else chosen)


def _source(
    run: Shadow, src: Tile | IndirectTile, *, skip: bool, where: Any = None
) -> tuple[Bounded, Any]:
    """The numbers of a source in its own shape, and which of them are there.

    ``where``, a mask over as many elements, leaves out those that its indices name besides.
    """
    if isinstance(src, Tile):
        held = run.stored(src)
        return held, np.ones(held.value.shape, dtype=np.bool_)
    run.places(src)
    _, inside = src.resolve(skip=skip, where=where)
    return run.stored(src.base).shaped(src.take), inside


@move("dma_gather")
def dma_gather(
    run: Shadow, call: Call, dst: Tile, src: IndirectTile, *, where: Any
) -> Settle | None:
    """The numbers that indices name, or their sum with those of ``dst``."""
    adds = call["dst_rmw_op"] is not None
    if not adds and _is_plain(src, dst):
        return None
    picked, inside = _source(run, src, skip=call["oob_mode"] == "skip", where=where)
    made = picked.shaped(lambda array: array.reshape(dst.shape))
    if adds:
        made = bounded.add(run.stored(dst), made)
    chosen = inside.reshape(dst.shape)
    return lambda: run.put(dst, made, None if chosen.all() else chosen)


@move("tensor_copy_dynamic_src")
def tensor_copy_dynamic_src(
    run: Shadow, call: Call, dst: Tile, src: IndirectTile, *, where: Any
) -> Settle | None:
    """The numbers that a dynamic offset names."""
    if _is_plain(src, dst):
        return None
    made, _ = _source(run, src, skip=False)
    return lambda: run.put(dst, made, where)


def _scattered(run: Shadow, dst: IndirectTile, made: Bounded, places: Any) -> Settle:
    """Put numbers where indices say."""
    run.places(dst)
    written = run.written(made, dst.dtype)
    return lambda: run.put_at(dst.base, places, written)


@move("tensor_copy_dynamic_dst")
def tensor_copy_dynamic_dst(
    run: Shadow, call: Call, dst: IndirectTile, src: Tile, *, where: Any
) -> Settle | None:
    """The numbers of ``src``, where a dynamic offset says."""
    if _is_plain(src, dst):
        return None
    arrays, _ = dst.resolve(skip=False)
    return _scattered(run, dst, run.take(src), arrays)


@move("dma_scatter")
def dma_scatter(
    run: Shadow, call: Call, dst: IndirectTile, src: Tile | IndirectTile, *, where: Any
) -> Settle | None:
    """The numbers of ``src``, or their sum with what is there, where indices say."""
    adds = call["dst_rmw_op"] is not None
    if not adds and _is_plain(src, dst):
        return None
    skip = call["oob_mode"] == "skip"
    arrays, inside = dst.resolve(skip=skip, where=where)
    source, there = _source(run, src, skip=skip, where=where)
    inside = inside & there.reshape(dst.shape)
    places = tuple(array[inside] for array in arrays)
    made = source.shaped(lambda array: array.reshape(dst.shape)[inside])
    return _scattered(run, dst, _added(run, dst, made, places) if adds else made, places)


def _added(run: Shadow, dst: IndirectTile, made: Bounded, places: Any) -> Bounded:
    """What an addition to each place leaves there; a place named twice is added to twice."""
    before = run.stored(dst.base)
    value, sizes = before.value.copy(), np.abs(before.value)
    error, times = np.zeros(value.shape), np.zeros(value.shape)
    if before.error is not None:
        error[...] = before.error
    np.add.at(value, places, made.value)
    np.add.at(sizes, places, np.abs(made.value))
    np.add.at(times, places, 1.0)
    if made.error is not None:
        np.add.at(error, places, made.error)
    most = int(times.max(initial=0.0))
    clean = before.error is None and made.error is None
    if clean and most == 1:
        return bounded.rounded(value[places], None, before, made, adds=True)
    error = error + run.gamma(most, value.size) * (sizes + error)
    sums = max(before.sums, made.sums) + most - 1
    again = before.partial or made.partial or most > 1
    return Bounded(value[places], error[places], FLOAT32, sums, adds=True, partial=again)


@rule("nc_transpose")
def nc_transpose(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """The numbers of ``data``, turned."""
    return data.shaped(lambda array: array.reshape(array.shape[0], -1).T)


@rule("tensor_copy_predicated")
def tensor_copy_predicated(run: Shadow, call: Call, src: Any, predicate: Bounded) -> Masked:
    """The numbers of ``src`` where an integer predicate holds."""
    shape = call.result.shape
    run.sure(predicate)
    values = predicate.value
    chosen = (values == 0 if call["reverse_pred"] else values != 0).reshape(shape)
    made = run.operand(src)
    if made.value.ndim:
        made = made.shaped(lambda array: array.reshape(shape))
    return Masked(made, chosen)  # type: ignore[arg-type]


@rule("memset")
def memset(run: Shadow, call: Call, value: Any) -> Bounded:
    """A constant."""
    return bounded.number(value)


@rule("iota")
def iota(run: Shadow, call: Call, expr: Any) -> Bounded:
    """Whole numbers."""
    return Bounded(expr.array().astype(np.float64), None)


@move("dma_compute")
def dma_compute(run: Shadow, call: Call, dst: Tile, *srcs: Tile | None, where: Any) -> Settle:
    """The sum of all sources, in their order."""
    given = [run.stored(src) for src in srcs if src is not None]
    parts = [one.shaped(lambda array: array.reshape(dst.shape)) for one in given]
    made = functools.reduce(bounded.add, parts)
    return lambda: run.put(dst, made, where)


@rule("rng")
def rng(run: Shadow, call: Call) -> None:
    """Random bits, of which no reference knows."""
    run.doubt("random numbers", lost=True)


@rule("rand2")
def rand2(run: Shadow, call: Call, low: Any, high: Any) -> None:
    """Random numbers, of which no reference knows."""
    run.doubt("random numbers", lost=True)


@rule("rand")
def rand(run: Shadow, call: Call) -> None:
    """Random numbers, of which no reference knows."""
    run.doubt("random numbers", lost=True)


@rule("dropout")
def dropout(run: Shadow, call: Call, data: Bounded, prob: Any) -> None:
    """Random numbers decide, of which no reference knows."""
    run.doubt("random numbers", lost=True)
