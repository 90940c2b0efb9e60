"""Capacity checks: a tensor against its memory or address, and all live tensors against PSUM.

Exact live ranges are compared only if all tensors together exceed PSUM. A live range extends from
the first write to the last use, as in the compiler's allocator. Tensors that the kernel placed
count once for each byte that they occupy together. Exceeding PSUM is an error, because an
accumulation has no other memory.

The check is necessary, not sufficient: it sums bytes. Placement, and the capacity of SBUF, are
analyses of the trace (:mod:`difftest.analysis.placement`). A compiler may spill from SBUF to HBM.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from difftest.simulator.errors import LimitError
from difftest.simulator.machine import Machine
from difftest.simulator.misuses import ADDRESS_OF_BLOCKS
from difftest.simulator.strictness import report_undefined
from difftest.simulator.trace import Allocation, Area, Space


def partition_bytes(space: Space, machine: Machine) -> int:
    """Return the bytes of a partition of SBUF or PSUM that a kernel's tensors can use."""
    if space is Space.PSUM:
        return machine.psum_partition_bytes
    return machine.sbuf_usable_bytes


def check_partitions(partitions: int, role: object, machine: Machine) -> None:
    """Raise :class:`LimitError` if a tensor has more partitions than the memory."""
    if partitions > machine.partitions:
        raise LimitError(
            f"the partition size of a tile is at most {machine.partitions}",
            happened=f"a tile has {partitions} partitions",
            received=f"{role}: {partitions} partitions",
            limit=f"{machine.partitions} partitions ({machine.name}, nl.tile_size.pmax)",
            remedy=f"loop over the first dimension in tiles of at most {machine.partitions}, "
            "and put the rest into the free dimension",
        )


def check_tensor_size(
    allocation: Allocation, block_axes: int, machine: Machine
) -> None:
    """Raise :class:`LimitError` if one tensor alone exceeds its memory's partitions."""
    if allocation.partitions > machine.partitions:
        check_partitions(allocation.partitions, allocation, machine)
    limit = partition_bytes(allocation.space, machine)
    received = allocation.partition_bytes // math.prod(allocation.shape[:block_axes])
    if received > limit:
        error = LimitError(
            f"a tile fits the bytes that {allocation.space.value} has in each partition",
            happened=f"a tile has {received} bytes a partition in {allocation.space.value}",
            received=f"{allocation}: {received} bytes a partition",
            limit=f"{limit} bytes a partition ({machine.name})",
            remedy="use a smaller free dimension and loop over the rest",
        )
        if allocation.space is not Space.PSUM:
            raise error
        report_undefined(error)


def check_address(allocation: Allocation, machine: Machine) -> None:
    """Raise unless an on-chip tensor fits its memory at the address that the kernel gave it.

    Raises
    ------
    LimitError : the tensor extends beyond the last partition, or beyond the last byte of one.
    ShapeError : the tensor has block dimensions, so it has no single address.
    """
    if allocation.partition_axis:
        raise ADDRESS_OF_BLOCKS(f"{allocation}")
    area = allocation.area
    space = allocation.space
    size = partition_bytes(space, machine)
    if area is not None and not Area(0, machine.partitions, 0, size).covers(area):
        raise LimitError(
            f"a tensor with an address fits {space.value}",
            happened=f"a tensor with an address leaves {space.value}",
            received=f"{allocation} at address {allocation.address}: partitions {area.first} "
            f"to {area.last - 1}, bytes {area.low} to {area.high - 1} of each",
            limit=f"partitions 0 to {machine.partitions - 1}, bytes 0 to {size - 1} "
            f"({machine.name})",
            remedy="an address is (first partition, first byte in each partition)",
        )


def occupied_bytes(allocation: Allocation, quadrant: int) -> int:
    """Return the bytes that a tensor occupies, in whole quadrants of ``quadrant`` partitions.

    For a PSUM tensor with block dimensions, return the bytes of one block: the compiler chooses how
    many are live at once. In SBUF all blocks count, because an excess there only costs time.
    """
    rows = -(-allocation.partitions // quadrant) * quadrant
    axis = allocation.partition_axis
    if axis and allocation.space is Space.PSUM:
        return allocation.partition_bytes // math.prod(allocation.shape[:axis]) * rows
    return allocation.partition_bytes * rows


def placed_bytes(allocations: Iterable[Allocation], quadrant: int) -> int:
    """Return the bytes that placed tensors occupy together: whole quadrants, each byte once."""
    return quadrant_bytes(allocations, quadrant) * quadrant


def quadrant_bytes(allocations: Iterable[Allocation], quadrant: int) -> int:
    """Return the bytes of one partition that placed tensors occupy, summed over the quadrants.

    A byte that several tensors share counts once. A quadrant has ``quadrant`` partitions.
    """
    total = 0
    quadrants: dict[int, list[tuple[int, int]]] = {}
    for area in (area for allocation in allocations for area in allocation.areas):
        for number in range(area.first // quadrant, (area.last - 1) // quadrant + 1):
            quadrants.setdefault(number, []).append((area.low, area.high))
    for ranges in quadrants.values():
        reached = 0
        for low, high in sorted(ranges):
            total += max(0, high - max(low, reached))
            reached = max(reached, high)
    return total


def check_psum(machine: Machine, allocations: Sequence[Allocation]) -> None:
    """Compare the tensors that are live at one time with PSUM.

    Raises
    ------
    LimitError : the tensors exceed PSUM.
    """
    quadrant = machine.start_partition_step
    limit = machine.psum_partition_bytes * machine.partitions
    if sum(occupied_bytes(a, quadrant) for a in allocations) <= limit:
        return
    live: dict[int, Allocation] = {}
    total = 0
    placed = False
    for begins, allocation in _begins_and_ends(allocations):
        own = 0 if allocation.areas else occupied_bytes(allocation, quadrant)
        if not begins:
            del live[allocation.id]
            total -= own
            continue
        live[allocation.id] = allocation
        total += own
        placed = placed or bool(allocation.areas)
        needed = total + placed_bytes(live.values(), quadrant) if placed else total
        if needed > limit:
            report_undefined(
                _too_much(machine, needed, allocation, list(live.values()))
            )
            return


def _begins_and_ends(
    allocations: Sequence[Allocation],
) -> Iterator[tuple[bool, Allocation]]:
    """Yield when each tensor that is used begins and ends; at one instruction ends come first."""
    changes = []
    for allocation in allocations:
        if allocation.first >= 0 and not allocation.is_temporary:
            changes.append((allocation.first, True, allocation))
            changes.append((allocation.last + 1, False, allocation))
    for _, begins, allocation in sorted(changes, key=lambda change: change[:2]):
        yield begins, allocation


def _too_much(
    machine: Machine, total: int, last: Allocation, live: list[Allocation]
) -> LimitError:
    """Return the error of live tensors that do not fit PSUM."""
    partitions = machine.partitions
    filled = total // partitions
    sizes = {a.id: occupied_bytes(a, machine.start_partition_step) for a in live}
    largest = sorted(live, key=lambda a: sizes[a.id], reverse=True)[:3]
    return LimitError(
        "the tensors live at one time fit psum",
        happened=f"the live tensors fill {filled} bytes a partition of psum",
        received=f"{filled} bytes a partition in {len(live)} live tensors; "
        f"the largest: {'; '.join(map(str, largest))}",
        limit=f"{machine.psum_partition_bytes} bytes a partition ({machine.name})",
        remedy="use smaller tiles, or finish with one tensor before the next is written",
        location=last.location,
    )
