"""Operands that begin at a partition from which the engines do not reach so far."""

from __future__ import annotations

from collections.abc import Iterator

from difftest.analysis.finding import Finding, Severity, finding_of
from difftest.analysis.footprint import footprint
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Location, Region, Trace

START = "partition-start"

_COMPUTE = frozenset({Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.UNKNOWN})


def partitions(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Operands of compute instructions that begin in a quadrant and reach into too many others.

    An engine reads 128 partitions from 0 on, 64 from 64 on, and 32 from 32 or 96 on.
    """
    step = machine.start_partition_step
    said: set[Location | None] = set()
    for event in trace.events:
        if event.engine not in _COMPUTE or event.location in said:
            continue
        for region in (*event.reads, *event.writes):
            tensor = region.allocation
            if region.partitions <= step or not (region.offset or tensor.address):
                continue
            first = 0 if tensor.space.is_hbm else footprint(region).first
            reach = _reach(first, step)
            if 0 < reach < region.partitions:
                said.add(event.location)
                yield _finding(trace, event, region, first, reach)
                break


def _reach(first: int, step: int) -> int:
    """How many partitions an operand may have that begins at ``first``; 0 for any.

    ``step`` is the size of a quadrant: from the third one on there are two, from an odd one one. Of
    what begins inside one nothing is known, so that it passes.
    """
    quadrant = first // step
    return 0 if first % step or not quadrant else step * (quadrant & -quadrant)


def _finding(trace: Trace, event: Event, region: Region, first: int, reach: int) -> Finding:
    return finding_of(
        START,
        Severity.ERROR if trace.dialect == "nki" else Severity.WARNING,
        f"{event.opcode} takes {region.partitions} partitions of {region.allocation} from "
        f"partition {first} on",
        "an operand of an engine begins at partition 0; with 64 partitions or fewer at 64 too, "
        f"with 32 or fewer at 32 and 96 too: from {first} on it has {reach} at most",
        f"split it into instructions of {reach} partitions, or move it to partition 0 by a DMA, "
        "which begins anywhere",
        event,
    )
