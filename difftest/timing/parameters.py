"""Times of one NeuronCore other than instruction costs: clocks, hops, DMA, throttling.

Times in nanoseconds, rates in bytes per nanosecond, clocks in cycles per nanosecond (GHz). They are
data (``data/parameters.csv``), each with its evidence and source. Instruction costs are in
:mod:`difftest.timing.cost_table`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine
from difftest.timing.evidence import Evidence, Figure, UnknownCostError, rows_of

_HOPS = {
    (row["producer"], row["consumer"]): float(row["ns"]) for row in rows_of("hops")
}
OTHER_HOP = 35.0
"""Pairs without a trace: near the median of the pairs in hops.csv."""
HOPS = MappingProxyType(
    {
        engine: {
            other: _HOPS.get((engine.value, other.value), OTHER_HOP) for other in Engine
        }
        for engine in Engine
    }
)
"""Producer -> consumer -> ns from the end of an instruction to the start on another engine."""
WAITS = MappingProxyType(
    {engine: _HOPS.get(("wait", engine.value), 0.0) for engine in Engine}
)
"""A bare semaphore wait: the cost in ns of each further semaphore."""

SAME_ENGINE = 34.0
"""A vector instruction's end to the start of its reader (TRACE), ns."""

MIN_CYCLES = 64
"""The least cycles of any instruction (ISA: MIN_II)."""


