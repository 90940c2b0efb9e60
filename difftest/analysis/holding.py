"""When a tensor holds something that is read later: the parts of its live range.

A tensor that is read, and written anew as a whole before it is read again, holds nothing between.
A compiler that sees that can use its place for others meanwhile; one that gives each tensor one
place for all its time cannot.
"""

from __future__ import annotations

from collections.abc import Iterable

from difftest.simulator.trace import Allocation, Region, Trace

Range = tuple[int, int]
"""Numbers of the events with which it begins and ends."""


def held_ranges(trace: Trace, allocations: Iterable[Allocation]) -> dict[int, list[Range]]:
    """By the id of each tensor, the parts of its live range, in order."""
    held: dict[int, list[Range]] = {one.id: [] for one in allocations}
    for event in trace.events:
        number = event.number
        read = {region.allocation.id for region in event.reads}
        for tensor in read & held.keys():
            _go_on(held[tensor], number)
        for region in event.writes:
            tensor = region.allocation.id
            if tensor not in held:
                continue
            if tensor not in read and _is_all(region):
                held[tensor].append((number, number))
            else:
                _go_on(held[tensor], number)
    return held


def _go_on(ranges: list[Range], number: int) -> None:
    first = ranges.pop()[0] if ranges else number
    ranges.append((first, number))


def _is_all(region: Region) -> bool:
    """Whether a write leaves nothing of what the tensor held."""
    tensor = region.allocation
    size = region.elements * region.dtype.itemsize
    return region.whole and size == tensor.partitions * tensor.partition_bytes
