"""Instruction costs: one row for each instruction, machine, engine and kind of operands.

A row gives, for N elements per partition (or the count of :func:`work`),

    interval = cycles * N / clock + interval_ns     from its start to the next one's
    latency  = cycles * N / clock + latency_ns      from its start to its result

The rows are data (``data/costs.csv``), each with its evidence and source. For trn1 and trn3 the
file has only rows of figures for that machine. :func:`on_older_machine` and
:func:`on_newer_machine` derive the other rows from trn2's. The Tensor Engine and DMA have models of
their own: :mod:`difftest.timing.tensor_engine`, :mod:`difftest.timing.dma`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

from difftest.analysis.footprint import free_axes
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Purpose, Region, Space
from difftest.timing.evidence import Evidence, rows_of
from difftest.timing.parameters import TRN1, TRN2, TRN3, TimingParameters

ANY = "*"
WIDE_STRIDE = 16
"""Beyond this many bytes between neighbouring elements, access is slower (ARCH2)."""
COPIES = frozenset({"copy", "identity"})
"""Activation functions that only move data; each costs the same as a copy."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A row of the table: an instruction on an engine of a machine."""

    machine: str
    instruction: str
    engine: Engine
    variant: str
    """The kind of operands; ``*`` for all kinds without a row of their own."""
    cycles: float
    interval_ns: float
    latency_ns: float
    evidence: Evidence
    source: str


Key = tuple[str, Engine, str]


class CostTable:
    """The rows of one machine."""

    def __init__(self, costs: tuple[Cost, ...]) -> None:
        self.rows: dict[Key, Cost] = {}
        for cost in costs:
            key = (cost.instruction, cost.engine, cost.variant)
            if key in self.rows:
                raise ValueError(f"costs.csv has two rows for {key}")
            self.rows[key] = cost

    def find(self, event: Event, engine: Engine) -> Cost | None:
        """Return the row for ``event`` on ``engine``; None if the cost is unknown."""
        row = self.rows.get((event.opcode, engine, operand_variant(event)))
        return row or self.rows.get((event.opcode, engine, ANY))


@cache
def all_costs() -> tuple[Cost, ...]:
    """Return every row of ``data/costs.csv``, and the rows derived for trn1 and trn3."""
    rows = tuple(map(_cost, rows_of("costs")))
    return rows + on_older_machine(rows) + on_newer_machine(rows)


def _cost(row: dict[str, Any]) -> Cost:
    numbers = {
        name: float(row[name]) for name in ("cycles", "interval_ns", "latency_ns")
    }
    kinds = {"engine": Engine(row["engine"]), "evidence": Evidence(row["evidence"])}
    return Cost(**row | numbers | kinds)


def on_older_machine(rows: tuple[Cost, ...]) -> tuple[Cost, ...]:
    """Return rows for instructions without a trn1 row, derived from trn2's.

    The documentation gives one number of cycles for both machines (ISA). So a trn2 row for any
    operands is trn1's too. The delay from interval to result is that of trn1's own copy on the
    engine. trn1 lacks trn2's fast modes, which are rows for certain operands.
    """
    own = [cost for cost in rows if cost.machine == "trn1"]
    keys = {(cost.instruction, cost.engine) for cost in own}
    delays = {
        cost.engine: cost.latency_ns - cost.interval_ns
        for cost in own
        if (cost.instruction, cost.variant) == ("tensor_copy", ANY)
    }
    return tuple(
        _at_clock_of(TRN1, cost, "trn1", cost.evidence, delays.get(cost.engine))
        for cost in rows
        if cost.machine == "trn2" and cost.variant == ANY
        if (cost.instruction, cost.engine) not in keys
    )


def on_newer_machine(rows: tuple[Cost, ...]) -> tuple[Cost, ...]:
    """Return rows for instructions without a trn3 row. All of them are assumed.

    An instruction takes the cycles that it takes on trn2, in its fast modes too. The delay from
    interval to result is also the same.
    """
    keys = {
        (cost.instruction, cost.engine, cost.variant)
        for cost in rows
        if cost.machine == "trn3"
    }
    return tuple(
        _at_clock_of(TRN3, cost, "trn3", Evidence.ASSUMED)
        for cost in rows
        if cost.machine == "trn2"
        and (cost.instruction, cost.engine, cost.variant) not in keys
    )


def _at_clock_of(
    other: TimingParameters,
    cost: Cost,
    machine: str,
    evidence: Evidence,
    delay: float | None = None,
) -> Cost:
    """Return a trn2 row with as many cycles of another machine's clock; intervals in whole ns."""
    clocks = TRN2.clocks[cost.engine].value, other.clocks[cost.engine].value
    interval = float(round(cost.interval_ns * clocks[0] / clocks[1]))
    return replace(
        cost,
        machine=machine,
        interval_ns=interval,
        latency_ns=interval
        + (cost.latency_ns - cost.interval_ns if delay is None else delay),
        evidence=Evidence.ASSUMED if evidence is Evidence.MEASURED else evidence,
        source=f"{cost.source}; trn2's row at {machine}'s clock",
    )


def cost_table(machine: Machine) -> CostTable:
    """Return the cost table of ``machine``."""
    return CostTable(
        tuple(cost for cost in all_costs() if cost.machine == machine.name)
    )


