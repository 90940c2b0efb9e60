"""The times of one NeuronCore that are not an instruction's: clocks, hops, DMA, throttling.

Times in nanoseconds, rates in bytes a nanosecond, clocks in cycles a nanosecond (GHz): data
(``data/clockwork.csv``), each with its evidence and source. What an instruction costs is in
:mod:`difftest.timing.cost_table`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine
from difftest.timing.evidence import Evidence, Figure, UnknownCostError, rows_of

_HOPS = {(row["producer"], row["consumer"]): float(row["ns"]) for row in rows_of("hops")}
OTHER_HOP = 35.0
"""Pairs without a trace: near the median of those in hops.csv."""
HOPS = MappingProxyType(
    {
        engine: {other: _HOPS.get((engine.value, other.value), OTHER_HOP) for other in Engine}
        for engine in Engine
    }
)
"""Producer -> consumer -> from an instruction's end to the start of another engine's, ns."""
WAITS = MappingProxyType({engine: _HOPS.get(("wait", engine.value), 0.0) for engine in Engine})
"""A bare semaphore wait: what each further semaphore costs an instruction, ns."""

SAME_ENGINE = 34.0
"""A vector instruction's end to the start of its reader (TRACE), ns."""

MIN_CYCLES = 64
"""The least that any instruction takes (ISA: MIN_II)."""


@dataclass(frozen=True, kw_only=True)
class TimingParameters:
    """Times of one machine; every figure with its source."""

    clocks: dict[Engine, Figure]

    # A kernel from outside
    preamble: Figure
    """Profile time before the first instruction of the kernel."""
    postamble: Figure
    """Profile time after the last."""
    long_postamble: Figure
    """The same if the kernel's own part is at least ``long_kernel``."""
    long_kernel: Figure
    latency_overhead: Figure
    """What nc_latency adds to the kernel's own part."""
    launched_overhead: Figure
    """And what a latency adds that was published with the launch in it."""
    final_wait: Figure
    """Each store's semaphore is waited for at the end, one after the other."""
    final_waits: Figure
    """At most so many of them."""

    # DMA
    dma_engines: int = 16
    dma_partitions: int = 8
    """Partitions that one DMA engine serves (DMA: 128 over 16)."""
    outstanding: int = 16
    """DMAs under way in one queue (TRACE: a queue reuses 16 semaphores)."""
    trigger: Figure
    """Static descriptors: from one trigger instruction to the next."""
    generation: Figure
    """Descriptors generated on the device: from one DMA to the next, one partition."""
    generation_per_partition: Figure
    software_dispatch: Figure
    """What a copy whose descriptors are made by software keeps the GpSimd Engine."""
    software_start: Figure
    """And from there to the DMA's start, if none is queued."""
    software_generation: Figure
    """From one such start to the next."""
    long_burst: Figure
    """The same after ``burst`` without a pause."""
    burst: int = 50
    software_queue: int = 16
    """Copies that the GpSimd Engine may have dispatched and that have not started (TODAY)."""
    indirect_generation: Figure
    """And for a gather or a scatter of one partition."""
    indirect_per_partition: Figure
    addressed_generation: Figure
    """What a copy whose place is in a register or an element of SBUF keeps the GpSimd Engine."""
    addressed_start: Figure
    """And from there to the DMA's start."""
    generates: bool = True
    """Whether what follows holds of DMAs with generated descriptors; else they are as static."""
    generated_lead: Figure
    """Generated descriptors to the first byte's turn on an idle engine."""
    generated_read: Figure
    """HBM read latency of such a DMA, of 0 bytes; of more it grows up to ``dma_read``."""
    element_read: Figure
    """And of rows of at most ``element_bytes``, which the engines begin one after the other."""
    alone_rate: Figure
    """Bytes a nanosecond of such a load alone, on all engines."""
    packet: Figure
    """An engine's time for a row of such a DMA, apart from its bytes."""
    packet_least: Figure
    """And the least."""
    packet_rate: Figure
    """Bytes a nanosecond inside it."""
    dma_lead: Figure
    """Trigger to the first byte's turn on an idle engine."""
    dma_read: Figure
    """HBM read latency: later, but not busy."""
    dma_tail: Figure
    """Last byte to completion semaphore."""
    dma_minimum: Figure
    """From one DMA of an engine to the next, however small."""
    descriptor: Figure
    """An engine's time for a row (one contiguous run) apart from its bytes."""
    bandwidth: Figure
    """Bytes a nanosecond of one DMA engine inside a row."""
    long_rate: Figure
    """The same over rows of any length, the time of the row apart: no more is ever reached."""
    element_write: Figure
    """A row of at most ``element_bytes`` written to HBM: read, modify, write."""
    element_bytes: int = 8
    transpose_share: Figure
    """Of copy bandwidth, what a DMA transpose reaches."""

    # Tensor Engine
    row_share: Figure
    """Of the Tensor Engine's clock, the rate at which rows stream in the long run."""
    row_overhead: Figure
    """Cycles of a matmul on top of its rows, warm."""
    row_overhead_fp32: Figure
    partial_slowdown: Figure
    """By how much longer rows stream through a part of the PE array than through all of it."""
    drain: Figure
    """Last row to PSUM visible."""
    load_weights: dict[tuple[bool, bool], Figure]
    """(four-byte, strided) -> an idle engine's time to load weights."""
    weights_interval: dict[tuple[bool, bool], Figure]
    """(four-byte, strided) -> shortest time from one load of weights to the next."""
    turned_interval: Figure
    """The same from one transpose of two bytes to the next, whose weights lie apart."""
    throttle_window: Figure
    throttle_slowdown: Figure
    warm_share: Figure
    """Of the rows that a cold window can hold, those that make the next one warm."""
    cold_share: Figure
    """Of the same, those below which the next window is cold."""

    table_load: Figure
    """ACT_TABLE_LOAD, once for each function table."""
    hbm_bandwidth: Figure
    """What one core's DMA engines reach."""
    shared_engines: Figure
    """Of the rate of a DMA engine, what is left where both cores of a logical one run."""
    shared_hbm: Figure
    """What HBM gives both physical cores of a logical one together."""

    def cycles(self, engine: Engine, count: float) -> float:
        """``count`` cycles of ``engine`` in ns."""
        return count / self.clocks[engine].value


