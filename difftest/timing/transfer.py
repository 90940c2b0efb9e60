"""What a DMA moves: its rows (descriptors) on each of the engines, read off the two patterns.

A row is the longest run of bytes that is contiguous on both sides within one partition. An engine
serves eight partitions, so a DMA over few partitions leaves most engines idle (DMA).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from difftest.analysis.footprint import Dims, footprint, free_axes
from difftest.simulator.trace import Event, Purpose, Region
from difftest.timing.clockwork import Clockwork

TRANSPOSED_ROWS, TRANSPOSED_COLUMNS = 16, 128
"""Of a transpose whose descriptors the hardware generates (DMA)."""
JOINED_ROWS, JOINED_BYTES = 8, 4096
"""At most so many rows are one where software makes descriptors (TODAY)."""
INDIRECT = (Purpose.GATHER, Purpose.SCATTER)
IN_SOFTWARE = frozenset({"swdge", "register", "index"})
"""Kinds of DMAs of which software makes the descriptors, whatever compiles the kernel."""
INDEX = "index"
"""The role of an operand that says which elements of another one are meant."""


class Transfer(NamedTuple):
    """One DMA as its engines see it."""

    row_bytes: int
    rows: int
    """Over all engines."""
    partitions: int
    """On-chip partitions of it; 1 between HBM and HBM."""
    busy: tuple[tuple[int, int], ...]
    """(engine, its rows)."""
    reads_hbm: bool
    writes_hbm: bool
    transposes: bool
    kind: str = "rows"
    """What decides who makes its descriptors, one of :data:`~difftest.timing.compiler.KINDS`."""
    adjacent: int = 1
    """Rows in a row in HBM that software's descriptors take as one (TODAY)."""

    @property
    def bytes(self) -> int:
        return self.row_bytes * self.rows


@lru_cache(maxsize=4096)
def in_software(moved: Transfer) -> Transfer:
    """The transfer as the engines see it if software makes its descriptors."""
    count = moved.adjacent
    busy = tuple((engine, -(-rows // count)) for engine, rows in moved.busy)
    rows = -(-moved.rows // count)
    return moved._replace(row_bytes=moved.row_bytes * count, rows=rows, busy=busy, adjacent=1)


def transfer(event: Event, clockwork: Clockwork) -> Transfer:
    """The transfer of a DMA event."""
    target, source = event.writes[0], source_of(event)
    on_chip = next((r for r in (target, source) if not r.allocation.space.is_hbm), None)
    itemsize = max(target.dtype.itemsize, source.dtype.itemsize)
    small = source if source.elements < target.elements else target
    does = event.purpose
    if does in INDIRECT:  # of each index a run, which is whole on the other side
        small = source if does is Purpose.SCATTER else target
        run = small.shape[-1]
    elif does is Purpose.TRANSPOSE:
        run = source.shape[-1] if source.whole else target.partitions
    else:
        run = contiguous_run(source, target)
    rows = max(1, small.elements // run)
    if does is Purpose.SUM:  # half a copy's rate for two sources (ARCH4)
        rows *= len(event.reads)
    adjacent = 0
    if on_chip is None:
        first, last = 0, 1
        busy = _even(rows, clockwork.dma_engines)
    else:
        mark = footprint(on_chip)
        first, last = mark.first, mark.last
        busy = _by_partition(first, last, rows, clockwork.dma_partitions)
        hbm = target if on_chip is source else source
        if does not in INDIRECT and contiguous_run(hbm, hbm) == hbm.elements:
            adjacent = max(1, min(JOINED_ROWS, rows, JOINED_BYTES // (run * itemsize)))
    kind = kind_of(event, source)
    if kind == "rows" and on_chip is not None:
        kind = "row" if last - first == 1 else "run" if adjacent else kind
    return Transfer(
        row_bytes=run * itemsize,
        rows=rows,
        partitions=last - first,
        busy=busy,
        reads_hbm=source.allocation.space.is_hbm,
        writes_hbm=target.allocation.space.is_hbm,
        transposes=does is Purpose.TRANSPOSE,
        kind=kind,
        adjacent=max(1, adjacent),
    )


def source_of(event: Event) -> Region:
    """What a DMA moves: the first of what it reads that names no elements."""
    return next(region for region in event.reads if region.role != INDEX)


def kind_of(event: Event, source: Region) -> str:
    """What a DMA is to who makes its descriptors: what its place is, then what the kernel asks for.

    The hardware's generator takes transposes of two bytes, 16 rows and whole 128 columns alone
    (DMA); the others are "turned".
    """
    mode, does = str(event.arguments.get("dge_mode")), event.purpose
    if does in INDIRECT:
        return "index"
    moved = (event.kind.options.get(f"register of {role}", "") for role in ("src", "dst"))
    if any("register" in place for place in moved) or any(r.role == INDEX for r in event.reads):
        return "register"  # a loop's variable is known before the run
    if mode in ("none", "swdge"):
        return mode
    if does is not Purpose.TRANSPOSE:
        return "rows"
    whole = source.shape[0] == TRANSPOSED_ROWS and source.shape[-1] % TRANSPOSED_COLUMNS == 0
    return "transpose" if source.whole and whole and source.dtype.itemsize == 2 else "turned"


@lru_cache(maxsize=4096)
def _even(rows: int, engines: int) -> tuple[tuple[int, int], ...]:
    used = min(rows, engines)
    return tuple((engine, -(-rows // used)) for engine in range(used))


@lru_cache(maxsize=4096)
def _by_partition(first: int, last: int, rows: int, each: int) -> tuple[tuple[int, int], ...]:
    """Rows of each engine if each owns ``each`` partitions and every partition has as many."""
    per_partition = max(1, rows // (last - first))
    return tuple(
        (engine, per_partition * (min(last, (engine + 1) * each) - max(first, engine * each)))
        for engine in range(first // each, -(-last // each))
    )


def contiguous_run(source: Region, target: Region) -> int:
    """Elements in a row: contiguous in both regions and inside one partition."""
    return _run(_axes(source), _axes(target))


def _axes(region: Region) -> Dims:
    """(size, stride) of its axes; the one over partitions has stride 0, which no run goes on."""
    if region.allocation.space.is_hbm:
        axes = tuple(zip(region.shape, region.strides, strict=True))
    else:
        axes, at = free_axes(region), region.partition_axis
        if at is not None:
            axes = (*axes[:at], (region.shape[at], 0), *axes[at:])
    return tuple(axis for axis in axes if axis[0] > 1)


@lru_cache(maxsize=65536)
def _run(dims: Dims, other: Dims) -> int:
    left, right = list(dims), list(other)
    run = 1
    while left and right:
        (size_a, stride_a), (size_b, stride_b) = left.pop(), right.pop()
        step = min(size_a, size_b)
        if size_a % step or size_b % step:
            break
        if not stride_a == stride_b == run:
            break
        if size_a > step:
            left.append((size_a // step, stride_a * step))
        if size_b > step:
            right.append((size_b // step, stride_b * step))
        run *= step
    return run
