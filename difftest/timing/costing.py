"""What the instructions of a kernel cost, each kind of instruction and operands looked up once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from difftest.analysis.footprint import footprint
from difftest.analysis.purpose import Purpose, clears, purpose
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event
from difftest.timing.clockwork import MIN_CYCLES, Clockwork
from difftest.timing.costs import COPIES, Cost, CostTable, free_elements, work
from difftest.timing.tensor_engine import Matmul, matmul
from difftest.timing.transfer import Transfer, is_addressed, source_of, transfer

SHARED = (Engine.SCALAR, Engine.VECTOR)
"""Engines that share the copies for which the kernel names none (TRACE)."""
IN_EVERY_TABLE = COPIES | {"abs", "relu", "sign", "square"}
"""Activation functions that need no table of their own: copies (TODAY); the others are assumed."""
UNKNOWN_CYCLES = MIN_CYCLES
"""What an instruction of unknown cost takes, so that the others can be scheduled."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What an instruction costs on one engine; ns."""

    interval: float
    latency: float
    cost: Cost | None
    """Its row in the table; None if its cost is unknown."""
    elements: int
    """N: elements a partition of its largest operand."""
    table: str
    """The table of activation functions that it needs; empty if any has what it does."""
    planned: float
    """What the compiler is taken to count on, where it shares copies among engines: it knows no
    performance modes. N cycles on the vector engine, N and the access time on the scalar engine."""


class Costing:
    """Costs of instructions that have a row in the table, and the work of the Tensor Engine's.

    Thousands of instructions of a kernel differ only in where their operands lie: they share what
    is found for the first of them.
    """

    def __init__(self, costs: CostTable, clockwork: Clockwork) -> None:
        self._costs = costs
        self._clockwork = clockwork
        self._known: dict[Hashable, dict[Engine, Timed]] = {}
        self._products: dict[Hashable, Matmul] = {}
        self._transfers: dict[Hashable, Transfer] = {}

    def product(self, event: Event, machine: Machine) -> Matmul:
        """What an instruction asks of the Tensor Engine."""
        key = _kind(event)
        known = self._products.get(key)
        if known is None:
            known = self._products[key] = matmul(event, machine)
        return known

    def transfer(self, event: Event) -> Transfer:
        """What a DMA moves."""
        target, source = event.writes[0], source_of(event)
        on_chip = source if target.allocation.space.is_hbm else target
        partitions = footprint(on_chip)[:2]
        key = (_kind(event), source.whole, target.whole, partitions, is_addressed(event))
        known = self._transfers.get(key)
        if known is None:
            known = self._transfers[key] = transfer(event, self._clockwork)
        return known

    def of(self, event: Event) -> dict[Engine, Timed]:
        """Engine -> the cost there; more than one where the compiler chooses."""
        key = _kind(event)
        known = self._known.get(key)
        if known is None:
            engines = SHARED if event.engine is Engine.UNKNOWN else (event.engine,)
            known = self._known[key] = {engine: self._time(event, engine) for engine in engines}
        return known

    def _time(self, event: Event, engine: Engine) -> Timed:
        cost = self._costs.find(event, engine)
        count = free_elements(event)
        cycles = self._clockwork.cycles
        planned = cycles(engine, max(MIN_CYCLES, count))
        if cost is None:
            time = cycles(engine, UNKNOWN_CYCLES)
            return Timed(time, time, None, count, "", planned)
        if engine is Engine.SCALAR:
            planned += cost.latency_ns
        time = cycles(engine, cost.cycles * work(event))
        latency = time + cost.latency_ns
        return Timed(time + cost.interval_ns, latency, cost, count, _table(event), planned)


def _table(event: Event) -> str:
    op = event.attributes.op
    return op if op and purpose(event) is Purpose.FUNCTION and op not in IN_EVERY_TABLE else ""


def _kind(event: Event) -> Hashable:
    """All that the cost of an instruction can depend on: not where its operands lie."""
    kind: list[Hashable] = [event.kind, len(event.writes), clears(event)]
    for allocation, _, shape, strides, axis, role, _, view, _ in event.writes + event.reads:
        kind += (shape, strides, axis, role, view)
        kind += (allocation.space, allocation.shape, allocation.partition_axis)
        kind.append(id(allocation.dtype))  # which lives as long as the trace; its hash takes long
    return tuple(kind)
