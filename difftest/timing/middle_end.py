"""The middle end of the classic compiler: loops distributed, small instructions merged.

Profiles of classic kernels (TRACE23) show four changes to a kernel that does not skip these passes:

- A copy from PSUM to SBUF is dropped if only engines that read PSUM themselves read it.
- A tile and a column are combined by ``tensor_scalar``. A column that is added to the argument of
  an activation function becomes its bias.
- An ``affine_range`` runs statement by statement over its iterations, as many of them at a time as
  PSUM and SBUF have room for.
- Instructions of one statement on at most 512 elements a partition become one instruction. Results
  of transposes share a PSUM bank for it; a sum keeps its own. DMAs of one statement between the
  same two memories become one DMA of at most 512 KiB.

No instruction passes another that it depends on. docs/contributing/middle-end.md has the evidence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import accumulate, groupby
from typing import NamedTuple

from difftest.analysis.dependences import Dependences
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    EventKind,
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
    iterations: list[list[Item]]
    """The sequence of each iteration."""


Item = int | LoopRun
"""The place of an event in the program, or a loop."""


def optimized(events: list[Event], machine: Machine) -> list[Group]:
    """Return the instructions that the middle end makes of a kernel's events, in their order.

    Parameters
    ----------
    events : the events in program order, within the tiles that the compiler gave them.
    """
    events = _by_columns(events)
    for is_candidate, rule in (
        (_leaves_psum, _read_from_psum),
        (_adds_column, _take_bias),
    ):
        events = _simplified(events, is_candidate, rule)
    groups = [
        group
        for statement in _Distribution(events, machine).statements()
        for group in _merged(statement, events, machine)
    ]
    ordered = _in_order_of_dependences(groups, events)
    return _packed([tuple(events[place] for place in group) for group in ordered])


# -- copies and biases -----------------------------------------------------------------------------


def _by_columns(events: list[Event]) -> list[Event]:
    """Return the events with the combinations of a tile and a column as ``tensor_scalar``."""
    kinds: dict[EventKind, EventKind] = {}
    result = []
    for event in events:
        kind = event.kind
        if kind.purpose is Purpose.COMBINE and _has_column(event):
            scaled = kind._replace(opcode="tensor_scalar", purpose=Purpose.SCALE)
            event = replace(event, kind=kinds.setdefault(kind, scaled))
        result.append(event)
    return result


def _has_column(event: Event) -> bool:
    """Return whether the second of two operands has one element a partition, unlike the first."""
    if len(event.reads) != 2:
        return False
    data, column = event.reads
    return column.elements == column.partitions < data.elements


Piece = tuple[object, ...]
"""A tensor, and the pattern of some of its elements."""
Rule = Callable[[Event, list[Event]], list[Event] | None]
"""Returns the readers of an event's result without the event; None if they need it."""


def _simplified(
    events: list[Event], is_candidate: Callable[[Event], bool], rule: Rule
) -> list[Event]:
    """Remove the events that a rule makes unnecessary.

    ``is_candidate`` decides from an event alone if the rule must look at its readers.
    """
    candidates = [place for place, event in enumerate(events) if is_candidate(event)]
    if not candidates:
        return events
    readers = _Readers(events)
    changed: dict[int, Event] = {}
    dropped: set[int] = set()
    for place in candidates:
        event = events[place]
        places = readers.of(place, event)
        users = rule(event, [changed.get(at, events[at]) for at in places])
        if users:
            dropped.add(place)
            changed.update(zip(places, users, strict=True))
    return [
        changed.get(place, event)
        for place, event in enumerate(events)
        if place not in dropped
    ]


class _Readers:
    """The places of the events that read each result."""

    def __init__(self, events: list[Event]) -> None:
        self._writers: defaultdict[Piece, list[int]] = defaultdict(list)
        self._readers: defaultdict[Piece, list[int]] = defaultdict(list)
        self._last: dict[int, int] = {}
        for place, event in enumerate(events):
            for region in event.writes:
                self._writers[_piece(region)].append(place)
                self._last[region.allocation.id] = place
            for region in event.reads:
                self._readers[_piece(region)].append(place)
        pieces = {*self._readers, *self._writers}
        self._mixed = {piece[0] for piece in pieces if len(self._writers[piece]) != 1}
        """Tensors with a part that is not written once, or not read as it was written."""

    def of(self, place: int, event: Event) -> list[int]:
        """Return the readers of an event's result; none if its operand is written again later."""
        if not event.writes or not event.reads:
            return []
        source = event.reads[0].allocation.id
        target = _piece(event.writes[0])
        if target[0] in self._mixed or self._last.get(source, -1) > place:
            return []
        return self._readers[target]


