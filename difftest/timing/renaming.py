"""Tiles that a kernel makes once and fills again in each iteration: the compiler renames them.

A classic kernel is unrolled, and only a tile's name joins the contents of one iteration to those
of the next. A tile is dead if no element of it is read before it is written again. Later writes
then go to another tile, which has its own place while memory has room. So no write waits for the
last reader of the earlier contents.

This compiler behaviour is inferred. Convolutions with such tiles take as long on a device as
convolutions that make a tile in each iteration: three to ten times less than in sequence. Tensors
with an address stay where the kernel put them. In the current dialect all tensors stay: published
probes show that its compiler lets the users of one tensor wait for each other
(docs/contributing/compiler.md).

The compiler also omits some copies, loads and transposes that repeat earlier ones. A copy repeats
an earlier copy under three conditions. Both read the same elements of a tensor, with no write in
between. Each is the only write to its destination. The destinations are two tiles of one form.

Readers of the second tile then read the first, which has to stay that long. So the number of
omitted copies depends on the room in SBUF, beyond the tensors that are live at one time. If the
copy of a transpose's result repeats the copy of an earlier result, the transpose is omitted too.
The compiler's rule for repeats is inferred (:mod:`difftest.timing.compiler`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from difftest.analysis.footprint import Dims, Footprint, footprint
from difftest.analysis.placement import needed_bytes
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    Iteration,
    Purpose,
    Region,
    Space,
    Trace,
)
from difftest.timing.compiler import (
    LIKELY,
    TODAYS,
    Compiler,
    RepeatRule,
    cores_of,
)

Array = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Use = tuple[int, Region, bool]
"""(position of the event in the trace, the region, whether the event writes it)."""


def refills(trace: Trace, compiler: Compiler = LIKELY) -> dict[int, list[int]]:
    """Return, by position of an event, the tensors that become other tiles at that event."""
    places: dict[int, list[int]] = {}
    if not compiler.renames or trace.dialect == TODAYS:
        return places
    written = {tile.id for tile in trace.allocations if _may_be_renamed(tile)}
    if written:
        for allocation, uses in _filled_again(trace.events, written):
            for position in _deaths(uses):
                places.setdefault(position, []).append(allocation)
    return places


def _may_be_renamed(tile: Allocation) -> bool:
    """Return whether a tile is written again and has no place of the kernel's own."""
    placed = tile.address is not None or tile.places
    return tile.writes > 1 and not (tile.space.is_hbm or tile.viewed or placed)


