"""How the cost of an instruction is known: the classes of evidence behind its figures."""

from __future__ import annotations

from difftest.analysis.purpose import PURPOSES, Purpose
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine
from difftest.timing.clockwork import Clockwork, clockwork
from difftest.timing.costs import cost_table
from difftest.timing.evidence import Evidence, Figure
from difftest.timing.transfer import INDIRECT


def evidence_of(instruction: str, engine: Engine, machine: Machine) -> frozenset[Evidence]:
    """The evidence of every figure in the cost of ``instruction`` on ``engine``; empty if none.

    That of the Tensor Engine and of DMA stands in the models' figures, of all others in the table.
    """
    times = clockwork(machine)
    if engine is Engine.DMA:
        return _classes(_dma(times, instruction))
    if engine is Engine.TENSOR:
        return _classes(_tensor(times))
    rows = cost_table(machine).rows.values()
    return frozenset(
        row.evidence for row in rows if (row.instruction, row.engine) == (instruction, engine)
    )


def _classes(figures: tuple[Figure, ...]) -> frozenset[Evidence]:
    return frozenset(figure.evidence for figure in figures)


def _dma(times: Clockwork, instruction: str) -> tuple[Figure, ...]:
    moved = (
        times.trigger,
        times.generation,
        times.generation_per_partition,
        times.addressed_generation,
        times.dma_lead,
        times.dma_read,
        times.dma_tail,
        times.dma_minimum,
        times.descriptor,
        times.bandwidth,
        times.long_rate,
        times.element_write,
    )
    does = PURPOSES.get(instruction)
    if does is Purpose.TRANSPOSE:
        return (*moved, times.transpose_share)
    if does in INDIRECT:
        return (*moved, times.indirect_generation, times.indirect_per_partition)
    return moved


def _tensor(times: Clockwork) -> tuple[Figure, ...]:
    return (
        times.clocks[Engine.TENSOR],
        times.row_share,
        times.row_overhead,
        times.row_overhead_fp32,
        times.partial_slowdown,
        times.drain,
        *times.load_weights.values(),
        *times.weights_interval.values(),
        times.turned_interval,
        times.throttle_window,
        times.throttle_slowdown,
    )