_UNTRACED = "no trace of this machine: trn2's figure"
_WEIGHTS = {
    "two bytes": (False, False),
    "two bytes apart": (False, True),
    "four bytes": (True, False),
    "four bytes apart": (True, True),
}
"""Weights as the data name them -> (four-byte, strided)."""


def _figures(machine: str) -> dict[str, Any]:
    """What ``data/clockwork.csv`` has of a machine; of others than trn2 the rest is trn2's."""
    figures: dict[str, Any] = {}
    rows = list(rows_of("clockwork"))
    for of_machine in dict.fromkeys(("trn2", machine)):
        for row in rows:
            if row["machine"] != of_machine:
                continue
            figure = Figure(float(row["value"]), Evidence(row["evidence"]), row["source"])
            if of_machine != machine:
                figure = Figure(figure.value, Evidence.ASSUMED, _UNTRACED)
            if row["of"]:
                key = _WEIGHTS.get(row["of"]) or Engine(row["of"])
                figures.setdefault(row["name"], {})[key] = figure
            else:
                figures[row["name"]] = figure
    return figures


_CLOCKWORKS = {
    name: TimingParameters(**_figures(name), generates=name != "trn1")
    for name in ("trn1", "trn2", "trn3")
}
TRN1, TRN2, TRN3 = _CLOCKWORKS.values()


def timing_parameters(machine: Machine) -> TimingParameters:
    """The times of ``machine``."""
    if machine.name not in _CLOCKWORKS:
        machines = ", ".join(sorted(_CLOCKWORKS))
        raise UnknownCostError(f"no timing data for machine {machine.name!r}; there are {machines}")
    return _CLOCKWORKS[machine.name]