class Renaming:
    """The tile of each region, event by event in program order.

    Parameters
    ----------
    begins : the result of :func:`refills` for ``trace``.
    """

    def __init__(self, trace: Trace, begins: dict[int, list[int]]) -> None:
        self._begins = begins
        self._current: dict[int, Allocation] = {}
        self._next = 1 + max(
            (allocation.id for allocation in trace.allocations), default=0
        )

    def enter(self, position: int, event: Event) -> None:
        """Begin the new tiles of the event at ``position``, before its regions are renamed."""
        for number in self._begins.get(position, ()):
            old = next(r.allocation for r in event.writes if r.allocation.id == number)
            self._current[number] = replace(old, id=self._next)
            self._next += 1

    def renamed(self, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        """Return the regions within the tiles that hold them now."""
        return in_other_tiles(regions, self._current)


def in_other_tiles(
    regions: tuple[Region, ...], tiles: dict[int, Allocation]
) -> tuple[Region, ...]:
    """Return the regions, moved to the tile in ``tiles`` that replaces their tensor, if any."""
    if not tiles or all(region.allocation.id not in tiles for region in regions):
        return regions
    return tuple(
        region._replace(allocation=tiles.get(region.allocation.id, region.allocation))
        for region in regions
    )


def _filled_again(
    events: list[Event], written: set[int]
) -> Iterator[tuple[int, list[Use]]]:
    """Yield the tensors of ``written`` that are written after a read, with their uses in order."""
    read = set[int]()
    again = set[int]()
    for event in events:
        again |= {region[0].id for region in event.writes} & read & written
        read |= {region[0].id for region in event.reads}
    uses: dict[int, list[Use]] = {number: [] for number in again}
    for position, event in enumerate(events if again else ()):
        for regions, writes in ((event.reads, False), (event.writes, True)):
            for region in regions:
                if region.allocation.id in again:
                    uses[region.allocation.id].append((position, region, writes))
    yield from uses.items()


def _deaths(uses: list[Use]) -> list[int]:
    """Return the positions, except the first, where no element is still to be read."""
    live = _Live(footprint(region) for _, region, _ in uses)
    positions: list[int] = []
    for index in range(len(uses) - 1, 0, -1):
        position, region, writes = uses[index]
        mark = footprint(region)
        if not writes:
            live.set(mark, True)
        elif (
            live.count and region.whole and region.partitions == mark.last - mark.first
        ):
            live.set(mark, False)
        if writes and not live.count and uses[index - 1][0] < position:
            positions.append(position)
    return positions


class _Live:
    """The elements of a tensor that will be read, from the end of the program backwards.

    Partitions between which no access begins or ends have equal contents and count as one.
    """

    def __init__(self, marks: Iterable[Footprint]) -> None:
        edges: set[int] = set()
        top = 0
        for mark in set(marks):
            edges.update((mark.first, mark.last))
            top = max(top, mark.high)
        self._rows = {edge: row for row, edge in enumerate(sorted(edges))}
        self._held = np.zeros((len(edges) - 1, top), dtype=bool)
        self.count = 0
        """The number of such elements."""

    def set(self, mark: Footprint, value: bool) -> None:
        """Mark elements as read later (True), or as written before any read (False)."""
        part = self._part(mark)
        if _overlapping(mark.dims):
            part[...] = value
            self.count = int(np.count_nonzero(self._held))
            return
        before = int(np.count_nonzero(part))
        part[...] = value
        self.count += (part.size if value else 0) - before

    def _part(self, mark: Footprint) -> Array:
        rows = self._held[self._rows[mark.first] : self._rows[mark.last]]
        if not mark.dims:
            return rows[:, mark.low : mark.high]
        inside = rows[:, mark.low :]
        sizes = (len(rows), *(size for size, _ in mark.dims))
        return as_strided(
            inside, sizes, (inside.strides[0], *(step for _, step in mark.dims))
        )


def _overlapping(dims: Dims) -> bool:
    """Return whether an element may occur twice; the axes have the longest stride first."""
    reach = 1
    for size, stride in reversed(dims):
        if stride < reach:
            return True
        reach += (size - 1) * stride
    return False


Key = tuple[object, ...]


class RepeatedWork:
    """The omitted work of a trace.

    Attributes
    ----------
    events : the numbers of the omitted events.
    twins : an omitted tile -> the tile that has the same contents.
    """

    def __init__(self, trace: Trace, machine: Machine, compiler: Compiler) -> None:
        self.events: set[int] = set()
        self.twins: dict[int, Allocation] = {}
        self._transposed: dict[int, tuple[Allocation, int]] = {}
        """Result of a transpose -> an earlier equal result, and the number of the transpose."""
        self._trace = trace
        self._machine = machine
        self._cores = cores_of(trace)
        loads = compiler.repeated_loads
        transposes = compiler.repeated_transposes
        if loads is RepeatRule.OPTIMIZED:
            loads = RepeatRule.REMOVED if trace.middle_end else RepeatRule.KEPT
        if transposes is RepeatRule.OPTIMIZED:
            whole = trace.middle_end or machine.nc_version < 3
            transposes = RepeatRule.INVARIANT if whole else RepeatRule.KEPT
        self._rules = {Engine.DMA: loads, Engine.TENSOR: transposes}
        self._copies = compiler.repeated_copies
        if {self._copies, *self._rules.values()} != {RepeatRule.KEPT}:
            self._rooms: dict[int, int] = {}
            """Core -> unneeded bytes in each partition of its SBUF."""
            self._written: dict[int, Event] = {}
            """Tensor -> the event that wrote it last."""
            self._lasting: set[int] = set()
            """Tiles that hold a copy of data that their loops do not change."""
            self._repeating: set[int] = set()
            """Runs of loops with more than one iteration."""
            self._find_repeats()

    def _find_repeats(self) -> None:
        """Find the copies and transposes that repeat an earlier one."""
        first: dict[Key, Event] = {}
        kept: set[int] = set()
        self._repeating = _repeating(self._trace.events)
        for event in self._trace.events:
            key = self._key(event)
            for region in event.writes:
                self._written[region.allocation.id] = event
            if key is None:
                continue
            target = event.writes[0].allocation
            self._lasting.add(target.id)
            first_copy = first.setdefault(key, event)
            if first_copy is event:
                continue
            tile = first_copy.writes[0].allocation
            if event.engine is Engine.TENSOR:
                if target.reads == 1:
                    self._transposed[target.id] = tile, event.number
                continue
            if tile.id not in kept:
                if not self._fits(tile, self._cores.get(event.program, 0)):
                    continue
                kept.add(tile.id)
            self.events.add(event.number)
            self.twins[target.id] = tile
            source = event.reads[0].allocation.id
            if source in self._transposed:
                self.events.add(self._transposed[source][1])

    def _fits(self, tile: Allocation, core: int) -> bool:
        """Reserve room for a tile that stays on its core; return False if there is no room."""
        if core not in self._rooms:
            sbuf = needed_bytes(self._trace, self._machine).get(Space.SBUF, 0)
            self._rooms[core] = self._machine.sbuf_usable_bytes - sbuf
        if tile.partition_bytes > self._rooms[core]:
            return False
        self._rooms[core] -= tile.partition_bytes
        return True

    def _key(self, event: Event) -> Key | None:
        """Return a key that equal copies share; None if the event is not a copy to omit."""
        engine = event.kind.engine
        rule = self._rules.get(engine, self._copies)
        if rule is RepeatRule.KEPT or not _fills_a_tile(event):
            return None
        source, target = event.reads[0], event.writes[0]
        number = source.allocation.id
        if number in self._transposed:
            held = self._transposed[number][0]
        else:
            held = self.twins.get(number, source.allocation)
        if engine is Engine.DMA and (not held.space.is_hbm or held.writes):
            return None
        before = self._written.get(held.id)
        if rule is RepeatRule.INVARIANT and self._changes(event, held, before):
            return None
        base = target.allocation
        return (
            self._cores.get(event.program, 0),
            engine,
            held.id,
            None if before is None else before.number,
            source[1:5],
            source.view,
            target[1:4],
            base.shape,
            base.dtype,
            base.partition_axis,
        )

    def _changes(self, event: Event, held: Allocation, before: Event | None) -> bool:
        """Return whether the innermost loop around a copy may change its source."""
        loops = (iteration.loop.id for iteration in reversed(event.loops))
        around = next((loop for loop in loops if loop in self._repeating), None)
        if around is None:
            return True
        inside = [iteration.loop.id for iteration in before.loops] if before else []
        return around in inside and held.id not in self._lasting


_FORMS = {Engine.TENSOR: (Purpose.TRANSPOSE, Space.PSUM)}
"""Engine -> the purpose of its copies, and the memory of their results."""
_COPY = Purpose.COPY, Space.SBUF
"""The form of all other engines' copies."""


def _fills_a_tile(event: Event) -> bool:
    """Return whether an event copies whole regions, and alone writes a tile of its own."""
    if len(event.reads) != 1 or len(event.writes) != 1:
        return False
    source, target = event.reads[0], event.writes[0]
    tile = target.allocation
    kind = event.kind
    purpose, space = _FORMS.get(kind.engine, _COPY)
    if kind.purpose is not purpose or tile.space is not space or tile.writes != 1:
        return False
    whole = source.whole and target.whole and target.elements == prod(tile.shape)
    return whole and not (tile.areas or tile.viewed)


def _repeating(events: list[Event]) -> set[int]:
    """Return the runs of loops that have a second iteration."""
    ids: set[int] = set()
    last: tuple[Iteration, ...] = ()
    for event in events:
        if event.loops is not last:
            last = event.loops
            ids.update(iteration.loop.id for iteration in last if iteration.number)
    return ids
