"""Costs of a kernel's instructions; each kind of instruction and operands is looked up once.

The module also reports the classes of evidence behind these costs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from difftest.analysis.footprint import footprint
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Purpose
from difftest.timing.cost_table import COPIES, Cost, cost_table, free_elements, work
from difftest.timing.dma import INDIRECT, Transfer, dma_source, transfer
from difftest.timing.evidence import Evidence, Figure
from difftest.timing.parameters import MIN_CYCLES, TimingParameters, timing_parameters
from difftest.timing.tensor_engine import Matmul, matmul

SHARED = (Engine.SCALAR, Engine.VECTOR)
"""Engines that share copies without an engine of their own (TRACE)."""
IN_EVERY_TABLE = COPIES | {"abs", "relu", "sign", "square"}
"""Activation functions that need no table of their own. Copies: TODAY; the others are assumed."""
PRODUCTS = (Purpose.PRODUCT, Purpose.TRANSPOSE)
"""Purposes that the model of the Tensor Engine covers."""
UNKNOWN_CYCLES = MIN_CYCLES
"""Assumed cycles of an instruction with unknown cost, so that the others can be scheduled."""


@dataclass(frozen=True, slots=True)
class EngineCost:
    """The cost of an instruction on one engine; ns."""

    interval: float
    latency: float
    cost: Cost | None
    """Its row in the table; None if its cost is unknown."""
    elements: int
    """N: elements per partition of its largest operand."""
    table: str
    """The table of activation functions that it needs; empty if every table has its function."""
    cycles: float
    """Time for its elements, or the least time of any instruction."""
    planned: float
    """The compiler's assumed estimate when it shares copies among engines. It ignores performance
    modes: N cycles on the vector engine, N and the access time on the scalar engine."""


class InstructionCost(NamedTuple):
    """The work of an instruction on its engine."""

    times: dict[Engine, EngineCost]
    """Cost on each engine that may run it; several where the compiler chooses."""
    matmul: Matmul | None = None
    transfer: Transfer | None = None
    modelled: Evidence = Evidence.ASSUMED
    """Evidence for the time of the rows of a matmul or transfer on this machine."""


def merged_cost(costs: list[InstructionCost]) -> InstructionCost:
    """Return the cost of one instruction that does the work of several: one start-up for all."""
    first = costs[0]
    count = len(costs)
    if count == 1:
        return first
    moved = first.transfer
    if moved is not None:
        moved = moved._replace(
            rows=moved.rows * count,
            busy=tuple((engine, rows * count) for engine, rows in moved.busy),
        )
    times = {engine: _repeated(timed, count) for engine, timed in first.times.items()}
    return first._replace(times=times, transfer=moved)


def _repeated(timed: EngineCost, count: int) -> EngineCost:
    """Return the cost of ``count`` times the elements."""
    start = timed.cost.interval_ns if timed.cost else 0.0
    more = (count - 1) * (timed.interval - start)
    return replace(
        timed,
        interval=timed.interval + more,
        latency=timed.latency + more,
        elements=timed.elements * count,
        cycles=max(timed.cycles, timed.interval - start + more),
        planned=timed.planned + more,
    )


class CostModel:
    """The costs of instructions from the table, and the work of matmuls and transfers.

    Thousands of instructions of a kernel differ only in the addresses of their operands. They
    share the result that the first of them computed.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._costs = cost_table(machine)
        self._parameters = timing_parameters(machine)
        self._known: dict[tuple[Hashable, ...], InstructionCost] = {}

    def of(self, event: Event) -> InstructionCost:
        """Return the cost of an event's instruction."""
        kind = event.kind
        writes = event.writes
        key: list[Hashable] = [kind, len(writes), event.clears]
        for region in writes + event.reads:
            tensor = region[0]
            key += (
                region[2:6],
                region[7],
                tensor.space,
                tensor.shape,
                tensor.partition_axis,
            )
            # the dtype lives as long as the trace; its hash is slow
            key.append(id(tensor.dtype))
        if kind.engine is Engine.DMA:
            source = dma_source(event)
            on_chip = source if writes[0].allocation.space.is_hbm else writes[0]
            key += (source.whole, writes[0].whole, footprint(on_chip)[:2])
        form = tuple(key)
        cost = self._known.get(form)
        if cost is None:
            cost = self._known[form] = self._work(event)
        return cost

    def _work(self, event: Event) -> InstructionCost:
        engine = event.engine
        figures = self._parameters
        if engine is Engine.DMA:
            return InstructionCost(
                {}, None, transfer(event, figures), figures.descriptor.evidence
            )
        if engine is Engine.TENSOR and event.purpose in PRODUCTS:
            return InstructionCost(
                {}, matmul(event, self._machine), None, figures.row_overhead.evidence
            )
        engines = SHARED if engine is Engine.UNKNOWN else (engine,)
        return InstructionCost(
            {engine: self._time(event, engine) for engine in engines}
        )

    def _time(self, event: Event, engine: Engine) -> EngineCost:
        cost = self._costs.find(event, engine)
        count = free_elements(event)
        cycles = self._parameters.cycles
        least = planned = cycles(engine, max(MIN_CYCLES, count))
        if cost is None:
            time = cycles(engine, UNKNOWN_CYCLES)
            return EngineCost(time, time, None, count, "", least, planned)
        if engine is Engine.SCALAR:
            planned += cost.latency_ns
        time = cycles(engine, cost.cycles * work(event))
        latency = time + cost.latency_ns
        interval = time + cost.interval_ns
        op = event.attributes.op or ""
        own = event.purpose is Purpose.FUNCTION and op not in IN_EVERY_TABLE
        return EngineCost(
            interval, latency, cost, count, op if own else "", least, planned
        )


