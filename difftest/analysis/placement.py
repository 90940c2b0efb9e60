"""Placement of a kernel's tensors in SBUF and PSUM, by their live ranges.

A tensor lives from its first write to its last use and has one place for that time. It starts at
partition 0, 32, 64 or 96; a tensor of more than 32 partitions at 0 or 64, and one of more than 64
at 0 (AWS ``nki/compiler/sbuf.py`` at tag v2.26.0). So narrow tensors share the same bytes of
different quadrants. Before NeuronCore-v4, a PSUM tensor of at most a bank is inside one bank.
Tensors with an address are at that address.

There are two figures. ``needed`` is the lower bound of every placement: the bytes that are live
together. ``reached`` is the size of a placement that was found, lowest place first. Between the two
figures a compiler may or may not find a placement. So only ``needed`` proves that a kernel does not
fit.
"""

from __future__ import annotations

import itertools
import math
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from difftest.analysis.finding import group_by
from difftest.analysis.live_ranges import block_allocations, live_ranges
from difftest.simulator.capacity import partition_bytes, quadrant_bytes
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Event, Space, Trace

Numbers = NDArray[np.integer[Any]]

MEMORIES = (Space.SBUF, Space.PSUM)
"""The memories where tensors are placed."""
_NEEDED: WeakKeyDictionary[Trace, dict[Machine, dict[Space, int]]] = WeakKeyDictionary()
EASY = 3
"""A memory of three times the peak always has room for all live ranges (Gergov, "Algorithms for
compile-time memory optimization", SODA 1999). Then no layout is necessary."""


class LiveRange(NamedTuple):
    """A tensor while it is live."""

    allocation: Allocation
    first: int
    """Number of the event that writes it first."""
    last: int
    """Number of the event that uses it last."""
    size: int
    """Bytes of each partition."""
    quadrants: int
    """Groups of partitions that it takes, 1 to 4."""


class PlacedRange(NamedTuple):
    """The place of a tensor: bytes ``low`` to ``high`` (excluded), and its first quadrant."""

    live: LiveRange
    low: int
    high: int
    quadrant: int


class Peak(NamedTuple):
    """The moment with the most live bytes."""

    event: int
    """The event's number."""
    bytes: int
    """Bytes of each partition, with narrow tensors packed next to each other."""
    live: tuple[LiveRange, ...]
    """The tensors that are live then, the largest first."""
    history: tuple[tuple[int, int], ...] = ()
    """The live bytes, as above, after each event that changes them: (event, bytes)."""


class Placement(NamedTuple):
    """The placement of one program's tensors in one memory."""

    program: tuple[int, ...]
    space: Space
    limit: int
    """Bytes of each partition that a kernel can use."""
    peak: Peak
    lives: tuple[LiveRange, ...]
    """All tensors of the program in this memory."""
    places: tuple[PlacedRange, ...] = ()
    """Empty if few enough bytes are live that there is always room."""
    reached: int = 0
    """Bytes of each partition that the places take; more than ``limit`` if no fitting places were
    found."""

    in_own_banks: int = 0
    """Peak bytes of the PSUM banks without room for a second tensor."""

    @property
    def needed(self) -> int:
        """Return the bytes of each partition that every placement needs."""
        return max(self.peak.bytes, self.in_own_banks)

    @property
    def fits(self) -> bool:
        """Return whether the placement that was found fits the memory."""
        return self.reached <= self.limit


def placements(trace: Trace, machine: Machine) -> Iterator[Placement]:
    """Yield the placement of each program's tensors in each memory that the program uses."""
    for (program, space), allocations in _tensors(trace.allocations, trace).items():
        sizes = _by_block(allocations, trace, machine)
        limit = partition_bytes(space, machine)
        if sizes.surely_fit(limit, _whole_banks(space, machine)):
            yield Placement(program, space, limit, sizes.peak(), sizes.lives())
        else:
            yield _lay_out(sizes, program, space, machine)


def needed_bytes(trace: Trace, machine: Machine) -> dict[Space, int]:
    """Return by memory the bytes of each partition that every placement needs, without a layout.

    The result for a finished trace is cached.
    """
    known = _NEEDED.setdefault(trace, {})
    if machine not in known:
        known[machine] = _peaks(trace, machine)
    return known[machine]


def _peaks(trace: Trace, machine: Machine) -> dict[Space, int]:
    """Return what :func:`needed_bytes` does, without its cache."""
    peaks: dict[Space, int] = {}
    for (_, space), allocations in _tensors(trace.allocations, trace).items():
        sizes = _by_block(allocations, trace, machine)
        most = max(sizes.peak().bytes, sizes.in_own_banks(_own_bank(space, machine)))
        peaks[space] = max(peaks.get(space, 0), most)
    return peaks


