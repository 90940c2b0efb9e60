"""Advice on DMA: unused data, bytes that are loaded repeatedly, short rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from difftest.analysis.finding import group_by
from difftest.analysis.footprint import Footprint, footprint, offsets_of
from difftest.simulator.trace import Allocation, Region, Space
from difftest.timing.advice.savings import (
    Advice,
    RemovedWork,
    Units,
    advice_on,
    spans_by_line,
)
from difftest.timing.dma import dma_source
from difftest.timing.program import LoweredInstruction
from difftest.timing.report import memory_usage, region_bytes
from difftest.timing.schedule import Schedule, Span

UNUSED = 0.25
"""The least share of unused loaded data for a finding."""
AGAIN = 1.5
"""The least number of loads of each byte for a finding."""
SHORT = 512
"""Rows of fewer bytes are short (measured: at 512 bytes the engines reach three quarters of their
rate; DMA documents less than 256 as severely bound by overhead)."""
SMALL = 2048
"""Bytes per partition below which a DMA is small (DMA: at least 2 KiB, 4 KiB for the full rate)."""
MANY = 16
"""The least number of DMAs of one line for a finding."""
PIECE = 64
"""Bytes of a row below which a tile moves in pieces."""
MASK_LIMIT = 1 << 27
"""The most elements of a tensor whose use is recorded for each element."""

Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def unused_data(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on loads with a large part that is never read."""
    reads = _reads(schedule)
    for spans in spans_by_line(_loads(schedule)).values():
        removed = RemovedWork()
        unused = 0
        loaded = 0
        for span in spans:
            target = span.instruction.event.writes[0]
            part = 1.0 - _used(target, reads.get(target.allocation.id, set()))
            removed.add(span, part)
            size = region_bytes(target)
            unused += int(part * size)
            loaded += size
        if loaded and unused / loaded >= UNUSED:
            yield advice_on(
                spans,
                "unused-data",
                units.without(removed),
                happened=f"{unused / loaded:.1%} of the {_size_text(loaded)} that "
                f"{len(spans):,} DMAs load is never read",
                rule="a load takes the DMA engines' time for each byte, whether it is used or not",
                remedy="load the part that the next instructions use: slice the source, not the "
                "tile",
            )


def _loads(schedule: Schedule) -> list[Span]:
    return [span for span in schedule.spans if _is_load(span.instruction)]


def _is_load(step: LoweredInstruction) -> bool:
    """Return whether the kernel loads from HBM into a chip's memory."""
    transfer = step.transfer
    if transfer is None or step.implied:
        return False
    return transfer.reads_hbm and not transfer.writes_hbm


def _reads(schedule: Schedule) -> dict[int, set[Footprint]]:
    """Return, for each tensor, the access patterns that are read."""
    reads: dict[int, set[Footprint]] = {}
    for span in schedule.spans:
        for region in span.instruction.event.reads:
            if not region.allocation.space.is_hbm:
                reads.setdefault(region.allocation.id, set()).add(footprint(region))
    return reads


def _used(target: Region, reads: set[Footprint]) -> float:
    """Return the share of a written pattern that the others read; partitions are ignored."""
    mark = footprint(target)
    if any(read.covers(mark) for read in reads):
        return 1.0
    size = mark.high - mark.low
    if size > MASK_LIMIT:
        return 1.0
    written = np.zeros(size, dtype=np.bool_)
    _mark(written, mark, mark.low)
    total = int(written.sum())
    read_too = np.zeros(size, dtype=np.bool_)
    for read in reads:
        _mark(read_too, read, mark.low)
    return int((written & read_too).sum()) / total


def _mark(mask: Mask, pattern: Footprint, origin: int) -> None:
    """Set the elements of a pattern in a mask that begins at ``origin``."""
    low = pattern.low - origin
    if not pattern.dims:
        mask[max(low, 0) : max(pattern.high - origin, 0)] = True
        return
    offsets = low + offsets_of(pattern.dims)
    mask[offsets[(offsets >= 0) & (offsets < mask.size)]] = True


