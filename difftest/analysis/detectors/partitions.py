"""Operands that begin at a partition from which the engines do not reach so far."""

from __future__ import annotations

from difftest.analysis.finding import ERROR, WARNING, Finding, Found, Hazard, once
from difftest.analysis.footprint import footprint
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Region, Trace

START = Hazard("partition-start", ERROR, "an operand begins where an engine does not reach so far")

_COMPUTE = frozenset({Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.UNKNOWN})


@once
def partitions(trace: Trace, machine: Machine) -> Found:
    """Operands of compute instructions that begin in a quadrant and reach into too many others.

    An engine reads 128 partitions from 0 on, 64 from 64 on, and 32 from 32 or 96 on.
    """
    step = machine.start_partition_step
    for event in trace.events:
        for region in (*event.reads, *event.writes) if event.engine in _COMPUTE else ():
            tensor = region.allocation
            if region.partitions <= step or not (region.offset or tensor.address):
                continue
            first = 0 if tensor.space.is_hbm else footprint(region).first
            reach = _reach(first, step)
            if 0 < reach < region.partitions:
                yield _finding(trace, event, region, first, reach)


def _reach(first: int, step: int) -> int:
    """How many partitions an operand may have that begins at ``first``; 0 for any.

    ``step`` is the size of a quadrant: from the third one on there are two, from an odd one one. Of
    what begins inside one nothing is known, so that it passes.
    """
    quadrant = first // step
    return 0 if first % step or not quadrant else step * (quadrant & -quadrant)


def _finding(trace: Trace, event: Event, region: Region, first: int, reach: int) -> Finding:
    return START.found(
        f"{event.opcode} takes {region.partitions} partitions of {region.allocation} from "
        f"partition {first} on",
        "an operand of an engine begins at partition 0; with 64 partitions or fewer at 64 too, "
        f"with 32 or fewer at 32 and 96 too: from {first} on it has {reach} at most",
        f"split it into instructions of {reach} partitions, or move it to partition 0 by a DMA, "
        "which begins anywhere",
        event,
        severity=ERROR if trace.dialect == "nki" else WARNING,
    )
