"""The middle end of the classic compiler: loops distributed, small instructions merged.

Profiles of classic kernels (TRACE23) show four changes to a kernel that does not skip these passes:

- A copy from PSUM to SBUF is dropped if only engines that read PSUM themselves read it.
- A column that is added to the argument of an activation function becomes its bias.
- An ``affine_range`` runs statement by statement over its iterations, as many of them at a time as
  PSUM and SBUF have room for.
- Instructions of one statement on at most 512 elements a partition become one instruction. Results
  of transposes share a PSUM bank for it; a sum keeps its own. DMAs of one statement between the
  same two memories become one DMA of at most 512 KiB.

No instruction passes another that it depends on. docs/contributing/middle-end.md has the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from difftest.analysis.dependences import Dependences
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    Iteration,
    LoopKind,
    Purpose,
    Region,
    Space,
)
from difftest.timing.cost_table import free_elements

MERGED_BYTES = 1 << 19
"""The most bytes of a merged DMA (TRACE23)."""
Group = tuple[Event, ...]
"""The events that one instruction does."""


class LoopRun(NamedTuple):
    """A run of a loop in a sequence of events."""

    kind: LoopKind
    turns: list[list[Item]]
    """The sequence of each iteration."""


Item = int | LoopRun
"""The place of an event in the program, or a loop."""
Signature = tuple[object, ...]


def optimized(events: list[Event], machine: Machine) -> list[Group]:
    """Return the instructions that the middle end makes of a kernel's events, in their order.

    Parameters
    ----------
    events : the events in program order, within the tiles that the compiler gave them.
    """
    events = _without_copies(events)
    events = _with_biases(events)
    columns = _Distribution(events, machine).columns()
    groups = [group for column in columns for group in _merged(column, events, machine)]
    ordered = _in_order_of_dependences(groups, events)
    return _packed([tuple(events[place] for place in group) for group in ordered])


# -- copies and biases -----------------------------------------------------------------------------


class _Uses:
    """The places of the events that read and write each tensor."""

    def __init__(self, events: list[Event]) -> None:
        self.readers: dict[int, list[int]] = {}
        self.writers: dict[int, list[int]] = {}
        for place, event in enumerate(events):
            for region in event.reads:
                self.readers.setdefault(region.allocation.id, []).append(place)
            for region in event.writes:
                self.writers.setdefault(region.allocation.id, []).append(place)


def _without_copies(events: list[Event]) -> list[Event]:
    """Return the events without copies whose readers can read PSUM themselves."""
    uses = _Uses(events)
    changed: dict[int, Event] = {}
    dropped: set[int] = set()
    for place, event in enumerate(events):
        if not _copies_from_psum(event):
            continue
        readers = _exact_readers(event.writes[0], place, events, uses)
        later = uses.writers.get(event.reads[0].allocation.id, [place])[-1] > place
        if not readers or later:
            continue
        if all(_can_read_psum(changed.get(at, events[at])) for at in readers):
            dropped.add(place)
            for at in readers:
                reader = changed.get(at, events[at])
                changed[at] = _reading(reader, event.writes[0], event.reads[0])
    return _kept(events, changed, dropped)


def _copies_from_psum(event: Event) -> bool:
    if event.purpose is not Purpose.COPY or event.engine is Engine.DMA:
        return False
    source = event.reads[0]
    target = event.writes[0]
    spaces = source.allocation.space, target.allocation.space
    return (
        spaces == (Space.PSUM, Space.SBUF)
        and source.dtype == target.dtype
        and source.shape == target.shape
        and target.whole
    )


def _can_read_psum(event: Event) -> bool:
    """Return whether an instruction may read one more operand in PSUM."""
    if event.engine in (Engine.DMA, Engine.TENSOR, Engine.GPSIMD):
        return False
    return all(region.allocation.space is not Space.PSUM for region in event.reads)


def _exact_readers(
    written: Region, writer: int, events: list[Event], uses: _Uses
) -> list[int]:
    """Return the readers of a written region; none if one of them reads other elements too."""
    tensor = written.allocation.id
    readers = [at for at in uses.readers.get(tensor, ()) if at > writer]
    exact = [
        at
        for at in readers
        if any(_is_same(region, written) for region in events[at].reads)
    ]
    parts = [events[at].writes for at in uses.writers[tensor]]
    sole = sum(_is_same(region, written) for part in parts for region in part) == 1
    others = {
        region.pattern
        for at in readers
        for region in events[at].reads
        if region.allocation.id == tensor and not _is_same(region, written)
    }
    elsewhere = {region.pattern for part in parts for region in part}
    return exact if sole and others <= elsewhere else []


def _is_same(region: Region, other: Region) -> bool:
    same_tensor = region.allocation.id == other.allocation.id
    return same_tensor and region[1:4] == other[1:4] and region.view == other.view


def _reading(event: Event, instead_of: Region, source: Region) -> Event:
    """Return the event with one operand read from another place."""
    reads = tuple(
        source._replace(role=region.role) if _is_same(region, instead_of) else region
        for region in event.reads
    )
    return replace(event, reads=reads)


def _with_biases(events: list[Event]) -> list[Event]:
    """Return the events with additions of a column folded into activation functions."""
    uses = _Uses(events)
    changed: dict[int, Event] = {}
    dropped: set[int] = set()
    for place, event in enumerate(events):
        if not _adds_column(event):
            continue
        target = event.writes[0]
        readers = _exact_readers(target, place, events, uses)
        if len(readers) != 1:
            continue
        function = changed.get(readers[0], events[readers[0]])
        if function.purpose is not Purpose.FUNCTION or len(function.reads) != 1:
            continue
        data, column = event.reads
        moved = _reading(function, target, data)
        bias = column._replace(role="bias")
        changed[readers[0]] = replace(moved, reads=(*moved.reads, bias))
        dropped.add(place)
    return _kept(events, changed, dropped)


def _adds_column(event: Event) -> bool:
    """Return whether an event adds a number for each partition to a tile, and nothing else."""
    return (
        event.purpose is Purpose.SCALE
        and event.attributes.op in ("add", "subtract")
        and len(event.reads) == 2
        and event.reads[1].elements == event.reads[1].partitions
    )


def _kept(
    events: list[Event], changed: dict[int, Event], dropped: set[int]
) -> list[Event]:
    return [
        changed.get(place, event)
        for place, event in enumerate(events)
        if place not in dropped
    ]


# -- distribution ----------------------------------------------------------------------------------


class _Distribution:
    """The events of a kernel, statement by statement."""

    def __init__(self, events: list[Event], machine: Machine) -> None:
        self._events = events
        self._bank = machine.psum_bank_bytes
        self._room = {
            Space.SBUF: machine.sbuf_usable_bytes,
            Space.PSUM: machine.psum_partition_bytes,
        }
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._tensors: dict[int, Allocation] = {}
        self._sums: set[int] = set()
        for place, event in enumerate(events):
            for region in event.writes + event.reads:
                tensor = region.allocation
                self._tensors[tensor.id] = tensor
                self._first.setdefault(tensor.id, place)
                self._last[tensor.id] = place
            if event.purpose is Purpose.PRODUCT:
                self._sums.add(event.writes[0].allocation.id)

    def columns(self) -> Iterator[list[int]]:
        """Yield the places of the events of each statement, as many as run in a row."""
        for item in self._sequence(range(len(self._events)), 0):
            yield from self._columns_of(item)

    def _columns_of(self, item: Item) -> Iterator[list[int]]:
        if isinstance(item, int):
            yield [item]
            return
        count = len(item.turns)
        if item.kind is not LoopKind.AFFINE or not self._are_alike(item.turns):
            count = 1
        else:
            count = min(count, self._fitting(item.turns))
        for first in range(0, len(item.turns), count):
            for statement in zip(*item.turns[first : first + count], strict=True):
                if isinstance(statement[0], int):
                    yield [place for place in statement if isinstance(place, int)]
                else:
                    for inner in statement:
                        yield from self._columns_of(inner)

    def _sequence(self, places: Sequence[int], depth: int) -> list[Item]:
        """Return events as a sequence of places and loops, from a depth of loops on."""
        items: list[Item] = []
        run: LoopRun | None = None
        iteration: Iteration | None = None
        turns: list[list[int]] = []

        def close() -> None:
            if run is not None:
                run.turns.extend(self._sequence(turn, depth + 1) for turn in turns)

        for place in places:
            loops = self._events[place].loops
            if len(loops) <= depth:
                close()
                run = iteration = None
                items.append(place)
                continue
            if iteration is None or loops[depth].loop.id != iteration.loop.id:
                close()
                run = LoopRun(loops[depth].loop.kind, [])
                turns = []
                items.append(run)
                iteration = None
            if iteration is None or loops[depth].number != iteration.number:
                iteration = loops[depth]
                turns.append([])
            turns[-1].append(place)
        close()
        return items

    def _are_alike(self, turns: list[list[Item]]) -> bool:
        """Return whether all iterations have the same statements."""
        first = tuple(map(self._signature, turns[0]))
        return all(tuple(map(self._signature, turn)) == first for turn in turns[1:])

    def _signature(self, item: Item) -> Signature:
        if isinstance(item, int):
            event = self._events[item]
            return event.opcode, event.stack, event.program
        return len(item.turns), *map(self._signature, item.turns[0])

    def _fitting(self, turns: list[list[Item]]) -> int:
        """Return how many iterations have room at once for the tiles that only they use.

        PSUM has to hold what is live in one statement, SBUF all tiles.
        """
        places = list(_places(turns[0]))
        low = places[0]
        high = places[-1]
        own = [
            tensor
            for tensor, first in self._first.items()
            if low <= first and self._last[tensor] <= high
        ]
        sbuf = sum(
            self._tensors[tensor].partition_bytes
            for tensor in own
            if self._tensors[tensor].space is Space.SBUF
        )
        psum = max(self._live_in_psum(turns[0], own), default=0)
        counts = [len(turns)]
        if sbuf:
            counts.append(self._room[Space.SBUF] // sbuf)
        if psum:
            counts.append(self._room[Space.PSUM] // psum)
        return max(1, min(counts))

    def _live_in_psum(self, turn: list[Item], own: list[int]) -> Iterator[int]:
        """Yield the bytes of each partition of PSUM that each statement of an iteration uses."""
        tiles = [t for t in own if self._tensors[t].space is Space.PSUM]
        for item in turn:
            places = list(_places([item]))
            live = [
                tile
                for tile in tiles
                if self._first[tile] <= places[-1] and self._last[tile] >= places[0]
            ]
            shared = sum(
                self._tensors[tile].partition_bytes
                for tile in live
                if tile not in self._sums
            )
            sums = sum(
                self._banks(self._tensors[tile].partition_bytes)
                for tile in live
                if tile in self._sums
            )
            yield self._banks(shared) + sums

    def _banks(self, size: int) -> int:
        """Return bytes rounded up to whole banks."""
        return -(-size // self._bank) * self._bank


def _places(items: Iterable[Item]) -> Iterator[int]:
    for item in items:
        if isinstance(item, int):
            yield item
        else:
            for turn in item.turns:
                yield from _places(turn)


# -- merging ---------------------------------------------------------------------------------------


def _merged(
    column: list[int], events: list[Event], machine: Machine
) -> Iterator[list[int]]:
    """Yield the events of a statement that become one instruction each."""
    size: Callable[[Event], int] | None = None
    limit = 0
    if len(column) > 1:
        first = events[column[0]]
        if first.engine is Engine.DMA and first.purpose is Purpose.COPY:
            size, limit = _bytes_of, MERGED_BYTES
        elif _is_mergeable(first):
            size, limit = free_elements, machine.psum_fmax
    if size is None:
        yield from ([place] for place in column)
        return
    group: list[int] = []
    total = 0
    for place in column:
        more = size(events[place])
        if group and (
            total + more > limit or not _join(events[group[-1]], events[place])
        ):
            yield group
            group = []
            total = 0
        group.append(place)
        total += more
    yield group


def _bytes_of(event: Event) -> int:
    region = event.writes[0]
    return region.elements * region.dtype.itemsize


def _is_mergeable(event: Event) -> bool:
    """Return whether one instruction can do an event's work for several tiles.

    It cannot if it reads an operand of its own for each tile, as a column of scales is.
    """
    if event.engine in (Engine.DMA, Engine.TENSOR) or not event.writes:
        return False
    counts = {region.elements for region in event.reads}
    return len(event.writes) == 1 and len(counts) == 1


def _join(event: Event, following: Event) -> bool:
    """Return whether two events of a statement have operands that one instruction can have."""
    if event.engine is not Engine.DMA:
        return _place_of(event) == _place_of(following)
    pairs = zip(
        event.writes + event.reads, following.writes + following.reads, strict=True
    )
    return all(
        one.allocation.space is other.allocation.space
        and (
            not one.allocation.space.is_hbm or one.allocation.id == other.allocation.id
        )
        for one, other in pairs
    )


def _place_of(event: Event) -> int | None:
    """Return the tensor that merged events have in common: results in PSUM go to one tile."""
    if event.reads[0].allocation.space is Space.PSUM:
        return event.writes[0].allocation.id
    return None


def _packed(groups: list[Group]) -> list[Group]:
    """Return the groups with the PSUM tiles that one of them reads side by side in one tile."""
    places: dict[int, tuple[Allocation, int]] = {}
    tensors = [r.allocation.id for g in groups for e in g for r in e.reads + e.writes]
    number = max(tensors, default=0)
    for group in groups:
        tiles = [event.reads[0].allocation for event in group if event.reads]
        if len(tiles) < 2 or not all(map(_is_plain_psum, tiles)):
            continue
        widths = [tile.shape[1] for tile in tiles]
        number += 1
        shape = (tiles[0].shape[0], sum(widths))
        whole = replace(tiles[0], id=number, shape=shape)
        for tile, first in zip(tiles, _starts(widths), strict=True):
            places[tile.id] = whole, first
    if not places:
        return groups
    return [tuple(_placed(event, places) for event in group) for group in groups]


def _starts(widths: list[int]) -> Iterator[int]:
    start = 0
    for width in widths:
        yield start
        start += width


def _is_plain_psum(tile: Allocation) -> bool:
    plain = len(tile.shape) == 2 and tile.partition_axis == 0 and not tile.viewed
    return plain and tile.space is Space.PSUM and tile.address is None


def _placed(event: Event, places: dict[int, tuple[Allocation, int]]) -> Event:
    regions = event.writes + event.reads
    if all(region.allocation.id not in places for region in regions):
        return event
    moved = [_moved(region, places) for region in regions]
    count = len(event.writes)
    return replace(event, writes=tuple(moved[:count]), reads=tuple(moved[count:]))


def _moved(region: Region, places: dict[int, tuple[Allocation, int]]) -> Region:
    """Return a region of a tile within the wider tile that the tile is a part of."""
    if region.allocation.id not in places:
        return region
    whole, first = places[region.allocation.id]
    step = region.allocation.partition_step
    width = whole.partition_step
    row, column = divmod(region.offset, step)
    strides = tuple(
        width if axis == region.partition_axis else stride
        for axis, stride in enumerate(region.strides)
    )
    offset = row * width + first + column
    return region._replace(allocation=whole, offset=offset, strides=strides)


# -- order -----------------------------------------------------------------------------------------


def _in_order_of_dependences(
    groups: list[list[int]], events: list[Event]
) -> list[list[int]]:
    """Return the groups in their order, each after those that it depends on.

    Where groups would wait for each other, the events keep the order of the program.
    """
    dependences = Dependences(by_tensor=False)
    needed = [
        set().union(*dependences.of(place, event.reads, event.writes))
        for place, event in enumerate(events)
    ]
    joins = dependences.joins
    count = len(groups)
    group_of = {place: number for number, group in enumerate(groups) for place in group}

    def node(place: int) -> int:
        return group_of[place] if place >= 0 else count + ~place

    before: list[set[int]] = [
        {node(place) for member in group for place in needed[member]} - {number}
        for number, group in enumerate(groups)
    ]
    before += [{node(place) for place in members} for members in joins]
    followers: list[list[int]] = [[] for _ in before]
    for number, earlier in enumerate(before):
        for other in earlier:
            followers[other].append(number)
    missing = list(map(len, before))
    ready = [number for number, left in enumerate(missing) if not left]
    heapify(ready)
    ordered: list[list[int]] = []
    while ready:
        number = heappop(ready)
        ordered.append(groups[number])
        done = [number]
        while done:
            for follower in followers[done.pop()]:
                missing[follower] -= 1
                if missing[follower]:
                    continue
                if follower < count:
                    heappush(ready, follower)
                else:
                    done.append(follower)
    if len(ordered) < count:
        return [[place] for place in range(len(events))]
    return ordered
