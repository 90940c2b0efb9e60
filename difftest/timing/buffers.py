"""SBUF and PSUM as the compiler hands them out: each tile its own place until none is left.

Places are given in program order, so an instruction never waits for one that comes after it; what
has been used for the last time makes room. PSUM is given by whole banks (TRACE) as long as there
are enough of them.

If the tensors that are live at one time exceed SBUF, the compiler spills those that rest longest to
HBM and back. What that costs is not modelled: they are scheduled as if they had room, and named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Space
from difftest.timing.program import LoweredInstruction


class Memory:
    """One on-chip memory: what is free, and who waits, in program order."""

    def __init__(self, capacity: int, unit: int) -> None:
        self.capacity = capacity
        self.unit = unit
        self.free = capacity
        self.waiting: deque[tuple[Allocation, int]] = deque()
        """With the bytes a partition that each takes."""

    def size(self, allocation: Allocation) -> int:
        """Bytes a partition that the tensor takes; of a tensor with blocks each has whole units."""
        unit, size = self.unit, allocation.partition_bytes
        if unit == 1:
            return size
        axis = allocation.partition_axis
        blocks = prod(allocation.shape[:axis]) if axis else 1
        return -(-size // (blocks * unit)) * unit * blocks

    def grant(self) -> list[Allocation]:
        """The next tensors, as many as fit."""
        granted = []
        while self.waiting and self.waiting[0][1] <= self.free:
            allocation, size = self.waiting.popleft()
            self.free -= size
            granted.append(allocation)
        return granted

    def enter(self, allocation: Allocation) -> None:
        """Let a tensor wait for its place; in program order of first use."""
        self.waiting.append((allocation, self.size(allocation)))

    def release(self, allocation: Allocation) -> list[Allocation]:
        """Take back the place of a tensor; the tensors that have one now."""
        self.free += self.size(allocation)
        return self.grant()


class Buffers(dict[Space, Memory]):
    """The on-chip memories of a core."""

    def __init__(self, machine: Machine, instructions: Sequence[LoweredInstruction]) -> None:
        sbuf = Memory(machine.sbuf_usable_bytes, 1)
        psum = Memory(machine.psum_partition_bytes, machine.psum_bank_bytes)
        peaks = live_peaks(instructions, {Space.SBUF: sbuf, Space.PSUM: psum})
        self.spilled = max(0, peaks[Space.SBUF] - sbuf.capacity)
        """Bytes a partition by which the tensors live at one time exceed SBUF."""
        if self.spilled:
            sbuf = Memory(2 * peaks[Space.SBUF], 1)
        if peaks[Space.PSUM] > psum.capacity:
            psum = Memory(2 * machine.psum_partition_bytes, 1)
        super().__init__({Space.SBUF: sbuf, Space.PSUM: psum})


def live_peaks(
    instructions: Iterable[LoweredInstruction], memories: Mapping[Space, Memory]
) -> dict[Space, int]:
    """The most bytes a partition of each memory that are live at once in program order."""
    live = dict.fromkeys(memories, 0)
    peaks = dict.fromkeys(memories, 0)
    for one in instructions:
        for allocation in one.opens:
            space = allocation.space
            live[space] += memories[space].size(allocation)
            if live[space] > peaks[space]:
                peaks[space] = live[space]
        for allocation in one.closes:
            live[allocation.space] -= memories[allocation.space].size(allocation)
    return peaks