def footprint_of(trace: Trace, machine: Machine) -> tuple[int, ...]:
    """Return the needed bytes of each of :data:`MEMORIES`, then the bytes of its largest tensor."""
    together = needed_bytes(trace, machine)
    sizes = [(tensor.space, tensor.partition_bytes) for tensor in trace.allocations]
    largest = (
        max((size for at, size in sizes if at is space), default=0)
        for space in MEMORIES
    )
    return (*(together.get(space, 0) for space in MEMORIES), *largest)


def overfull_placements(trace: Trace, machine: Machine) -> Iterator[Placement]:
    """Yield the placements of memories that may be too small for some layouts."""
    small = _small(trace.allocations, machine)
    allocations = [tensor for tensor in trace.allocations if tensor.space not in small]
    for (program, space), tensors in _tensors(allocations, trace).items():
        sizes = _by_block(tensors, trace, machine)
        if not sizes.surely_fit(
            partition_bytes(space, machine), _whole_banks(space, machine)
        ):
            yield _lay_out(sizes, program, space, machine)


def _small(allocations: Iterable[Allocation], machine: Machine) -> set[Space]:
    """Return the memories that surely have room for all tensors at once, at any live ranges.

    Most kernels then need no live ranges.
    """
    sbuf = banks = 0
    small = {Space.SBUF, Space.PSUM}
    for tensor in allocations:
        space = tensor.space
        if space is Space.SBUF:
            sbuf += tensor.partition_bytes
        elif space is Space.PSUM:
            banks += 1
            if tensor.partition_bytes > machine.psum_bank_bytes:
                small.discard(space)
        else:
            continue
        if tensor.areas:
            small.discard(space)
    if sbuf * EASY > partition_bytes(Space.SBUF, machine):
        small.discard(Space.SBUF)
    if banks * machine.psum_bank_bytes > partition_bytes(Space.PSUM, machine):
        small.discard(Space.PSUM)
    return small


def _tensors(
    allocations: Iterable[Allocation], trace: Trace
) -> dict[tuple[tuple[int, ...], Space], list[Allocation]]:
    """Group the tensors that need memory by program and by memory."""
    owners = _owners(trace.events) if trace.grid else None
    held = (
        tensor
        for tensor in allocations
        if not tensor.space.is_hbm and tensor.first >= 0
    )
    return group_by(
        held, lambda own: (() if owners is None else owners[own.id], own.space)
    )


def split_placement(placement: Placement, trace: Trace, machine: Machine) -> Placement:
    """Return a placement with a place of its own for each part of a tensor's live range.

    See :mod:`difftest.analysis.live_ranges`.
    """
    allocations = list(dict.fromkeys(live.allocation for live in placement.lives))
    held = live_ranges(trace, allocations)
    parts = [
        (owner, part)
        for owner in allocations
        for block in held[owner.id]
        for part in block
    ]
    owners, ranges = zip(*parts, strict=True)
    sizes = _LiveRangeTable(owners, machine, ranges)
    return _lay_out(sizes, placement.program, placement.space, machine)


def _by_block(
    allocations: Sequence[Allocation], trace: Trace, machine: Machine
) -> _LiveRangeTable:
    """Return the sizes of tensors, with a live range of its own for each block."""
    if all(len(block_allocations(tensor)) == 1 for tensor in allocations):
        return _LiveRangeTable(allocations, machine)
    held = live_ranges(
        trace, [tensor for tensor in allocations if len(block_allocations(tensor)) > 1]
    )
    parts: list[tuple[Allocation, tuple[int, int]]] = []
    for tensor in allocations:
        whole = [[(tensor.first, tensor.last)]]
        parts += [
            (tensor, (p[0][0], p[-1][1])) for p in held.get(tensor.id, whole) if p
        ]
    owners, ranges = zip(*parts, strict=True)
    return _LiveRangeTable(owners, machine, ranges)


def _whole_banks(space: Space, machine: Machine) -> int:
    """Return the bytes of the banks that :meth:`surely_fit` rounds up to; 0 for none."""
    if space is Space.PSUM:
        return machine.psum_bank_bytes
    return 0


def _own_bank(space: Space, machine: Machine) -> int:
    """Return the bytes of the banks that a tensor may not cross; 0 if it may."""
    if space is Space.PSUM and machine.nc_version < 4:
        return machine.psum_bank_bytes
    return 0


