"""SBUF and PSUM as the compiler hands them out: each tile its own place until none is left.

Places are given in program order, so an instruction never waits for one that comes after it; what
has been used for the last time makes room. PSUM is given by whole banks (TRACE).
"""

from __future__ import annotations

from collections import deque

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Space


class Memory:
    """One on-chip memory: what is free, and who waits, in program order."""

    def __init__(self, capacity: int, unit: int) -> None:
        self.capacity = capacity
        self.unit = unit
        self.free = capacity
        self.waiting: deque[Allocation] = deque()

    def size(self, allocation: Allocation) -> int:
        """Bytes a partition that the tensor takes."""
        return -(-allocation.partition_bytes // self.unit) * self.unit

    def grant(self) -> list[Allocation]:
        """The next tensors, as many as fit."""
        granted = []
        while self.waiting and self.size(self.waiting[0]) <= self.free:
            granted.append(self._take())
        return granted

    def force(self) -> Allocation:
        """The next tensor although it does not fit: the compiler would spill another."""
        return self._take()

    def _take(self) -> Allocation:
        allocation = self.waiting.popleft()
        self.free -= self.size(allocation)
        return allocation

    def release(self, allocation: Allocation) -> None:
        """Take back the place of a tensor."""
        self.free += self.size(allocation)


class Buffers:
    """The on-chip memories of a core."""

    def __init__(self, machine: Machine) -> None:
        self.memories = {
            Space.SBUF: Memory(machine.sbuf_usable_bytes, 1),
            Space.PSUM: Memory(machine.psum_partition_bytes, machine.psum_bank_bytes),
        }

    def enter(self, allocation: Allocation) -> None:
        """Let a tensor wait for its place; in program order of first use."""
        self.memories[allocation.space].waiting.append(allocation)

    def grant(self) -> list[Allocation]:
        """All tensors that can have a place now."""
        return [one for memory in self.memories.values() for one in memory.grant()]

    def release(self, allocation: Allocation) -> list[Allocation]:
        """Free a tensor's place; the tensors that have one now."""
        memory = self.memories[allocation.space]
        memory.release(allocation)
        return memory.grant()
