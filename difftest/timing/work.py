"""How much an instruction has to do: what its row's cycles are multiplied by.

That is N, the elements a partition of its largest operand, but for the instructions whose
documented cost (ISA) counts something else.
"""

from __future__ import annotations

from collections.abc import Callable

from difftest.simulator.trace import Event
from difftest.timing.costs import elements, free_elements

GPSIMD_CORE_PARTITIONS = 16
"""Partitions that one core of the GpSimd Engine serves (ISA)."""
GATHER_CYCLES = 28
"""Cycles of local_gather for each index (ISA), besides ``GATHER_STEP`` for each element."""
GATHER_STEP = 4
"""ISA's ``t``, a constant that AWS may change."""


def work(event: Event) -> float:
    """What the cycles of the event's row are for, each time."""
    counted = _WORK.get(event.opcode)
    return counted(event) if counted else free_elements(event)


def _topk(event: Event) -> float:
    """4 n + K cycles. The trace has no n: taken is all that 16 partitions of the source hold."""
    n = GPSIMD_CORE_PARTITIONS * elements(event.reads[0])
    return 4 * n + elements(event.writes[0])


def _local_gather(event: Event) -> float:
    """Indices times elements for each, times ISA's C.

    ISA divides by C, which grows as fewer elements are taken for an index; but it also says that
    more of them make a gather faster. So C is taken as cycles, not as a rate. Elements for an
    index: the least power of two with which the indices fill the result.
    """
    gathered, index = event.writes[0], event.reads[1]
    indices = GPSIMD_CORE_PARTITIONS * elements(index)
    width = 1
    while width * indices < elements(gathered):
        width *= 2
    step = GATHER_STEP * width
    cycles = (GATHER_CYCLES + step) / step / min(4 / gathered.dtype.itemsize, width)
    return elements(gathered) * cycles


def _gather(event: Event) -> float:
    """Elements of the result: what lies between them in the source costs nothing."""
    return elements(event.writes[0])


_WORK: dict[str, Callable[[Event], float]] = {
    "topk": _topk,
    "local_gather": _local_gather,
    "gather_flattened": _gather,
}