@dataclass(frozen=True, kw_only=True)
class TimingParameters:
    """Times of one machine; every figure has its source."""

    clocks: dict[Engine, Figure]

    # Outside the kernel
    preamble: Figure
    """Profile time before the kernel's first instruction."""
    postamble: Figure
    """Profile time after the kernel's last instruction."""
    generated_preamble: Figure
    """``preamble`` of a classic kernel whose descriptors are generated on the device."""
    generated_postamble: Figure
    """``postamble`` of such a kernel, at any length."""
    long_postamble: Figure
    """Postamble of a kernel whose own part is at least ``long_kernel``."""
    long_kernel: Figure
    latency_overhead: Figure
    """Time that nc_latency adds to the kernel's own part."""
    launched_overhead: Figure
    """Time that a published latency with the launch in it adds to the kernel's own part."""
    final_wait: Figure
    """The wait at the end for each store's semaphore, one after the other."""
    final_waits: Figure
    """The most stores with such a wait."""

    # DMA
    dma_engines: int = 16
    dma_partitions: int = 8
    """Partitions that one DMA engine serves (DMA: 128 over 16)."""
    outstanding: int = 16
    """DMAs in flight in one queue (TRACE: a queue reuses 16 semaphores)."""
    trigger: Figure
    """Static descriptors: from one trigger instruction to the next."""
    generation: Figure
    """Device-generated descriptors: from one DMA to the next, one partition."""
    generation_per_partition: Figure
    software_dispatch: Figure
    """Busy time of the GpSimd Engine for a copy with software-made descriptors."""
    software_start: Figure
    """From the dispatch to the DMA's start, with an empty queue."""
    software_generation: Figure
    """From one such start to the next."""
    long_burst: Figure
    """From one such start to the next, after ``burst`` starts without a pause."""
    burst: int = 50
    software_queue: int = 16
    """Copies that the GpSimd Engine may have dispatched before they start (TODAY)."""
    indirect_generation: Figure
    """Generation for a gather or a scatter of one partition."""
    indirect_per_partition: Figure
    addressed_generation: Figure
    """Busy time of the GpSimd Engine for a copy with an address in a register or in SBUF."""
    addressed_start: Figure
    """From there to the DMA's start."""
    generates: bool = True
    """True if generated descriptors have the figures below; else the static ones apply."""
    generated_lead: Figure
    """Generated descriptors: until the first byte is next on an idle engine."""
    generated_read: Figure
    """HBM read latency of such a DMA with 0 bytes; it grows with the bytes up to ``dma_read``."""
    element_read: Figure
    """HBM read latency of rows of at most ``element_bytes``; engines begin them in sequence."""
    alone_rate: Figure
    """Bytes per nanosecond of such a load alone, on all engines."""
    packet: Figure
    """An engine's time for a row of such a DMA, without its bytes."""
    packet_least: Figure
    """The least time for such a row."""
    packet_rate: Figure
    """Bytes per nanosecond inside such a row."""
    dma_lead: Figure
    """From the trigger until the first byte is next on an idle engine."""
    dma_read: Figure
    """HBM read latency, which does not keep the engine busy."""
    dma_tail: Figure
    """From the last byte to the completion semaphore."""
    dma_minimum: Figure
    """The least time from one DMA of an engine to the next."""
    descriptor: Figure
    """An engine's time for a row (one contiguous run) without its bytes."""
    bandwidth: Figure
    """Bytes per nanosecond of one DMA engine inside a row."""
    long_rate: Figure
    """The highest rate over rows of any length, bytes per nanosecond, without the row's time."""
    element_write: Figure
    """A row of at most ``element_bytes`` written to HBM: read, modify, write."""
    element_bytes: int = 8
    transpose_share: Figure
    """The share of copy bandwidth that a DMA transpose reaches."""

    # Tensor Engine
    row_share: Figure
    """The long-run rate of streamed rows, relative to the Tensor Engine's clock."""
    row_overhead: Figure
    """Cycles of a matmul in addition to its rows, warm."""
    row_overhead_fp32: Figure
    partial_slowdown: Figure
    """The slowdown of rows through a part of the PE array, as a factor."""
    drain: Figure
    """From the last row until the result is visible in PSUM."""
    load_weights: dict[tuple[bool, bool], Figure]
    """(four-byte, strided) -> an idle engine's time to load weights."""
    weights_interval: dict[tuple[bool, bool], Figure]
    """(four-byte, strided) -> shortest time from one load of weights to the next."""
    turned_interval: Figure
    """Shortest time between two-byte transposes whose weights are strided."""
    throttle_window: Figure
    throttle_slowdown: Figure
    warm_share: Figure
    """The share of a cold window's possible rows that makes the next window warm."""
    cold_share: Figure
    """The share of a cold window's possible rows below which the next window is cold."""

    table_load: Figure
    """ACT_TABLE_LOAD, once for each function table."""
    hbm_bandwidth: Figure
    """The rate that one core's DMA engines reach."""
    shared_engines: Figure
    """The share of a DMA engine's rate that remains if both cores of a logical core run."""
    shared_hbm: Figure
    """The rate of HBM for both physical cores of a logical core together."""

    def cycles(self, engine: Engine, count: float) -> float:
        """Return ``count`` cycles of ``engine`` in ns."""
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
    """Return the figures of a machine in ``data/parameters.csv``; trn2's fill the gaps."""
    figures: dict[str, Any] = {}
    rows = list(rows_of("parameters"))
    for of_machine in dict.fromkeys(("trn2", machine)):
        for row in rows:
            if row["machine"] != of_machine:
                continue
            figure = Figure(
                float(row["value"]), Evidence(row["evidence"]), row["source"]
            )
            if of_machine != machine:
                figure = Figure(figure.value, Evidence.ASSUMED, _UNTRACED)
            if row["of"]:
                key = _WEIGHTS.get(row["of"]) or Engine(row["of"])
                figures.setdefault(row["name"], {})[key] = figure
            else:
                figures[row["name"]] = figure
    return figures


_PARAMETERS = {
    name: TimingParameters(**_figures(name), generates=name != "trn1")
    for name in ("trn1", "trn2", "trn3")
}
TRN1, TRN2, TRN3 = _PARAMETERS.values()


def timing_parameters(machine: Machine) -> TimingParameters:
    """Return the times of ``machine``."""
    if machine.name not in _PARAMETERS:
        machines = ", ".join(sorted(_PARAMETERS))
        raise UnknownCostError(
            f"no timing data for machine {machine.name!r}; there are {machines}"
        )
    return _PARAMETERS[machine.name]
