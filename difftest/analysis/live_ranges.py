"""Live ranges of tensors in parts: when a tensor holds data that is read later.

A tensor that is read, and then completely rewritten before the next read, holds nothing in between.
A compiler that detects this can use the place for other tensors meanwhile. A compiler that assigns
one place to each tensor for its whole life cannot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from difftest.analysis.footprint import footprint
from difftest.simulator.trace import Allocation, Region, Space, Trace

Range = tuple[int, int]
"""Numbers of the first and the last event of the range."""


def live_ranges(
    trace: Trace, allocations: Iterable[Allocation]
) -> dict[int, list[list[Range]]]:
    """Return, by tensor id, the parts of the live range of each of its blocks, in order.

    A tensor has a single block if it has no block dimensions, is in PSUM, or has an address.
    """
    held: dict[int, list[list[Range]]] = {
        tensor.id: [[] for _ in block_allocations(tensor)] for tensor in allocations
    }
    for event in trace.events:
        number = event.number
        read: set[tuple[int, int]] = set()
        for region in event.reads:
            tensor = region.allocation.id
            if tensor in held:
                read.update((tensor, block) for block in _touched(region))
        for tensor, block in read:
            _extend(held[tensor][block], number)
        for region in event.writes:
            tensor = region.allocation.id
            if tensor in held:
                _write(held[tensor], region, number, read)
    return held


def _write(
    blocks: list[list[Range]], region: Region, number: int, read: set[tuple[int, int]]
) -> None:
    """Begin a new range of the blocks that an event replaces, or extend the last one."""
    touched = _touched(region)
    is_replaced = _is_all(region, len(touched))
    for block in touched:
        if is_replaced and (region.allocation.id, block) not in read:
            blocks[block].append((number, number))
        else:
            _extend(blocks[block], number)


def block_allocations(tensor: Allocation) -> range:
    """Return the blocks of a tensor that have live ranges of their own."""
    own = tensor.space is Space.SBUF and not tensor.areas
    return range(math.prod(tensor.shape[: tensor.partition_axis]) if own else 1)


def _touched(region: Region) -> range:
    """Return the blocks that a region touches."""
    tensor = region.allocation
    blocks = len(block_allocations(region.allocation))
    if blocks == 1:
        return range(1)
    mark = footprint(region)
    each = tensor.partition_bytes // blocks
    each //= 1 if tensor.viewed else tensor.dtype.itemsize
    return range(mark.low // each, (mark.high - 1) // each + 1)


def _extend(ranges: list[Range], number: int) -> None:
    """Extend the last range to an event; begin one if there is none."""
    first = ranges.pop()[0] if ranges else number
    ranges.append((first, number))


def _is_all(region: Region, touched: int) -> bool:
    """Return whether a write replaces all contents of the blocks that it touches."""
    tensor = region.allocation
    size = region.elements * region.dtype.itemsize * len(block_allocations(tensor))
    return region.whole and size == tensor.partitions * tensor.partition_bytes * touched