def _piece(region: Region) -> Piece:
    return region.allocation.id, region.pattern, region.view


def _leaves_psum(copy: Event) -> bool:
    """Return whether an engine copies a tile from PSUM to SBUF as it is."""
    if copy.purpose is not Purpose.COPY or copy.engine is Engine.DMA:
        return False
    if not copy.reads or not copy.writes:
        return False
    source = copy.reads[0]
    target = copy.writes[0]
    spaces = source.allocation.space, target.allocation.space
    same = source.dtype == target.dtype and source.shape == target.shape
    return spaces == (Space.PSUM, Space.SBUF) and same


def _read_from_psum(copy: Event, readers: list[Event]) -> list[Event] | None:
    """Return the readers of a copy from PSUM to SBUF as readers of PSUM, if they can read it."""
    if not readers or not all(map(_can_read_psum, readers)):
        return None
    source = copy.reads[0]
    return [_reading(reader, copy.writes[0], source) for reader in readers]


def _can_read_psum(event: Event) -> bool:
    """Return whether an instruction may read one more operand in PSUM."""
    if event.engine in (Engine.DMA, Engine.TENSOR, Engine.GPSIMD):
        return False
    return all(region.allocation.space is not Space.PSUM for region in event.reads)


def _reading(event: Event, instead_of: Region, source: Region) -> Event:
    """Return the event with one operand read from another place."""
    piece = _piece(instead_of)
    reads = [
        source._replace(role=region.role) if _piece(region) == piece else region
        for region in event.reads
    ]
    return replace(event, reads=tuple(reads))


def _adds_column(event: Event) -> bool:
    """Return whether an event adds a column to a tile, or subtracts it."""
    if event.purpose is not Purpose.SCALE:
        return False
    return event.attributes.op in ("add", "subtract") and _has_column(event)


def _take_bias(addition: Event, readers: list[Event]) -> list[Event] | None:
    """Return the activation that alone reads a sum with a column, with the column as its bias."""
    if [reader.purpose for reader in readers] != [Purpose.FUNCTION]:
        return None
    function = readers[0]
    if len(function.reads) != 1:
        return None
    data, column = addition.reads
    moved = _reading(function, addition.writes[0], data)
    return [replace(moved, reads=(*moved.reads, column._replace(role="bias")))]


# -- distribution ----------------------------------------------------------------------------------