def elements(region: Region) -> int:
    """Return the elements per partition of an on-chip region, over all but its partition axis."""
    return prod(region.free_shape)


def free_elements(event: Event) -> int:
    """Return N of the event: elements per partition of its largest on-chip operand."""
    most = 0
    for region in event.writes + event.reads:
        if not region.allocation.space.is_hbm:
            most = max(most, elements(region))
    return most


def inner_stride(region: Region) -> int:
    """Return the bytes between elements along the innermost free axis; 0 for a broadcast."""
    itemsize = region.dtype.itemsize
    for size, stride in reversed(free_axes(region)):
        if size > 1:
            return abs(stride) * itemsize
    return itemsize


def operand_variant(event: Event) -> str:
    """Return the kind of the event's operands, as the table names it."""
    chooser = _VARIANTS.get(event.purpose)
    return chooser(event) if chooser else ANY


def _space(event: Event) -> str:
    operands = event.writes + event.reads
    return "psum" if any(r.allocation.space is Space.PSUM for r in operands) else "sbuf"


def _narrow(event: Event) -> bool:
    return all(r.dtype.itemsize <= 2 for r in event.writes + event.reads)


def _copy(event: Event) -> str:
    source = event.reads[0]
    target = event.writes[0]
    space = _space(event)
    if inner_stride(target) > WIDE_STRIDE:
        size = "2-byte strided" if target.dtype.itemsize <= 2 else "strided"
        return f"{size} {space}"
    if inner_stride(source) > WIDE_STRIDE:
        return "strided source"
    return _moved(event)


def _moved(event: Event) -> str:
    """Return the kind of operands by the vector engine's performance modes (ARCH3)."""
    space = _space(event)
    main = (event.reads[:1] or event.writes) + event.writes
    if not all(region.dtype.itemsize <= 2 for region in main):
        return space
    apart = any(inner_stride(region) != region.dtype.itemsize for region in main)
    return "2-byte sbuf apart" if apart and space == "sbuf" else f"2-byte {space}"


def _scaled(event: Event) -> str:
    """Return the kind of operands; a column of operands is read first (TRACE23)."""
    moved = _moved(event)
    return f"{moved} by operand" if len(event.reads) > 1 else moved


def _combined(event: Event) -> str:
    """Return the kind of two inputs; one of them may be in PSUM without extra cost (ISA)."""
    dense = all(inner_stride(r) == r.dtype.itemsize for r in event.reads)
    whole = len({elements(region) for region in event.reads}) == 1
    if _narrow(event) and dense and whole and _space(event) == "sbuf":
        return "2-byte sbuf"
    return "psum" if any(r.allocation.space is Space.PSUM for r in event.reads) else ANY


def _filled(event: Event) -> str:
    if event.clears and _narrow(event) and _space(event) == "sbuf":
        return "2-byte sbuf"
    return ANY


def _activation(event: Event) -> str:
    space = _space(event)
    if any(region.role == "scale" for region in event.reads):
        return f"scaled {space}"
    if len(event.writes) > 1:
        return "reduced"
    return f"copy {space}" if event.attributes.op in COPIES else space


def _register(event: Event) -> str:
    operands = event.writes + event.reads
    return "hbm" if any(r.allocation.space.is_hbm for r in operands) else "sbuf"


_VARIANTS = {
    Purpose.REGISTER: _register,
    Purpose.COPY: _copy,
    Purpose.SCALE: _scaled,
    Purpose.PICK: _space,
    Purpose.COMBINE: _combined,
    Purpose.FILL: _filled,
    Purpose.FUNCTION: _activation,
}

GPSIMD_CORE_PARTITIONS = 16
"""Partitions that one core of the GpSimd Engine serves (ISA)."""
GATHER_CYCLES = 28
"""Cycles of local_gather for each index (ISA), besides ``GATHER_STEP`` for each element."""
GATHER_STEP = 4
"""ISA's ``t``, a constant that AWS may change."""


def work(event: Event) -> float:
    """Return the factor of the cycles in an instruction's row.

    The factor is N, the elements per partition of the largest operand. For some instructions the
    documented cost (ISA) counts something else.
    """
    counted = _WORK.get(event.opcode)
    return counted(event) if counted else free_elements(event)


def _topk(event: Event) -> float:
    """Return 4 n + K cycles, with all elements of the source in 16 partitions as n.

    The trace does not hold n.
    """
    n = GPSIMD_CORE_PARTITIONS * elements(event.reads[0])
    return 4 * n + elements(event.writes[0])


def _local_gather(event: Event) -> float:
    """Return indices times elements per index, times ISA's C.

    ISA divides by C, but it also says that more elements per index make a gather faster. So C is
    taken as cycles. The elements per index are the least power of two that fills the result.
    """
    gathered = event.writes[0]
    index = event.reads[1]
    indices = GPSIMD_CORE_PARTITIONS * elements(index)
    width = 1
    while width * indices < elements(gathered):
        width *= 2
    step = GATHER_STEP * width
    cycles = (GATHER_CYCLES + step) / step / min(4 / gathered.dtype.itemsize, width)
    return elements(gathered) * cycles


_WORK: dict[str, Callable[[Event], float]] = {
    "topk": _topk,
    "local_gather": _local_gather,
    # the gaps between its elements in the source cost nothing
    "gather_flattened": lambda event: elements(event.writes[0]),
}
