"""What the instructions of a kernel cost, each kind of instruction and operands looked up once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Region
from difftest.timing.clockwork import MIN_CYCLES, Clockwork
from difftest.timing.costs import Cost, CostTable, free_elements
from difftest.timing.tensor_engine import Matmul, matmul
from difftest.timing.work import work

SHARED = (Engine.SCALAR, Engine.VECTOR)
"""Engines that share the copies for which the kernel names none (TRACE)."""
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

    def product(self, event: Event, machine: Machine) -> Matmul:
        """What an instruction asks of the Tensor Engine."""
        key = _kind(event)
        known = self._products.get(key)
        if known is None:
            known = self._products[key] = matmul(event, machine)
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
        if cost is None:
            time = self._clockwork.cycles(engine, UNKNOWN_CYCLES)
            return Timed(time, time, None, count)
        time = self._clockwork.cycles(engine, cost.cycles * work(event))
        return Timed(time + cost.interval_ns, time + cost.latency_ns, cost, count)


def _kind(event: Event) -> Hashable:
    """All that the cost of an instruction can depend on."""
    return (
        event.opcode,
        event.engine,
        event.attributes,
        len(event.writes),
        *map(_form, event.writes),
        *map(_form, event.reads),
    )


def _form(region: Region) -> Hashable:
    """All that a cost can depend on: not the place of the region in its tensor."""
    allocation = region.allocation
    return (
        region.shape,
        region.strides,
        region.partition_axis,
        allocation.space,
        allocation.shape,
        allocation.partition_axis,
        allocation.dtype,
        region.view,
    )
