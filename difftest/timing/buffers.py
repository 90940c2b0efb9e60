"""SBUF and PSUM as the compiler assigns them: each tile has its own place while there is room.

Places are assigned in program order, so an instruction never waits for a later one. The place of a
tensor is free after its last use. PSUM is assigned in whole banks (TRACE) while there are enough.

If the tensors that are live at one time exceed SBUF, the compiler spills the longest unused
tensors to HBM. The cost of spilling is not modelled: the schedule assumes room for these tensors,
and the prediction names them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import prod

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Space

Uses = Iterable[tuple[tuple[Allocation, ...], tuple[Allocation, ...]]]
"""The on-chip tensors that each instruction is the first and the last to touch."""


class Memory:
    """An on-chip memory: its free bytes, and the waiting tensors in program order."""

    __slots__ = ("free", "sizes", "unit", "waiting")

    def __init__(self, capacity: int, unit: int) -> None:
        self.unit = unit
        self.free = capacity
        self.sizes: dict[int, int] = {}
        """On-chip allocation -> its bytes in each partition."""
        self.waiting: deque[Allocation] = deque()

    def copy(self) -> Memory:
        """Return a memory that is as full, with the same tensors waiting."""
        other = Memory(self.free, self.unit)
        other.sizes = self.sizes
        other.waiting = self.waiting.copy()
        return other

    def _whole_units(self, allocation: Allocation, size: int) -> int:
        """Return a tensor's ``size`` in each partition; each of its blocks takes whole units."""
        unit = self.unit
        axis = allocation.partition_axis
        blocks = prod(allocation.shape[:axis]) if axis else 1
        return -(-size // (blocks * unit)) * unit * blocks

    def grant(self) -> list[Allocation]:
        """Assign places to the next tensors that fit, and return these tensors."""
        granted = []
        waiting = self.waiting
        sizes = self.sizes
        while waiting and (size := sizes[waiting[0].id]) <= self.free:
            self.free -= size
            granted.append(waiting.popleft())
        return granted

    def enter(self, allocation: Allocation) -> int:
        """Queue a tensor in program order of first use, and return the bytes that it takes."""
        size = allocation.partition_bytes
        if self.unit > 1:
            size = self._whole_units(allocation, size)
        self.sizes[allocation.id] = size
        self.waiting.append(allocation)
        return size

    def release(self, allocation: Allocation) -> list[Allocation]:
        """Free the place of a tensor, and return the tensors that get a place now."""
        self.free += self.sizes[allocation.id]
        return self.grant()


class Buffers(dict[Space, Memory]):
    """The on-chip memories of a core, with all tensors in their queues."""

    def __init__(self, machine: Machine, uses: Uses) -> None:
        sbuf = Memory(machine.sbuf_usable_bytes, 1)
        psum = Memory(machine.psum_partition_bytes, machine.psum_bank_bytes)
        super().__init__({Space.SBUF: sbuf, Space.PSUM: psum})
        peaks = self._enter(uses)
        self.spilled = max(0, peaks[Space.SBUF] - sbuf.free)
        """Excess of the tensors that are live at one time over SBUF, bytes in each partition."""
        if self.spilled:
            sbuf.free = 2 * peaks[Space.SBUF]
        if peaks[Space.PSUM] > psum.free:
            self[Space.PSUM] = Memory(2 * psum.free, 1)
            for allocation in psum.waiting:
                self[Space.PSUM].enter(allocation)

    def _enter(self, uses: Uses) -> dict[Space, int]:
        """Queue all tensors, and return the most bytes that are live at once in each memory."""
        live = dict.fromkeys(self, 0)
        peaks = dict.fromkeys(self, 0)
        for opens, closes in uses:
            for allocation in opens:
                space = allocation.space
                live[space] += self[space].enter(allocation)
                peaks[space] = max(peaks[space], live[space])
            for allocation in closes:
                live[allocation.space] -= self[allocation.space].sizes.get(
                    allocation.id, 0
                )
        return peaks
