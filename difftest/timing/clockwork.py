"""The times of one NeuronCore that are not an instruction's: clocks, hops, DMA, throttling.

Times in nanoseconds, rates in bytes a nanosecond, clocks in cycles a nanosecond (GHz). What an
instruction costs is in :mod:`difftest.timing.costs`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine
from difftest.timing.evidence import Figure, UnknownCostError, assumed, documented, measured

T, V, S, G = Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD
Y, D = Engine.SYNC, Engine.DMA

_HOPS = MappingProxyType(
    {
        (T, S): 37.0,
        (T, V): 37.0,
        (T, Y): 31.0,
        (S, V): 32.0,
        (S, T): 51.0,
        (V, T): 53.0,
        (V, G): 35.0,
        (S, G): 33.0,
        (S, Y): 26.0,
        (D, V): 23.0,
        (D, S): 23.0,
        (D, T): 42.0,
        (D, G): 24.0,
        (D, Y): 17.0,
    }
)
"""Producer's end to consumer's start through a semaphore, ns (TRACE)."""

OTHER_HOP = assumed(35.0, "pairs without a trace: near the median of those in _HOPS")
HOPS = MappingProxyType(
    {one: {other: _HOPS.get((one, other), OTHER_HOP.value) for other in Engine} for one in Engine}
)
"""Producer -> consumer -> from an instruction's end to the start of another engine's, ns."""

WAITS = MappingProxyType({T: 54.0, S: 40.0, V: 24.0, G: 21.0, Y: 20.0})
"""A bare semaphore wait: what each further semaphore costs an instruction, ns (TRACE)."""

SAME_ENGINE = measured(34.0, "TRACE: a vector instruction's end to the start of its reader")

MIN_CYCLES = 64
"""The least that any instruction takes (ISA: MIN_II)."""


@dataclass(frozen=True, kw_only=True)
class Clockwork:
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
    shared_hbm: Figure
    """What HBM gives both physical cores of a logical one together."""

    def cycles(self, engine: Engine, count: float) -> float:
        """``count`` cycles of ``engine`` in ns."""
        return count / self.clocks[engine].value


def _clocks(source: str, *rates: float) -> dict[Engine, Figure]:
    """Of the Tensor, the Vector, the Scalar and the GpSimd Engine."""
    return {one: documented(rate, source) for one, rate in zip((T, V, S, G), rates, strict=True)}


_STRIDED = "TRACE: weights with an element stride of 9 or 18"
_WEIGHTS = {
    (False, False): measured(95.0, "TRACE: LDWEIGHTS fp16 contiguous, n = 16416"),
    (False, True): measured(138.0, f"{_STRIDED}, fp16"),
    (True, False): measured(138.0, "TRACE: LDWEIGHTS fp32 contiguous, p10 of 860"),
    (True, True): measured(192.0, f"{_STRIDED}, fp32, minimum"),
}
_WEIGHTS_INTERVAL = {
    (False, False): measured(
        47.0, "TODAY: bf16 products of one column 46 to 48 ns start to start in most, 27 warm"
    ),
    (False, True): measured(
        64.0,
        "TRACE: fp16 matmuls of 14 rows, start to start 61 to 64, the longest; 3,240 of them "
        "beside 3,348 loads of weights with an element stride of 18, 108 of which transpose",
    ),
    (True, False): assumed(107.0, "128 rows at two cycles; the traces show no shorter one"),
    (True, True): measured(232.0, f"{_STRIDED}, fp32, start to start 225 to 240"),
}

TRN2 = Clockwork(
    clocks=_clocks("ARCH3", 2.4, 0.96, 1.2, 1.2),
    preamble=measured(12750.0, "TRACE: 12.66 to 12.93 us"),
    postamble=measured(2400.0, "TRACE: 2.3 to 2.6 us"),
    long_postamble=measured(11000.0, "TRACE: 8 to 14 us"),
    long_kernel=measured(120000.0, "TRACE"),
    latency_overhead=measured(10000.0, "WRITEUP: 15 us for one add of 25600; +- 3 us"),
    final_wait=measured(70.0, "TRACE: SEM_WAIT_FINAL, start to start"),
    final_waits=assumed(64.0, "TRACE: 64 of 64 in one kernel, fewer than the stores over all"),
    trigger=measured(85.0, "TRACE: DMA triggers, start to start 82 to 98 ns"),
    generation=measured(486.0, "WRITEUP: 37,318 us for 25600 x 3 DMAs of one element"),
    generation_per_partition=measured(
        0.8, "WRITEUP: 0.58 to 0.61 us a DMA of 128 partitions; ARCH3 says about 0.6"
    ),
    software_dispatch=measured(557.0, "TODAY: from one to the next 530 to 580 ns, 914 of them"),
    software_start=measured(850.0, "TODAY: 885 to 910 ns from a producer's end, 92 of them"),
    software_generation=measured(
        580.0, "TODAY: 128 rows, start to start 576 to 586 ns, 900 of them"
    ),
    long_burst=measured(735.0, "TODAY: 318 without a pause, 735 and 749 ns each on average"),
    indirect_generation=measured(
        600.0, "WRITEUP: gathers of 128 rows of 2 KiB reach 256 GB/s, 1.02 us each"
    ),
    indirect_per_partition=assumed(3.3, "what of these 1.02 us is not as of a DMA of hardware"),
    addressed_generation=measured(
        1230.0,
        "TODAY: 1.21 to 1.25 us, 719 of 32 to 512 KiB; 0.56 of it the dispatch, 0.29 the load",
    ),
    addressed_start=measured(1780.0, "TODAY: from the load of the index, 254 of them"),
    generated_lead=measured(757.0, "TODAY: software 0.757 us, hardware 1.2 to 1.33 with its own"),
    generated_read=measured(320.0, "TODAY: loads alone take 0.32 us and their bytes"),
    element_read=measured(1100.0, "TODAY: 128 of 2 to 8 bytes take 1.0 to 1.2 us, first to last"),
    alone_rate=measured(325.0, "TODAY: the same, of 32 to 512 KiB"),
    packet=measured(4.4, "TODAY: packets of 256 to 4096 bytes, 10,000 of them"),
    packet_least=measured(8.65, "TODAY: 2.68 million packets of 4 bytes"),
    packet_rate=measured(27.2, "TODAY: packets of 256 to 4096 bytes; DMA documents as much"),
    dma_lead=measured(950.0, "TRACE: 0.7 to 0.9 us to the first activity; stores in isolation"),
    dma_read=measured(790.0, "TRACE: loads in isolation take 1.9 to 2.2 us, stores 1.36"),
    dma_tail=measured(410.0, "TRACE: 0.3 to 0.45 us"),
    dma_minimum=measured(200.0, "TRACE: queued DMAs of any size"),
    descriptor=measured(9.0, "TRACE: a line through rows of 27, 448, 512 and 4000 bytes"),
    bandwidth=measured(28.1, "TRACE: the same line; DMA documents 27.2 for an engine"),
    long_rate=measured(26.5, "TRACE: rows of 4000 and 8000 bytes; DMA documents 27.2 at most"),
    element_write=measured(100.0, "TRACE: 95 to 107 ns for each 2 to 4 bytes"),
    transpose_share=documented(0.9, "ARCH3: HBM to SBUF"),
    row_share=measured(1.0, "TRACE: rows stream at the clock, warm"),
    row_overhead=measured(5.0, "TRACE: fp16, 420 and 444 rows"),
    row_overhead_fp32=measured(6.5, "TRACE: fp32, 420 and 512 rows"),
    partial_slowdown=assumed(
        1.15, "between ISA, where they take as long, and what was probed on trn1"
    ),
    drain=measured(85.0, "TRACE: transposes one at a time"),
    load_weights=_WEIGHTS,
    weights_interval=_WEIGHTS_INTERVAL,
    turned_interval=measured(116.5, "TRACE: fp16 transposes of filters, warm, 116 to 117"),
    throttle_window=measured(3413.3, "TRACE: 4096 cycles of 1.2 GHz"),
    throttle_slowdown=measured(2.0, "TRACE; EXPLORER: about half"),
    warm_share=measured(0.94, "TRACE"),
    cold_share=measured(0.62, "TRACE"),
    table_load=measured(1283.3, "TRACE: 27 of 27"),
    hbm_bandwidth=measured(424.0, "TRACE: 16 DMA engines, 413 to 426"),
    shared_hbm=measured(
        725.0, "WRITEUP: a stream of XLA on a logical core; ARCH3: 2.9 TB/s of 8 physical cores"
    ),
)

_UNTRACED = "no trace of this machine: trn2's figure"


def _assumed(value: Any) -> Any:
    """A figure of trn2, or a dictionary of such, for a machine of which there is none."""
    if isinstance(value, Figure):
        return assumed(value.value, _UNTRACED)
    if isinstance(value, dict):
        return {key: _assumed(figure) for key, figure in value.items()}
    return value


_AS_TRN2 = replace(TRN2, **{one.name: _assumed(getattr(TRN2, one.name)) for one in fields(TRN2)})

TRN1 = replace(
    _AS_TRN2,
    clocks=_clocks("ARCH2", 2.8, 1.12, 1.4, 1.4),
    generation=assumed(85.0, "no descriptor generation on this machine (ARCH3): static"),
    generation_per_partition=assumed(0.0, "no descriptor generation on this machine"),
    indirect_generation=measured(
        1000.0, "PROBE: about 1 us a DMA whose place is computed; a gather of 128 rows 1.42 us"
    ),
    addressed_generation=measured(1000.0, "PROBE: about 1 us a DMA whose place is computed"),
    addressed_start=assumed(1000.0, "as long as it keeps its engine"),
    generates=False,
    descriptor=measured(20.0, "PROBE: 160 GB/s in rows of 512 bytes"),
    bandwidth=measured(16.8, "PROBE: 261 to 264 GB/s into 8 to 64 KiB a partition"),
    long_rate=measured(16.5, "PROBE: the same, no more into 64 KiB than into 8"),
    row_share=measured(0.875, "PROBE: 2.45 G columns a second of 2.8; a cap that profiles show"),
    partial_slowdown=measured(
        1.42, "PROBE: median of 1.21 to 1.92 with a row or a column, 8 columns, 64 rows"
    ),
    weights_interval={
        **_AS_TRN2.weights_interval,
        (False, False): measured(40.0, "PROBE: bf16 transposes, other weights for each"),
    },
    throttle_slowdown=assumed(1.0, "EXPLORER describes throttling for trn2 and later"),
    hbm_bandwidth=measured(262.5, "PROBE: 261 to 264 GB/s"),
)

TRN3 = replace(
    _AS_TRN2,
    clocks=_clocks("ARCH4", 2.4, 1.2, 1.2, 1.2),
    bandwidth=documented(33.0, "DMA: effective, of one engine"),
    long_rate=documented(33.0, "DMA: effective, of one engine"),
    hbm_bandwidth=documented(528.0, "DMA: 16 engines of 33"),
    shared_hbm=assumed(1056.0, "what both cores' DMA engines reach: no limit of HBM is taken"),
)

_CLOCKWORKS = {"trn1": TRN1, "trn2": TRN2, "trn3": TRN3}


def clockwork(machine: Machine) -> Clockwork:
    """The times of ``machine``."""
    if machine.name not in _CLOCKWORKS:
        known = ", ".join(sorted(_CLOCKWORKS))
        raise UnknownCostError(f"no timing data for machine {machine.name!r}; there are {known}")
    return _CLOCKWORKS[machine.name]
