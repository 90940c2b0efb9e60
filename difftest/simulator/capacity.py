"""Whether a kernel's tensors fit PSUM together: the part of the question that ends a launch.

While the kernel runs, Python's own object lifetimes give an upper bound of what is live. Only if
that bound exceeds PSUM are the exact live ranges (first write to last use, which is what the
compiler's allocator sees) laid side by side. Those that the kernel placed itself count once for
each byte that any of them takes. Beyond PSUM there is nowhere for an accumulation to go: an error.

That is necessary, not sufficient: it sums bytes. Where tensors could lie, and whether they fit
SBUF, beyond which a compiler may spill to HBM, is read off the trace
(:mod:`difftest.analysis.placement`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from difftest.simulator.errors import LimitError
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Space


def occupied_bytes(allocation: Allocation, quadrant: int) -> int:
    """Bytes that a tensor takes of its memory: whole quadrants of so many partitions.

    Of a PSUM tensor with block dimensions one block: how many are live at once is the compiler's
    choice. In SBUF all of them, for there an excess is a matter of speed.
    """
    rows = -(-allocation.partitions // quadrant) * quadrant
    axis = allocation.partition_axis
    if axis and allocation.space is Space.PSUM:
        return allocation.partition_bytes // math.prod(allocation.shape[:axis]) * rows
    return allocation.partition_bytes * rows


def placed_bytes(allocations: Iterable[Allocation], quadrant: int) -> int:
    """Bytes that tensors with addresses take together: whole quadrants, each byte once."""
    total = 0
    quadrants: dict[int, list[tuple[int, int]]] = {}
    for allocation in allocations:
        for area in allocation.areas:
            for number in range(area.first // quadrant, (area.last - 1) // quadrant + 1):
                quadrants.setdefault(number, []).append((area.low, area.high))
    for ranges in quadrants.values():
        reached = 0
        for low, high in sorted(ranges):
            total += max(0, high - max(low, reached)) * quadrant
            reached = max(reached, high)
    return total


class Occupancy:
    """Bytes of PSUM that are live by Python's lifetimes: an upper bound."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.live = 0
        self.peak = 0

    def bytes(self, allocation: Allocation) -> int:
        """What a tensor takes of its memory: see :func:`occupied_bytes`."""
        return occupied_bytes(allocation, self.machine.start_partition_step)

    def _placed(self, allocations: Iterable[Allocation]) -> int:
        return placed_bytes(allocations, self.machine.start_partition_step)

    def add(self, size: int) -> None:
        """Count a tensor of ``size`` bytes that begins to live."""
        self.live += size
        if self.live > self.peak:
            self.peak = self.live

    def remove(self, size: int) -> None:
        """Count a tensor whose data are gone."""
        self.live -= size

    @property
    def limit(self) -> int:
        """Bytes that a kernel's tensors can have."""
        return self.machine.psum_partition_bytes * self.machine.partitions

    def check(self, allocations: Iterable[Allocation]) -> None:
        """Compare the tensors that are live at one time with the memory.

        Raises
        ------
        LimitError : they exceed it.
        """
        if self.peak > self.limit:
            self._check_live_ranges(allocations)

    def _check_live_ranges(self, allocations: Iterable[Allocation]) -> None:
        used = [a for a in allocations if a.first >= 0 and not a.is_temporary]
        changes = [(a.first, 1, a) for a in used] + [(a.last + 1, 0, a) for a in used]
        live: dict[int, Allocation] = {}
        total = 0
        placed = False
        limit = self.limit
        for _, begins, allocation in sorted(changes, key=lambda change: change[:2]):
            own = 0 if allocation.areas else self.bytes(allocation)
            if not begins:
                del live[allocation.id]
                total -= own
                continue
            live[allocation.id] = allocation
            total += own
            placed = placed or bool(allocation.areas)
            needed = total + self._placed(live.values()) if placed else total
            if needed > limit:
                raise self._error(needed, limit, allocation, list(live.values()))

    def _error(
        self, total: int, limit: int, last: Allocation, live: list[Allocation]
    ) -> LimitError:
        partitions = self.machine.partitions
        filled = total // partitions
        largest = sorted(live, key=self.bytes, reverse=True)[:3]
        return LimitError(
            "the tensors live at one time fit psum",
            happened=f"the live tensors fill {filled} bytes a partition of psum",
            received=f"{filled} bytes a partition in {len(live)} live tensors; "
            f"the largest: {'; '.join(map(str, largest))}",
            limit=f"{limit // partitions} bytes a partition ({self.machine.name})",
            remedy="use smaller tiles, or finish with one tensor before the next is written",
            location=last.location,
        )
