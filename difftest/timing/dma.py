"""DMAs: their rows, how long they keep each of the sixteen engines busy, and when they are done.

A DMA moves rows (descriptors), which follow from the two access patterns. A row is the longest run
of bytes that is contiguous on both sides within one partition. An engine serves eight partitions,
so a DMA over few partitions leaves most engines idle (DMA).

A DMA goes to all engines whose partitions it touches. Each engine processes its rows in order. The
completion semaphore is set when the last engine has written its part. A read from HBM has a latency
that does not occupy the engine, so queued loads stream.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

from difftest.analysis.footprint import Dims, footprint, free_axes
from difftest.simulator.trace import Event, Purpose, Region
from difftest.timing.parameters import TimingParameters

TRANSPOSED_ROWS, TRANSPOSED_COLUMNS = 16, 128
"""Rows, and a divisor of the columns, of transposes with hardware-generated descriptors (DMA)."""
JOINED_ROWS, JOINED_BYTES = 8, 4096
"""The most rows, and bytes, that software joins in one descriptor (TODAY)."""
SHORT_ROW = 512
"""Rows of fewer bytes, apart from each other, are short: their descriptors have another source.
Rows of 256 bytes were counted as software's (PROFILES), of 1 KiB fit the hardware (SWEEP); this is
the middle of the two."""
INDIRECT = (Purpose.GATHER, Purpose.SCATTER)
IN_SOFTWARE = frozenset({"swdge", "register", "index"})
"""Kinds of DMAs whose descriptors software makes with every compiler."""
INDEX = "index"
"""The role of an operand that selects elements of another operand."""


class Transfer(NamedTuple):
    """A DMA from the view of its engines."""

    row_bytes: int
    rows: int
    """Over all engines."""
    partitions: int
    """On-chip partitions of the DMA; 1 between HBM and HBM."""
    busy: tuple[tuple[int, int], ...]
    """(engine, its rows)."""
    reads_hbm: bool
    writes_hbm: bool
    transposes: bool
    kind: str = "rows"
    """One of :data:`~difftest.timing.compiler.KINDS`; it decides the descriptor source."""
    adjacent: int = 1
    """Adjacent rows in HBM that one descriptor of software covers (TODAY)."""

    @property
    def bytes(self) -> int:
        return self.row_bytes * self.rows


@lru_cache(maxsize=4096)
def software_transfer(moved: Transfer) -> Transfer:
    """Return the transfer with the descriptors that software makes."""
    count = moved.adjacent
    busy = tuple((engine, -(-rows // count)) for engine, rows in moved.busy)
    rows = -(-moved.rows // count)
    return moved._replace(
        row_bytes=moved.row_bytes * count, rows=rows, busy=busy, adjacent=1
    )


def transfer(event: Event, parameters: TimingParameters) -> Transfer:
    """Return the transfer of a DMA event."""
    target, source = event.writes[0], dma_source(event)
    run, rows = _run_and_rows(event, source, target)
    row_bytes = run * max(target.dtype.itemsize, source.dtype.itemsize)
    on_chip = next((r for r in (target, source) if not r.allocation.space.is_hbm), None)
    hbm = target if on_chip is source else source
    joined = contiguous_run(hbm, hbm)
    adjacent = 1
    first, last = 0, 1
    if on_chip is None:
        engines = min(rows, parameters.dma_engines)
        busy = tuple((engine, -(-rows // engines)) for engine in range(engines))
    else:
        first, last = footprint(on_chip)[:2]
        busy = _by_partition(first, last, rows, parameters.dma_partitions)
        if event.purpose not in INDIRECT:
            limits = JOINED_ROWS, rows, JOINED_BYTES // row_bytes, joined // run
            adjacent = max(1, min(limits))
    kind = dma_kind(event, source)
    if kind == "rows" and on_chip is not None:
        is_run = joined == hbm.elements
        kind = _kind_of_rows(last - first, is_run, row_bytes, parameters)
    return Transfer(
        row_bytes=row_bytes,
        rows=rows,
        partitions=last - first,
        busy=busy,
        reads_hbm=source.allocation.space.is_hbm,
        writes_hbm=target.allocation.space.is_hbm,
        transposes=event.purpose is Purpose.TRANSPOSE,
        kind=kind,
        adjacent=adjacent,
    )


def _kind_of_rows(
    partitions: int, is_run: bool, row_bytes: int, parameters: TimingParameters
) -> str:
    """Return the kind of a DMA between HBM and a chip's memory, by its rows.

    Parameters
    ----------
    is_run : whether the elements in HBM are one contiguous run.
    """
    if partitions == 1:
        return "row"
    if is_run:
        return "run"
    if row_bytes >= SHORT_ROW:
        return "rows"
    return "elements" if row_bytes <= parameters.element_bytes else "short rows"


def _run_and_rows(event: Event, source: Region, target: Region) -> tuple[int, int]:
    """Return the elements of a row, and the number of rows."""
    small = source if source.elements < target.elements else target
    purpose = event.purpose
    if purpose in INDIRECT:  # one run for each index; the other side is whole
        small = source if purpose is Purpose.SCATTER else target
        run = small.shape[-1]
    elif purpose is Purpose.TRANSPOSE:
        run = source.shape[-1] if source.whole else target.partitions
    else:
        run = contiguous_run(source, target)
    rows = max(1, small.elements // run)
    if purpose is Purpose.SUM:  # two sources reach half a copy's rate (ARCH4)
        rows *= len(event.reads)
    return run, rows


def dma_source(event: Event) -> Region:
    """Return the region that a DMA copies: the first read region that is not an index."""
    return next(region for region in event.reads if region.role != INDEX)


def dma_kind(event: Event, source: Region) -> str:
    """Return the kind of a DMA: first by the form of its address, then by the kernel's options.

    The hardware's generator supports only transposes of two-byte elements, 16 rows and multiples
    of 128 columns (DMA). Other transposes are "turned".
    """
    if event.purpose in INDIRECT:
        return "index"
    if _is_addressed(event):
        return "register"
    mode = str(event.arguments.get("dge_mode"))
    if mode in ("none", "swdge"):
        return mode
    if event.purpose is not Purpose.TRANSPOSE:
        return "hwdge" if mode == "hwdge" else "rows"
    form = source.shape[0], source.shape[-1] % TRANSPOSED_COLUMNS, source.dtype.itemsize
    if source.whole and form == (TRANSPOSED_ROWS, 0, 2):
        return "transpose"
    return "turned"


def _is_addressed(event: Event) -> bool:
    """Return whether a register or an element of SBUF names a place of a DMA.

    The value of a loop variable is known before the run.
    """
    options = event.kind.options
    places = [options.get(f"register of {role}", "") for role in ("src", "dst")]
    return any("register" in place for place in places) or bool(event.operand(INDEX))


@lru_cache(maxsize=4096)
def _by_partition(
    first: int, last: int, rows: int, each: int
) -> tuple[tuple[int, int], ...]:
    """Return (engine, rows) if each engine owns ``each`` partitions with equal numbers of rows."""
    per_partition = max(1, rows // (last - first))
    return tuple(
        (
            engine,
            per_partition
            * (min(last, (engine + 1) * each) - max(first, engine * each)),
        )
        for engine in range(first // each, -(-last // each))
    )


def contiguous_run(source: Region, target: Region) -> int:
    """Return the elements of a row: contiguous in both regions and inside one partition."""
    return _run(_axes(source), _axes(target))


def _axes(region: Region) -> Dims:
    """Return (size, stride) of each axis; the partition axis has stride 0, which ends a run."""
    if region.allocation.space.is_hbm:
        axes = tuple(zip(region.shape, region.strides, strict=True))
    else:
        axes = free_axes(region)
        at = region.partition_axis
        if at is not None:
            axes = axes[:at] + ((region.shape[at], 0),) + axes[at:]
    return tuple(axis for axis in axes if axis[0] > 1)


@lru_cache(maxsize=65536)
def _run(dims: Dims, other: Dims) -> int:
    left = list(dims)
    right = list(other)
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


WINDOW = 1000.0
"""Nanoseconds over which HBM's rate is enforced."""
NOTHING = 1e-9
"""Bytes: fewer are a rounding error of the subtraction, and have moved."""


