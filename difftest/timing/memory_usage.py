"""How full SBUF and PSUM are over time, and what fills them at the peak."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from difftest.simulator.trace import Allocation, Space
from difftest.timing.schedule import Schedule

Resident = tuple[Allocation, float, float]
"""A tensor, and from when to when it is there, in microseconds."""


class Step(NamedTuple):
    """From ``time`` on, ``bytes`` of each partition are taken."""

    time: float
    """Microseconds from the start of the kernel's own part."""
    bytes: int


class Holder(NamedTuple):
    """Tensors that one source line created, at the peak."""

    name: str
    line: str
    tensors: int
    bytes: int
    """Of each partition, together."""


@dataclass(frozen=True)
class MemoryUsage:
    """One memory over time."""

    capacity: int
    """Bytes of a partition that tensors can have."""
    steps: list[Step]
    peak: int
    holders: list[Holder]
    """What is there at the peak, largest first."""


def memory_usage(schedule: Schedule, space: Space) -> MemoryUsage:
    """SBUF or PSUM of the core that fills it most; bytes a partition, as tensors ask for them."""
    machine, allocations = schedule.program.machine, schedule.program.allocations
    resident: list[list[Resident]] = [[] for _ in range(schedule.program.cores)]
    for number, (start, end) in schedule.residence.items():
        if allocations[number].space is space:
            core = schedule.program.instructions[schedule.program.wiring.opener[number]].core
            resident[core].append((allocations[number], start / 1e3, end / 1e3))
    full = machine.sbuf_usable_bytes if space is Space.SBUF else machine.psum_partition_bytes
    return max((_usage(full, each) for each in resident), key=lambda usage: usage.peak)


def _usage(full: int, resident: list[Resident]) -> MemoryUsage:
    """The memory of one core."""
    changes = Counter({0.0: 0})
    for allocation, start, end in resident:
        changes.update({start: allocation.partition_bytes})
        changes.subtract({end: allocation.partition_bytes})
    times = sorted(changes)
    steps = list(map(Step, times, itertools.accumulate(changes[time] for time in times)))
    top = max(steps, key=lambda step: step.bytes)
    there = [tensor for tensor, start, end in resident if start <= top.time < end]
    return MemoryUsage(full, steps, top.bytes, _holders(there))


def _holders(allocations: list[Allocation]) -> list[Holder]:
    groups: dict[tuple[str, str], list[Allocation]] = {}
    for allocation in allocations:
        where = str(allocation.location) if allocation.location else "(added by the compiler)"
        groups.setdefault((allocation.name or "tile", where), []).append(allocation)
    holders = [
        Holder(name, line, len(group), sum(tensor.partition_bytes for tensor in group))
        for (name, line), group in groups.items()
    ]
    return sorted(holders, key=lambda holder: (-holder.bytes, holder.line))