def _lay_out(
    sizes: _LiveRangeTable, program: tuple[int, ...], space: Space, machine: Machine
) -> Placement:
    """Return the best placement of several orders; stop at one that fits."""
    limit = partition_bytes(space, machine)
    bank = _own_bank(space, machine)
    peak = sizes.peak()
    lives = sizes.lives()
    best: tuple[int, tuple[PlacedRange, ...]] | None = None
    for order in _ORDERS:
        layout = tuple(_lowest_first(sorted(lives, key=order), bank, machine))
        reached = max(spot.high for spot in layout)
        if best is None or reached < best[0]:
            best = reached, layout
        if reached <= limit or peak.bytes > limit:
            break
    assert best is not None
    return Placement(
        program=program,
        space=space,
        limit=limit,
        peak=peak,
        lives=lives,
        places=best[1],
        reached=best[0],
        in_own_banks=sizes.in_own_banks(bank),
    )


_ORDERS: tuple[Callable[[LiveRange], tuple[int, int]], ...] = (
    lambda live: (live.first, -live.size),
    lambda live: (-live.size * live.quadrants, live.first),
    lambda live: (live.first - live.last, -live.size),
)
"""Orders of placement: as tensors begin, the largest first, the longest first."""


class _LiveRangeTable:
    """The sizes and live ranges of a program's tensors in one memory, as arrays."""

    def __init__(
        self,
        allocations: Sequence[Allocation],
        machine: Machine,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.allocations = allocations
        self.step = machine.start_partition_step
        self.quadrants = machine.partitions // self.step
        if ranges is None:
            ranges = [(tensor.first, tensor.last) for tensor in allocations]
        self.ranges = np.array(ranges)
        self.ranges[:, 1] += 1
        self.size = np.array([_size(tensor) for tensor in allocations])
        self.wide = -(
            -np.array([tensor.partitions for tensor in allocations]) // self.step
        )
        self.fixed = [n for n, tensor in enumerate(allocations) if tensor.areas]

    def live(self, number: int) -> LiveRange:
        """Return one live range."""
        first, end = self.ranges[number].tolist()
        size = int(self.size[number])
        quadrants = int(self.wide[number])
        return LiveRange(self.allocations[number], first, end - 1, size, quadrants)

    def lives(self) -> tuple[LiveRange, ...]:
        """Return all live ranges."""
        return tuple(self.live(number) for number in range(len(self.allocations)))

    def peak(self) -> Peak:
        """Return the moment with the most live bytes; tensors at one address count once."""
        sizes = self.size * self.wide
        sizes[self.fixed] = 0
        events, totals = self._load(sizes)
        if self.fixed:
            begins, taken = self._taken_by_fixed()
            places = np.searchsorted(events, begins, side="right") - 1
            events = begins
            totals = taken + np.where(places < 0, 0, totals[places])
        highest = int(totals.argmax())
        when = int(events[highest])
        there = np.flatnonzero((self.ranges[:, 0] <= when) & (when < self.ranges[:, 1]))
        lives = [self.live(int(number)) for number in there]
        lives.sort(key=lambda life: (-life.size * life.quadrants, life.first))
        shared = -(-totals // self.quadrants)
        history = tuple(zip(events.tolist(), shared.tolist(), strict=True))
        return Peak(when, int(shared[highest]), tuple(lives), history)

    def _taken_by_fixed(self) -> tuple[Numbers, Numbers]:
        """Return the events where tensors begin, and the bytes at fixed addresses then."""
        fixed = set(self.fixed)
        active: dict[int, Allocation] = {}
        taken = 0
        changed = False
        begins: list[int] = []
        totals: list[int] = []
        changes = [(int(first), 1, n) for n, (first, _) in enumerate(self.ranges)]
        changes += [(int(end), 0, n) for n, (_, end) in enumerate(self.ranges)]
        for event, start, number in sorted(changes):
            if number in fixed:
                changed = True
                if start:
                    active[number] = self.allocations[number]
                else:
                    del active[number]
            if start:
                if changed:
                    taken = quadrant_bytes(active.values(), self.step)
                    changed = False
                begins.append(event)
                totals.append(taken)
        return np.array(begins), np.array(totals)

    def surely_fit(self, limit: int, bank: int) -> bool:
        """Return whether every layout has room; with a ``bank``, sizes count in whole banks.

        Live ranges that take one bank each need as many banks as are live together.
        """
        if self.fixed:
            return False
        if bank:
            return (
                int(self.size.max()) <= bank
                and self._most(-(-self.size // bank) * bank) <= limit
            )
        return self._most(self.size) * EASY <= limit

    def in_own_banks(self, bank: int) -> int:
        """Return the bytes of the banks that are live together and cannot be shared.

        A tensor needs such a bank if it takes more than half of a bank and of the partitions.
        """
        fills_bank = (2 * self.size > bank) & (self.size <= bank)
        alone = fills_bank & (2 * self.wide > self.quadrants)
        alone[self.fixed] = False
        return self._most(np.where(alone, bank, 0))

    def _most(self, sizes: Numbers) -> int:
        return int(self._load(sizes)[1].max())

    def _load(self, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Return the events in order, and the live bytes after each of them."""
        # ends precede starts
        events = np.concatenate([self.ranges[:, 1], self.ranges[:, 0]])
        changes = np.concatenate([-sizes, sizes])
        order = np.argsort(events, kind="stable")
        return events[order], changes[order].cumsum()


def _owners(events: Iterable[Event]) -> dict[int, tuple[int, ...]]:
    """Return the program of each tensor: the program that writes it first."""
    owners: dict[int, tuple[int, ...]] = {}
    for event in events:
        for region in event.writes:
            owners.setdefault(region.allocation.id, event.program)
    return owners


def _size(allocation: Allocation) -> int:
    """Return the bytes of a partition that a tensor takes.

    For a tensor with block dimensions, one block counts. In SBUF each block has its own live
    range; in PSUM the compiler decides how many blocks are live at once. If the kernel placed
    the blocks, each place counts.
    """
    if allocation.places:
        return sum(area.high - area.low for area in allocation.areas)
    size = allocation.partition_bytes
    if allocation.partition_axis:
        size //= math.prod(allocation.shape[: allocation.partition_axis])
    return size


_Shelf = list[tuple[int, int, int, int]]
"""The assigned places of one quadrant, by their first byte: (low, high, first, last)"""


def _lowest_first(
    lives: Iterable[LiveRange], bank: int, machine: Machine
) -> Iterator[PlacedRange]:
    """Assign to each tensor the lowest place that is free for its whole live range."""
    step = machine.start_partition_step
    shelves: list[_Shelf] = [[] for _ in range(machine.partitions // step)]
    lives = sorted(lives, key=lambda life: not life.allocation.areas)
    forgets = not lives[0].allocation.areas and all(
        life.first <= other.first for life, other in itertools.pairwise(lives)
    )
    for live in lives:
        for spot in _places_of(shelves, live, bank, step):
            entry = (spot.low, spot.high, live.first, live.last)
            for shelf in shelves[spot.quadrant : spot.quadrant + live.quadrants]:
                if forgets:
                    # ranges that ended before this one begins do not conflict any more
                    shelf[:] = [row for row in shelf if row[3] >= live.first]
                insort(shelf, entry)
            yield spot


def _places_of(
    shelves: list[_Shelf], live: LiveRange, bank: int, step: int
) -> list[PlacedRange]:
    """Return the places of a tensor: its own, or the lowest one that is free.

    ``step`` is the number of partitions of a quadrant.
    """
    if live.allocation.areas:
        return [
            PlacedRange(live, area.low, area.high, area.first // step)
            for area in live.allocation.areas
        ]
    quadrants = len(shelves)
    apart = live.quadrants if live.quadrants <= quadrants // 2 else quadrants
    starts = range(0, quadrants, apart)
    low, start = min((_lowest(shelves, live, start, bank), start) for start in starts)
    return [PlacedRange(live, low, low + live.size, start)]


def _lowest(shelves: list[_Shelf], live: LiveRange, start: int, bank: int) -> int:
    """Return the lowest byte where all of a tensor's quadrants are free."""
    taken: list[tuple[int, int]] = []
    for shelf in shelves[start : start + live.quadrants]:
        taken += [
            row[:2] for row in shelf if row[2] <= live.last and live.first <= row[3]
        ]
    if live.quadrants > 1:
        taken.sort()
    low = _in_a_bank(0, live.size, bank)
    for begin, end in taken:
        if begin >= low + live.size:
            break
        if end > low:
            low = _in_a_bank(end, live.size, bank)
    return low


def _in_a_bank(low: int, size: int, bank: int) -> int:
    """Return the first byte from ``low`` where the tensor crosses no bank unless it must."""
    if not bank:
        return low
    room = bank - low % bank
    if size <= room:
        return low
    if size <= bank or room < bank:
        return low + room
    return low