class _Distribution:
    """The events of a kernel, statement by statement."""

    def __init__(self, events: list[Event], machine: Machine) -> None:
        self._events = events
        self._machine = machine
        self._first: dict[int, int] = {}
        """Tensor -> the place of its first use, in order."""
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

    def statements(self) -> Iterator[list[int]]:
        """Yield the places of the events of each statement that run in a row."""
        for item in self._sequence(range(len(self._events)), 0):
            yield from self._statements_of(item)

    def _statements_of(self, item: Item) -> Iterator[list[int]]:
        """Yield the statements of an event or a loop; several iterations share one if they fit."""
        if isinstance(item, int):
            yield [item]
            return
        iterations = item.iterations
        count = 1
        if item.kind is LoopKind.AFFINE and len(set(map(self._form, iterations))) == 1:
            count = self._fitting(iterations)
        for first in range(0, len(iterations), count):
            for statement in zip(*iterations[first : first + count], strict=True):
                places = [place for place in statement if isinstance(place, int)]
                if places:
                    yield places
                    continue
                for inner in statement:
                    yield from self._statements_of(inner)

    def _sequence(self, places: Iterable[int], depth: int) -> Iterator[Item]:
        """Yield events as places and loops, from a depth of loops on."""

        def loop_of(place: int) -> int:
            loops = self._events[place].loops
            return loops[depth].loop.id if len(loops) > depth else -1

        def number_of(place: int) -> int:
            return self._events[place].loops[depth].number

        for loop, run in groupby(places, loop_of):
            if loop < 0:
                yield from run
                continue
            iterations = [list(iteration) for _, iteration in groupby(run, number_of)]
            kind = self._events[iterations[0][0]].loops[depth].loop.kind
            yield LoopRun(
                kind, [list(self._sequence(t, depth + 1)) for t in iterations]
            )

    def _form(self, iteration: list[Item]) -> tuple[object, ...]:
        """Return what iterations with the same statements have in common."""
        forms: list[object] = []
        for item in iteration:
            if isinstance(item, int):
                event = self._events[item]
                forms.append((event.opcode, event.stack, event.program))
            else:
                forms.append(tuple(map(self._form, item.iterations)))
        return tuple(forms)

    def _fitting(self, iterations: list[list[Item]]) -> int:
        """Return how many iterations have room at once for the tiles that only they use.

        PSUM has to hold the live tiles of one statement, SBUF all tiles.
        """
        places = list(_places(iterations[0]))
        own: dict[Space, list[int]] = {Space.SBUF: [], Space.PSUM: []}
        tensors = list(self._first)
        begin = bisect_left(tensors, places[0], key=self._first.__getitem__)
        end = bisect_right(tensors, places[-1], key=self._first.__getitem__)
        for tensor in tensors[begin:end]:
            space = self._tensors[tensor].space
            if self._last[tensor] <= places[-1] and space in own:
                own[space].append(tensor)
        sbuf = sum(self._tensors[tensor].partition_bytes for tensor in own[Space.SBUF])
        psum = max(self._psum_of([item], own[Space.PSUM]) for item in iterations[0])
        rooms = (
            self._machine.sbuf_usable_bytes // max(1, sbuf),
            self._machine.psum_partition_bytes // max(1, psum),
        )
        return max(1, min(len(iterations), *rooms))

    def _psum_of(self, statement: list[Item], tiles: list[int]) -> int:
        """Return the bytes of each partition of PSUM that are live in a statement."""
        places = list(_places(statement))
        bank = self._machine.psum_bank_bytes
        shared = banks = 0
        for tile in tiles:
            if self._first[tile] > places[-1] or self._last[tile] < places[0]:
                continue
            size = self._tensors[tile].partition_bytes
            if tile in self._sums:
                banks += -(-size // bank)
            else:
                shared += size
        return (banks + -(-shared // bank)) * bank


def _places(items: Iterable[Item]) -> Iterator[int]:
    for item in items:
        if isinstance(item, int):
            yield item
            continue
        for iteration in item.iterations:
            yield from _places(iteration)


# -- merging ---------------------------------------------------------------------------------------


def _merged(
    statement: list[int], events: list[Event], machine: Machine
) -> Iterator[list[int]]:
    """Yield the events of a statement that become one instruction each."""
    if len(statement) == 1:
        yield statement
        return
    first = events[statement[0]]
    moves = first.engine is Engine.DMA and first.purpose is Purpose.COPY
    if not (moves or _is_mergeable(first)):
        yield from ([place] for place in statement)
        return
    limit = MERGED_BYTES if moves else machine.psum_fmax
    size = _bytes_of if moves else free_elements
    for _, run in groupby(statement, lambda place: _shared_tensors(events[place])):
        yield from _within(limit, [(place, size(events[place])) for place in run])


def _within(limit: int, sizes: list[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield consecutive places whose sizes add up to the limit at most."""
    group: list[int] = []
    total = 0
    for place, size in sizes:
        if group and total + size > limit:
            yield group
            group = []
            total = 0
        group.append(place)
        total += size
    yield group


def _bytes_of(event: Event) -> int:
    region = event.writes[0]
    return region.elements * region.dtype.itemsize


def _is_mergeable(event: Event) -> bool:
    """Return whether one instruction can do an event's work for several tiles.

    It cannot if it reads an operand of its own for each tile, as a column of scales is.
    """
    if event.engine in (Engine.DMA, Engine.TENSOR) or len(event.writes) != 1:
        return False
    return len({region.elements for region in event.reads}) == 1


def _shared_tensors(event: Event) -> tuple[int, ...]:
    """Return the tensors that merged events share.

    For DMAs those in HBM; for readers of PSUM the result, because sums of several results have
    banks of their own.
    """
    if event.engine is Engine.DMA:
        regions = event.writes + event.reads
        return tuple(r.allocation.id for r in regions if r.allocation.space.is_hbm)
    if event.reads[0].allocation.space is Space.PSUM:
        return (event.writes[0].allocation.id,)
    return ()


def _packed(groups: list[Group]) -> list[Group]:
    """Return the groups with the PSUM tiles that one of them reads side by side in one tile."""
    packed = list(filter(None, map(_psum_tiles, groups)))
    if not packed:
        return groups
    parts: dict[int, tuple[Allocation, int]] = {}
    first = 1 + max(map(_largest_id, groups))
    for number, tiles in enumerate(packed, first):
        starts = [0, *accumulate(tile.shape[1] for tile in tiles)]
        whole = replace(tiles[0], id=number, shape=(tiles[0].shape[0], starts[-1]))
        for tile, start in zip(tiles, starts, strict=False):
            parts[tile.id] = whole, start
    return [tuple(_placed(event, parts) for event in group) for group in groups]


def _largest_id(group: Group) -> int:
    regions = [region for event in group for region in event.writes + event.reads]
    return max((region.allocation.id for region in regions), default=0)


def _psum_tiles(group: Group) -> list[Allocation]:
    """Return the PSUM tiles that a merged instruction reads; none if it has other operands."""
    if len(group) == 1:
        return []
    tiles = [event.reads[0].allocation for event in group if event.reads]
    return tiles if len(tiles) > 1 and all(map(_is_plain_psum_tile, tiles)) else []


def _is_plain_psum_tile(tile: Allocation) -> bool:
    """Return whether a tile is a matrix in PSUM that the compiler places."""
    if tile.space is not Space.PSUM or tile.viewed or tile.address is not None:
        return False
    return len(tile.shape) == 2 and tile.partition_axis == 0


def _placed(event: Event, parts: dict[int, tuple[Allocation, int]]) -> Event:
    """Return an event with its regions within the wider tiles that their tiles are parts of."""
    regions = event.writes + event.reads
    if all(region.allocation.id not in parts for region in regions):
        return event
    moved = tuple(_in_wider_tile(region, parts) for region in regions)
    count = len(event.writes)
    return replace(event, writes=moved[:count], reads=moved[count:])


def _in_wider_tile(region: Region, parts: dict[int, tuple[Allocation, int]]) -> Region:
    """Return a region in the wider tile that contains its tile."""
    if region.allocation.id not in parts:
        return region
    whole, start = parts[region.allocation.id]
    width = whole.partition_step
    row, column = divmod(region.offset, region.allocation.partition_step)
    strides = list(region.strides)
    if region.partition_axis is not None:
        strides[region.partition_axis] = width
    offset = row * width + start + column
    return region._replace(allocation=whole, offset=offset, strides=tuple(strides))


# -- order -----------------------------------------------------------------------------------------


def _in_order_of_dependences(
    groups: list[list[int]], events: list[Event]
) -> list[list[int]]:
    """Return the groups in their order, each after those that it depends on.

    Where groups would wait for each other, the events keep the order of the program.
    """
    places = [place for group in groups for place in group]
    if places == list(range(len(events))):  # no event depends on a later one
        return groups
    count = len(groups)
    sorter = TopologicalSorter(_needed(groups, events))
    try:
        sorter.prepare()
    except CycleError:
        return [[place] for place in range(len(events))]
    ready: list[tuple[int, int]] = []
    ordered: list[list[int]] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            # joins first: what waits for one may precede later groups
            heappush(ready, (number if number < count else -1, number))
        number = heappop(ready)[1]
        if number < count:
            ordered.append(groups[number])
        sorter.done(number)
    return ordered


def _needed(groups: list[list[int]], events: list[Event]) -> dict[int, set[int]]:
    """Return group -> the groups that it depends on; joins have the numbers after the groups."""
    count = len(groups)
    group_of = {place: number for number, group in enumerate(groups) for place in group}
    dependences = Dependences()
    needed: dict[int, set[int]] = {number: set() for number in range(count)}

    def wait(number: int, places: Iterable[int]) -> None:
        nodes = {group_of[place] if place >= 0 else count + ~place for place in places}
        needed.setdefault(number, set()).update(nodes - {number})

    for place, event in enumerate(events):
        data, order = dependences.of(place, event.reads, event.writes)
        wait(group_of[place], data | order)
    for join, members in enumerate(dependences.joins):
        wait(count + join, members)
    return needed
