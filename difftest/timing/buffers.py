"""SBUF and PSUM as the compiler hands them out: each tile its own place until none is left.

Places are given in program order, so an instruction never waits for one that comes after it; what
has been used for the last time makes room. PSUM is given by whole banks (TRACE) as long as there
are enough of them.

If the tensors that are live at one time exceed SBUF, the compiler spills those that rest longest to
HBM and back. What that costs is not modelled: they are scheduled as if they had room, and named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import prod

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Space

Uses = Iterable[tuple[tuple[Allocation, ...], tuple[Allocation, ...]]]
"""By instruction, the on-chip tensors that it is the first and the last to touch."""


class Memory:
    """One on-chip memory: what is free, and who waits, in program order."""

    __slots__ = ("free", "sizes", "unit", "waiting")

    def __init__(self, capacity: int, unit: int) -> None:
        self.unit = unit
        self.free = capacity
        self.sizes: dict[int, int] = {}
        """On-chip allocation -> the bytes a partition that it takes."""
        self.waiting: deque[Allocation] = deque()

    def copy(self) -> Memory:
        """One as full as this one is, with the same tensors waiting."""
        other = Memory(self.free, self.unit)
        other.sizes = self.sizes
        other.waiting = self.waiting.copy()
        return other

    def size(self, allocation: Allocation) -> int:
        """Bytes a partition that the tensor takes; of a tensor with blocks each has whole units."""
        unit = self.unit
        size = allocation.partition_bytes
        if unit == 1:
            return size
        axis = allocation.partition_axis
        blocks = prod(allocation.shape[:axis]) if axis else 1
        return -(-size // (blocks * unit)) * unit * blocks

    def grant(self) -> list[Allocation]:
        """The next tensors, as many as fit."""
        granted = []
        waiting = self.waiting
        sizes = self.sizes
        while waiting and (size := sizes[waiting[0].id]) <= self.free:
            self.free -= size
            granted.append(waiting.popleft())
        return granted

    def enter(self, allocation: Allocation) -> int:
        """Let a tensor wait for its place, in program order of first use; the bytes it takes."""
        size = self.sizes[allocation.id] = self.size(allocation)
        self.waiting.append(allocation)
        return size

    def release(self, allocation: Allocation) -> list[Allocation]:
        """Take back the place of a tensor; the tensors that have one now."""
        self.free += self.sizes[allocation.id]
        return self.grant()


class Buffers(dict[Space, Memory]):
    """The on-chip memories of a core, for whose places all tensors wait."""

    def __init__(self, machine: Machine, uses: Uses) -> None:
        sbuf = Memory(machine.sbuf_usable_bytes, 1)
        psum = Memory(machine.psum_partition_bytes, machine.psum_bank_bytes)
        super().__init__({Space.SBUF: sbuf, Space.PSUM: psum})
        peaks = self._enter(uses)
        self.spilled = max(0, peaks[Space.SBUF] - sbuf.free)
        """Bytes a partition by which the tensors live at one time exceed SBUF."""
        if self.spilled:
            sbuf.free = 2 * peaks[Space.SBUF]
        if peaks[Space.PSUM] > psum.free:
            self[Space.PSUM] = Memory(2 * psum.free, 1)
            for allocation in psum.waiting:
                self[Space.PSUM].enter(allocation)

    def _enter(self, uses: Uses) -> dict[Space, int]:
        """Let all tensors wait; the most bytes that are live at once, closed by whatever core."""
        live = dict.fromkeys(self, 0)
        peaks = dict.fromkeys(self, 0)
        for opens, closes in uses:
            for allocation in opens:
                space = allocation.space
                live[space] += self[space].enter(allocation)
                peaks[space] = max(peaks[space], live[space])
            for allocation in closes:
                live[allocation.space] -= self[allocation.space].sizes.get(allocation.id, 0)
        return peaks