def cost_evidence(
    instruction: str, does: Purpose, engine: Engine, machine: Machine
) -> frozenset[Evidence]:
    """Return the evidence of every figure in an instruction's cost; empty if its cost is unknown.

    For the Tensor Engine and DMA the figures are in the timing parameters, else in the cost table.
    """
    times = timing_parameters(machine)
    if engine is Engine.DMA:
        names = DMA_FIGURES + MORE_DMA_FIGURES.get(does, ())
        return frozenset(figure.evidence for figure in _figures(times, names))
    if engine is Engine.TENSOR:
        figures = times.clocks[engine], *_figures(times, TENSOR_FIGURES)
        return frozenset(figure.evidence for figure in figures)
    rows = cost_table(machine).rows.values()
    return frozenset(
        row.evidence
        for row in rows
        if (row.instruction, row.engine) == (instruction, engine)
    )


DMA_FIGURES = (
    "trigger",
    "generation",
    "generation_per_partition",
    "addressed_generation",
    "dma_lead",
    "dma_read",
    "dma_tail",
    "dma_minimum",
    "generated_lead",
    "generated_read",
    "descriptor",
    "bandwidth",
    "long_rate",
    "packet",
    "packet_rate",
    "element_write",
)
"""The fields of TimingParameters in every DMA's time; some kinds have more fields."""
MORE_DMA_FIGURES = {
    Purpose.TRANSPOSE: ("transpose_share",),
    **dict.fromkeys(INDIRECT, ("indirect_generation", "indirect_per_partition")),
}
TENSOR_FIGURES = (
    "row_share",
    "row_overhead",
    "row_overhead_fp32",
    "partial_slowdown",
    "drain",
    "load_weights",
    "weights_interval",
    "turned_interval",
    "throttle_window",
    "throttle_slowdown",
)
"""The fields of the Tensor Engine other than its clock."""


def _figures(times: TimingParameters, names: Iterable[str]) -> Iterator[Figure]:
    for name in names:
        value = getattr(times, name)
        yield from value.values() if isinstance(value, dict) else (value,)