class SharedHbm:
    """The used part of HBM's bandwidth, window by window; ``rate`` in bytes per ns for all cores.

    The DMA engines of one core cannot use the full rate of HBM; the engines of two cores exceed
    it. A DMA gets the free bytes of each window that it runs in, and moves the rest later.
    """

    def __init__(self, rate: float) -> None:
        self._room = rate * WINDOW
        self._taken: dict[int, float] = defaultdict(float)
        """Number of a window -> bytes."""

    def take(self, begin: float, end: float, count: float) -> float:
        """Return when ``count`` bytes have moved that an idle HBM would move in this time.

        Parameters
        ----------
        begin, end : when the DMA begins, and when its engines alone would be done; ns.
        """
        if end <= begin:
            return end
        rate = count / (end - begin)
        now = begin
        while count > NOTHING:
            window = int(now // WINDOW)
            edge = (window + 1) * WINDOW
            wanted = min(rate * (edge - now), count)
            got = max(0.0, min(wanted, self._room - self._taken[window]))
            self._taken[window] += got
            count -= got
            now = now + got / rate if count <= NOTHING else edge
        return max(now, end)


class DmaEngines:
    """The DMA engines with the time when each is free; ns."""

    def __init__(
        self, parameters: TimingParameters, hbm: SharedHbm | None = None
    ) -> None:
        self.parameters = parameters
        self.hbm = hbm
        """The HBM that several cores share; None if one core has HBM for itself."""
        self.free = [0.0] * parameters.dma_engines
        self._minimum = parameters.dma_minimum.value
        self._costs: dict[tuple[int | bool, ...], tuple[float, float, float]] = {}

    def costs(self, transfer: Transfer, generated: bool) -> tuple[float, float, float]:
        """Return the times of a transfer that runs alone.

        Parameters
        ----------
        generated : whether the device makes its descriptors.

        Returns
        -------
        From its trigger to its first byte, an engine's time for a row, and from the last row to the
        semaphore.
        """
        size, rows, partitions, _, reads, writes, transposes = transfer[:7]
        key = size, rows, partitions, reads, writes, transposes, generated
        costs = self._costs.get(key)
        if costs is None:
            figures = self.parameters
            generated = generated and figures.generates
            lead = figures.generated_lead if generated else figures.dma_lead
            after = figures.dma_tail.value + self._latency(transfer, generated)
            costs = lead.value, self._row_time(transfer, generated), after
            self._costs[key] = costs
        return costs

    def _row_time(self, transfer: Transfer, generated: bool) -> float:
        """Return how long a DMA engine takes for one row."""
        figures = self.parameters
        size = transfer.row_bytes
        if transfer.writes_hbm and size <= figures.element_bytes:
            return figures.element_write.value
        time = figures.descriptor.value + size / figures.bandwidth.value
        if generated:
            time = max(
                figures.packet.value + size / figures.packet_rate.value,
                figures.packet_least.value,
            )
        time = max(time, size / figures.long_rate.value)
        if self.hbm is not None:
            time /= figures.shared_engines.value
        return time / figures.transpose_share.value if transfer.transposes else time

    def _latency(self, transfer: Transfer, generated: bool) -> float:
        """Return the latency of a read from HBM; loads of few bytes have their own figures."""
        figures = self.parameters
        if not transfer.reads_hbm:
            return 0.0
        most = figures.dma_read.value
        if not generated:
            return most
        if transfer.bytes <= figures.element_bytes * transfer.partitions:
            return figures.element_read.value
        slower = 1 / figures.alone_rate.value - 1 / figures.hbm_bandwidth.value
        return min(most, figures.generated_read.value + slower * transfer.bytes)

    def moving_time(self, transfer: Transfer, generated: bool = False) -> float:
        """Return how long the transfer keeps the busiest of its engines."""
        rows = max(count for _, count in transfer.busy)
        return max(self._minimum, rows * self.costs(transfer, generated)[1])

    def alone(self, transfer: Transfer, generated: bool) -> float:
        """Return the time from its trigger to its semaphore if it has the engines for itself."""
        lead, _, after = self.costs(transfer, generated)
        return lead + self.moving_time(transfer, generated) + after

    def run(
        self, trigger: float, transfer: Transfer, generated: bool = False
    ) -> tuple[float, float, float]:
        """Run a DMA triggered at ``trigger``, or whose descriptors were ``generated`` by then.

        Returns
        -------
        When its busiest engine began and ended, and when its semaphore is set.
        """
        lead, row, after = self.costs(transfer, generated)
        ready = trigger + lead
        begin = finish = 0.0
        free = self.free
        for engine, rows in transfer.busy:
            start = free[engine]
            if start < ready:
                start = ready
            time = rows * row
            end = start + time
            free[engine] = end if time > self._minimum else start + self._minimum
            if end > finish:
                finish = end
                begin = start
        if self.hbm is not None:  # traffic of the other cores delays its end
            through = transfer.bytes * (transfer.reads_hbm + transfer.writes_hbm)
            late = self.hbm.take(begin, finish, through) - finish
            for engine, _ in transfer.busy:
                free[engine] += late
            finish += late
        return begin, finish, finish + after
