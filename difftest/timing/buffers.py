"""SBUF and PSUM as the compiler hands them out: each tile its own place until none is left.

Places are given in program order, so an instruction never waits for one that comes after it; what
has been used for the last time makes room. PSUM is given by whole banks (TRACE) as long as there
are enough of them.

If the tensors that are live at one time exceed SBUF, the compiler spills those that rest longest to
HBM and back. What that costs is not modelled: they are scheduled as if they had room, and named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
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
        self.waiting: deque[Allocation] = deque()
        self._sizes: dict[int, int] = {}

    def size(self, allocation: Allocation) -> int:
        """Bytes a partition that the tensor takes; of a tensor with blocks each has whole units."""
        known = self._sizes.get(allocation.id)
        if known is None:
            known = self._sizes[allocation.id] = self._measure(allocation)
        return known

    def _measure(self, allocation: Allocation) -> int:
        blocks = prod(allocation.shape[: allocation.partition_axis])
        return -(-allocation.partition_bytes // (blocks * self.unit)) * self.unit * blocks

    def grant(self) -> list[Allocation]:
        """The next tensors, as many as fit."""
        granted = []
        while self.waiting and self.size(self.waiting[0]) <= self.free:
            allocation = self.waiting.popleft()
            self.free -= self.size(allocation)
            granted.append(allocation)
        return granted

    def release(self, allocation: Allocation) -> list[Allocation]:
        """Take back the place of a tensor; the tensors that have one now."""
        self.free += self.size(allocation)
        return self.grant()


class Buffers:
    """The on-chip memories of a core."""

    def __init__(self, machine: Machine, instructions: Sequence[LoweredInstruction]) -> None:
        sbuf = Memory(machine.sbuf_usable_bytes, 1)
        peak = live_peak(instructions, Space.SBUF, sbuf)
        self.spilled = max(0, peak - sbuf.capacity)
        """Bytes a partition by which the tensors live at one time exceed SBUF."""
        if self.spilled:
            sbuf = Memory(2 * peak, 1)
        psum = Memory(machine.psum_partition_bytes, machine.psum_bank_bytes)
        if live_peak(instructions, Space.PSUM, psum) > psum.capacity:
            psum = Memory(2 * machine.psum_partition_bytes, 1)
        self.memories = {Space.SBUF: sbuf, Space.PSUM: psum}

    def enter(self, allocation: Allocation) -> None:
        """Let a tensor wait for its place; in program order of first use."""
        self.memories[allocation.space].waiting.append(allocation)

    def grant(self) -> list[Allocation]:
        """All tensors that can have a place now."""
        return [one for memory in self.memories.values() for one in memory.grant()]

    def release(self, allocation: Allocation) -> list[Allocation]:
        """Free a tensor's place; the tensors that have one now."""
        return self.memories[allocation.space].release(allocation)


def live_peak(instructions: Iterable[LoweredInstruction], space: Space, memory: Memory) -> int:
    """The most bytes a partition of ``space`` that are live at once in program order."""
    live = peak = 0
    for one in instructions:
        for allocation in one.opens:
            if allocation.space is space:
                live += memory.size(allocation)
                peak = max(peak, live)
        for allocation in one.closes:
            if allocation.space is space:
                live -= memory.size(allocation)
    return peak
