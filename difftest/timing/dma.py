"""The sixteen DMA engines: how long a DMA's rows keep each busy, and when it is done.

A DMA goes to all the engines whose partitions it touches. Each works through what it is given in
order; the completion semaphore stands when the last has written its part. Reading from HBM has a
latency that does not occupy the engine, so queued loads stream.
"""

from __future__ import annotations

from collections import defaultdict

from difftest.timing.clockwork import Clockwork
from difftest.timing.transfer import Transfer

WINDOW = 1000.0
"""Nanoseconds over which HBM's rate is held."""


class SharedHbm:
    """What of HBM's bandwidth is taken, window by window; ``rate`` is all cores', in bytes a ns.

    The DMA engines of one core cannot take all that HBM gives; those of two ask for more than it
    has. A DMA gets what is left of each window that it runs in; what does not fit is moved later.
    """

    def __init__(self, rate: float) -> None:
        self._room = rate * WINDOW
        self._taken: dict[int, float] = defaultdict(float)
        """Number of a window -> bytes."""

    def take(self, begin: float, end: float, count: float) -> float:
        """When ``count`` bytes have been moved that an idle HBM would have moved in this time.

        Parameters
        ----------
        begin, end : when the DMA begins, and when its engines alone would be done; ns.
        """
        if count <= 0 or end <= begin:
            return end
        rate = count / (end - begin)
        now = begin
        while count > 1e-9:
            window = int(now // WINDOW)
            edge = (window + 1) * WINDOW
            wanted = min(rate * (edge - now), count)
            got = max(0.0, min(wanted, self._room - self._taken[window]))
            self._taken[window] += got
            count -= got
            now = now + got / rate if count <= 1e-9 else edge
        return max(now, end)


class DmaEngines:
    """When each DMA engine is free; times in ns."""

    def __init__(self, clockwork: Clockwork, hbm: SharedHbm | None = None) -> None:
        self.clockwork = clockwork
        self.hbm = hbm
        """What several cores share; None if one core has HBM for itself."""
        self.free = [0.0] * clockwork.dma_engines
        self._minimum = clockwork.dma_minimum.value
        self._costs: dict[tuple[int | bool, ...], tuple[float, float, float]] = {}

    def costs(self, transfer: Transfer, generated: bool) -> tuple[float, float, float]:
        """What a transfer takes alone; ``generated``: the device makes its descriptors.

        Returns
        -------
        From its trigger to the first byte's turn, an engine's time for a row, and from the last
        row to the semaphore.
        """
        size, rows, partitions, _, reads, writes, turns = transfer[:7]
        key = size, rows, partitions, reads, writes, turns, generated
        costs = self._costs.get(key)
        if costs is None:
            figures = self.clockwork
            generated = generated and figures.generates
            lead = figures.generated_lead if generated else figures.dma_lead
            after = figures.dma_tail.value + self._latency(transfer, generated)
            costs = lead.value, self._row(transfer, generated), after
            self._costs[key] = costs
        return costs

    def _row(self, transfer: Transfer, generated: bool) -> float:
        figures, size = self.clockwork, transfer.row_bytes
        if transfer.writes_hbm and size <= figures.element_bytes:
            return figures.element_write.value
        time = figures.descriptor.value + size / figures.bandwidth.value
        if generated:
            time = max(
                figures.packet.value + size / figures.packet_rate.value, figures.packet_least.value
            )
        time = max(time, size / figures.long_rate.value)
        if self.hbm is not None:
            time /= figures.shared_engines.value
        return time / figures.transpose_share.value if transfer.transposes else time

    def _latency(self, transfer: Transfer, generated: bool) -> float:
        """Reading from HBM: small loads wait less; those of single elements for each engine."""
        figures = self.clockwork
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
        """How long the transfer keeps the busiest of its engines."""
        rows = max(count for _, count in transfer.busy)
        return max(self._minimum, rows * self.costs(transfer, generated)[1])

    def alone(self, transfer: Transfer, generated: bool) -> float:
        """From its trigger to its semaphore if it has the engines for itself."""
        lead, _, after = self.costs(transfer, generated)
        return lead + self.moving_time(transfer, generated) + after

    def run(
        self, trigger: float, transfer: Transfer, generated: bool = False
    ) -> tuple[float, float, float]:
        """Run a DMA triggered at ``trigger``, or whose descriptors were ``generated`` by then.

        Returns
        -------
        When its busiest engine began and ended, and when its semaphore says that it is done.
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
                finish, begin = end, start
        if self.hbm is not None:
            late = self._late(transfer, begin, finish)
            for engine, _ in transfer.busy:
                free[engine] += late
            finish += late
        return begin, finish, finish + after

    def _late(self, transfer: Transfer, begin: float, finish: float) -> float:
        """By how much the other cores' traffic delays the end of a DMA."""
        assert self.hbm is not None
        through = transfer.bytes * (transfer.reads_hbm + transfer.writes_hbm)
        return self.hbm.take(begin, finish, through) - finish