def loaded_again(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on lines that load the same bytes of a tensor more than once."""
    for of_line in spans_by_line(_loads(schedule)).values():
        for spans in group_by(
            of_line, lambda span: _source(span).allocation.id
        ).values():
            by_core = group_by(spans, lambda span: span.instruction.core).values()
            loaded = sum(_bytes_of_source(_source(span)) for span in spans)
            distinct = sum(map(_distinct, by_core))
            if not distinct or loaded / distinct < AGAIN:
                continue
            name = _source(spans[0]).allocation.name or "a tensor"
            if len(by_core) > 1:
                name += f" on {len(by_core)} cores"
            yield advice_on(
                spans,
                "loaded-again",
                units.without(RemovedWork(spans, 1.0 - distinct / loaded)),
                happened=f"{_size_text(distinct)} of {name} are loaded "
                f"{loaded / distinct:,.1f} times ({_size_text(loaded)} in {len(spans):,} DMAs)",
                rule="what stays in SBUF need not come from HBM a second time",
                remedy="move the load out of the loops that do not change its address, or load "
                "larger blocks and slice them in SBUF",
            )


def _source(span: Span) -> Region:
    return dma_source(span.instruction.event)


def through_hbm(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on tensors that the kernel stores to HBM and loads again.

    SBUF must have room for the tensor in addition to its contents at the peak.
    """
    machine = schedule.program.machine
    stored = [span for span in _loads(schedule) if _source(span).allocation.writes]
    if not stored:
        return
    free = machine.sbuf_usable_bytes - memory_usage(schedule, Space.SBUF).peak
    for loads in group_by(stored, lambda span: _source(span).allocation.id).values():
        tensor = _source(loads[0]).allocation
        size = math.prod(tensor.shape) * tensor.dtype.itemsize
        if size > free * machine.partitions:
            continue
        removed = list(loads)
        if tensor.output is None:
            removed += [span for span in schedule.spans if _writes(span, tensor)]
        yield advice_on(
            removed,
            "through-hbm",
            units.without(RemovedWork(removed)),
            happened=f"{_size_text(size)} of {tensor.name or 'a tensor'} are stored to HBM and "
            f"loaded again, in {len(removed):,} DMAs",
            rule="a store and a load take a few microseconds until the data are back, even if no "
            "engine waits for their bytes",
            remedy="keep the tensor in SBUF, where it has room, and let the later instructions "
            "read it there",
        )


def _writes(span: Span, tensor: Allocation) -> bool:
    return any(region.allocation is tensor for region in span.instruction.event.writes)


def _bytes_of_source(region: Region) -> int:
    """Return the bytes of a region; bytes that one DMA broadcasts count once."""
    _, shape, strides = region.pattern
    sizes = (size for size, stride in zip(shape, strides, strict=True) if stride)
    return math.prod(sizes) * region.dtype.itemsize


def _distinct(loads: list[Span]) -> int:
    """Return the bytes of a tensor that at least one of the loads reads."""
    regions = list(map(_source, loads))
    unit = min(region.dtype.itemsize for region in regions)
    different = {(region.dtype.itemsize, region.pattern): region for region in regions}
    source = regions[0].allocation
    size = math.prod(source.shape) * source.dtype.itemsize // unit
    if size > MASK_LIMIT:
        return sum(map(region_bytes, different.values()))
    mask = np.zeros(size, dtype=np.bool_)
    for region in different.values():
        offset, shape, strides = region.pattern.finer(region.dtype.itemsize // unit)
        view = np.lib.stride_tricks.as_strided(mask[offset:], shape, strides)
        view[...] = True
    return int(mask.sum()) * unit


_FEWER_LOADS = (
    "load a larger block with one DMA, 2 KiB or more of each partition, before the loop, and let "
    "the instructions in the loop read slices of that tile"
)
_FEWER_STORES = (
    "let the loop write its results into slices of one tile in SBUF, and store that tile with one "
    "DMA after the loop, 2 KiB or more of each partition"
)

_WHOLE_LOADS = (
    "load rows as they lie in HBM, and turn the tile on chip (nc_transpose) or take slices with a "
    "stride of it: instructions read those at no cost"
)
_WHOLE_STORES = (
    "turn the tile on chip (nc_transpose) or copy it in order, so that what leaves a partition "
    "lies side by side in HBM too"
)


_REMEDIES = {
    (False, False): _FEWER_LOADS,
    (False, True): _FEWER_STORES,
    (True, False): _WHOLE_LOADS,
    (True, True): _WHOLE_STORES,
}
"""(whether they move tiles in pieces, whether most are stores) -> the remedy."""


def small_dmas(schedule: Schedule, units: Units) -> Iterator[Advice]:
    """Yield findings on lines with many DMAs that move a few bytes each, or in short rows."""
    parameters = schedule.program.parameters
    full = parameters.hbm_bandwidth.value
    dmas = [span for span in schedule.spans if span.instruction.transfer]
    for spans in spans_by_line(dmas).values():
        rows, moved, partitions = _moved(spans)
        in_pieces = moved / rows < PIECE and rows >= MANY * partitions
        short = moved / rows < SHORT or moved / partitions < SMALL
        if not in_pieces and (len(spans) < MANY or not short):
            continue
        cores = {span.instruction.core for span in spans}
        least = moved / full / len(cores)
        most = max(RemovedWork(spans).times.values())
        savings = units.without(RemovedWork(spans, max(0.0, 1.0 - least / most)))
        stores = _are_mostly_stores(spans)
        yield advice_on(
            spans,
            "small-dmas",
            savings,
            happened=f"{len(spans):,} DMAs move {moved / len(spans):,.0f} bytes each, "
            f"{moved / partitions:,.0f} a partition, in rows of {moved / rows:,.0f}",
            rule="the DMA engines come near their full rate with long rows and at least "
            f"{SMALL} bytes a partition",
            remedy=_REMEDIES[in_pieces, stores],
        )


def _are_mostly_stores(spans: list[Span]) -> bool:
    stores = [span for span in spans if span.instruction.is_store]
    return 2 * len(stores) > len(spans)


def _moved(spans: list[Span]) -> tuple[int, int, int]:
    """Return the rows, the bytes and the partitions of DMAs."""
    rows = moved = partitions = 0
    for span in spans:
        transfer = span.instruction.transfer
        assert transfer is not None
        rows += transfer.rows
        moved += transfer.bytes
        partitions += transfer.partitions
    return rows, moved, partitions


def _size_text(count: int) -> str:
    if count >= 2**20:
        return f"{count / 2**20:,.1f} MiB"
    return f"{count / 2**10:,.1f} KiB"
