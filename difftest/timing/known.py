"""How the cost of an instruction is known: the classes of evidence behind its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
        return frozenset(figure.evidence for figure in _figures(times, _of_dma(instruction)))
    if engine is Engine.TENSOR:
        figures = times.clocks[engine], *_figures(times, TENSOR)
        return frozenset(figure.evidence for figure in figures)
    rows = cost_table(machine).rows.values()
    return frozenset(
        row.evidence for row in rows if (row.instruction, row.engine) == (instruction, engine)
    )


MOVED = (
    *("trigger", "generation", "generation_per_partition", "addressed_generation"),
    *("dma_lead", "dma_read", "dma_tail", "dma_minimum", "generated_lead", "generated_read"),
    *("descriptor", "bandwidth", "long_rate", "packet", "packet_rate", "element_write"),
)
"""The fields of Clockwork that every DMA's time is made of; other kinds have more."""
TURNED = ("transpose_share",)
NAMED = ("indirect_generation", "indirect_per_partition")
TENSOR = (
    *("row_share", "row_overhead", "row_overhead_fp32", "partial_slowdown", "drain"),
    *("load_weights", "weights_interval", "turned_interval"),
    *("throttle_window", "throttle_slowdown"),
)
"""Those of the Tensor Engine, beside its clock."""


def _figures(times: Clockwork, names: Iterable[str]) -> Iterator[Figure]:
    for name in names:
        value = getattr(times, name)
        yield from value.values() if isinstance(value, dict) else (value,)


def _of_dma(instruction: str) -> tuple[str, ...]:
    does = PURPOSES.get(instruction)
    return MOVED + (TURNED if does is Purpose.TRANSPOSE else NAMED if does in INDIRECT else ())
