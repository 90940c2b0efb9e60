"""Tensors that exceed their memory together, and tensors placed over one another."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from difftest.analysis.detectors.happens_before import collective_calls
from difftest.analysis.finding import (
    ERROR,
    NOTE,
    WARNING,
    Finding,
    Hazard,
    unique_locations,
)
from difftest.analysis.footprint import footprint
from difftest.analysis.placement import (
    LiveRange,
    Placement,
    overfull_placements,
    split_placement,
)
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Area, Event, Region, Space, Trace

SBUF = Hazard("sbuf-full", WARNING, "the live tensors do not fit SBUF")
PSUM = Hazard("psum-full", ERROR, "the live tensors do not fit the banks of PSUM")
ALIAS = Hazard(
    "address-alias",
    WARNING,
    "a placed tensor is read after another one was written over it",
)
UNORDERED = Hazard(
    "address-unordered",
    WARNING,
    "a placed tensor is read after a write by another name",
)
LARGE = Hazard("tensor-beyond-32-bits", WARNING, "a tensor in HBM has 4 GiB or more")
OFFSETS = 2**32
"""The least bytes of a tensor whose offsets exceed 32 bits."""
NAMED = 5
"""The most tensors of the peak that a finding names."""


def find_overflows(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield findings on memories without a placement for the tensors that are live at one time."""
    for placement in overfull_placements(trace, machine):
        if not placement.fits:
            yield _full(placement, split_placement(placement, trace, machine), machine)


def _full(placement: Placement, parts: Placement, machine: Machine) -> Finding:
    """Return a finding on a full memory; ``parts`` gives each tensor several places."""
    peak = placement.peak
    if placement.space is Space.SBUF:
        hazard = SBUF
        severity = NOTE if parts.fits else WARNING
        beyond = "beyond sbuf the compiler spills to HBM, which is slow"
    else:
        hazard = PSUM
        is_proven = placement.needed > placement.limit and not parts.fits
        severity = ERROR if is_proven else WARNING
        beyond = "beyond psum nothing takes an accumulation"
    happened = _full_text(placement, parts, machine)
    return Finding(
        id=hazard.id,
        severity=severity,
        happened=f"{happened}; live at event {peak.event}: {_listed(peak.live)}",
        rule="a tensor has one place from its first write to its last use, whole groups of 32 "
        f"partitions, in PSUM inside a bank if it fits one; {beyond}",
        locations=unique_locations(
            *(live.allocation.location for live in peak.live[:NAMED])
        ),
        remedy="use smaller tiles, or finish with one tensor before the next is written",
        evidence=(peak.event,),
    )


def _full_text(placement: Placement, parts: Placement, machine: Machine) -> str:
    """Return the excess of a full memory in words."""
    limit = placement.limit
    program = f" of program {placement.program}" if placement.program else ""
    too_many = placement.needed > limit
    if too_many:
        happened = f"tensors{program} that are live at one time take {placement.needed} bytes a "
    else:
        happened = (
            f"no place was found for the live ranges{program}: the most that is live at one time "
            f"is {placement.needed}, but laid out they reach {placement.reached} bytes a "
        )
    happened += (
        f"partition of {placement.space.value}, which has {limit} ({machine.name})"
    )
    if too_many and sum(live.size for live in placement.peak.live) <= limit:
        bank = f"a bank ({machine.psum_bank_bytes} bytes)"
        happened += f"; {bank} that no other tensor can share counts as a whole"
    if parts.fits:
        happened += (
            f"; the data that are read later take {parts.needed} at most, because some tensors are "
            "written again before they are read"
        )
    return happened


def _listed(lives: tuple[LiveRange, ...]) -> str:
    named = [f"{live.size} bytes {live.allocation}" for live in lives[:NAMED]]
    if len(lives) > NAMED:
        named.append(f"{len(lives) - NAMED} more")
    return "; ".join(named)


def find_large_tensors(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield findings on tensors in HBM with offsets that exceed 32 bits."""
    touched: set[int] = set()
    for event in trace.events:
        for region in event.reads + event.writes:
            tensor = region.allocation
            if tensor.id in touched or not tensor.space.is_hbm:
                continue
            touched.add(tensor.id)
            size = math.prod(tensor.shape) * tensor.dtype.itemsize
            if size >= OFFSETS:
                yield LARGE.finding(
                    f"{event.opcode} touches {tensor}, of {size} bytes",
                    "offsets into a tensor of 4 GiB or more do not fit 32 bits. DMAs on such a "
                    "tensor aborted, and DMAs on 3 GB ran (observed on inf2)",
                    "divide it into tensors of less than 2 GiB",
                    event,
                    lines=(event.location, tensor.location),
                )


# -- tensors that share bytes ----------------------------------------------------------------------


def find_aliases(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield findings on reads of a placed tensor or block after another one overwrote it."""
    yield from _tensor_aliases(trace)
    yield from _block_aliases(trace)


def _tensor_aliases(trace: Trace) -> Iterator[Finding]:
    """Yield findings on reads of a placed tensor that another tensor overwrote."""
    placed = _used_placed(trace)
    if len(placed) < 2:
        return
    sent = _sent(trace)
    cores = _cores(trace, sent)
    pairs = _overlapping(placed, _read_first(trace), cores)
    if not pairs:
        return
    writes: dict[int, list[tuple[Event, Region]]] = defaultdict(list)
    reported: set[tuple[int, int]] = set()
    for event in trace.events:
        for region in event.reads:
            reader = sent.get(event.number, event)
            if cores.get(region.allocation.id) != reader.program:
                reader = event
            for other in pairs.get(region.allocation.id, ()):
                pair = region.allocation.id, other.id
                if pair not in reported:
                    found = _alias(event, region, other, reader, writes)
                    if found is not None:
                        reported.add(pair)
                        yield found
        for region in event.writes:
            writes[region.allocation.id].append((event, region))


def _used_placed(trace: Trace) -> list[Allocation]:
    """Return the tensors with an address that an instruction uses."""
    placed = [base for base in trace.allocations if base.address is not None]
    return [base for base in placed if base.last >= 0]


def _alias(
    event: Event,
    read: Region,
    other: Allocation,
    reader: Event,
    writes: Mapping[int, list[tuple[Event, Region]]],
) -> Finding | None:
    """Return the finding on a read whose bytes another tensor wrote last; None if none did.

    ``reader`` is the event that reads, or the other core's call that sends the data.
    """
    own = _last(writes[read.allocation.id], read, reader)
    over = _last(writes[other.id], read, reader)
    if over is None:
        return None
    if own is None:
        return _unordered_finding(read.allocation, other, over, event)
    if over.number < own.number:
        return None
    return _overwrite_finding(read.allocation, other, over, event)


def _sent(trace: Trace) -> dict[int, Event]:
    """Return event number of a sendrecv -> the other core's call, which sent the data.

    The first core to continue may have issued more events before the other one's event.
    """
    partners: dict[int, Event] = {}
    for call, other in collective_calls(trace):
        partners[call.number] = other
        partners[other.number] = call
    return partners


def _cores(trace: Trace, sent: Mapping[int, Event]) -> dict[int, tuple[int, ...]]:
    """Return the id of a placed tensor -> the program whose memory holds it.

    This is the first program that writes it, else the first that reads or sends it under its name.
    """
    programs: dict[int, tuple[int, ...]] = {}
    for event in trace.events:
        for region in event.writes:
            if region.allocation.address is not None:
                programs.setdefault(region.allocation.id, event.program)
    for event in trace.events:
        for region in event.reads:
            if region.allocation.address is not None:
                reader = sent.get(event.number, event)
                programs.setdefault(region.allocation.id, reader.program)
    return programs


def _read_first(trace: Trace) -> dict[int, int]:
    """Return id -> reading event of placed tensors that are read before a write names them."""
    numbers: dict[int, int] = {}
    for event in trace.events:
        for region in event.reads:
            tensor = region.allocation
            if tensor.address is not None and (
                tensor.first < 0 or event.number <= tensor.first
            ):
                numbers.setdefault(tensor.id, event.number)
    return numbers


def _overlapping(
    placed: list[Allocation],
    readers: dict[int, int],
    cores: Mapping[int, tuple[int, ...]],
) -> dict[int, list[Allocation]]:
    """Return, for each placed tensor, the tensors with overlapping bytes and live ranges.

    The tensors in ``readers`` hold data that others wrote, so all earlier tensors count for
    them. On two cores, equal addresses are two places, except in shared HBM.
    """
    overlaps: dict[int, list[Allocation]] = {}
    live: list[Allocation] = []
    before: list[Allocation] = []
    begins = {tensor.id: readers.get(tensor.id, tensor.first) for tensor in placed}
    for tensor in sorted(placed, key=lambda tensor: begins[tensor.id]):
        live = [other for other in live if other.last > begins[tensor.id]]
        for other in before if tensor.id in readers else live:
            is_shared = tensor.space is Space.SHARED_HBM
            if (is_shared or cores[tensor.id] == cores[other.id]) and _share_bytes(
                tensor, other
            ):
                overlaps.setdefault(tensor.id, []).append(other)
                overlaps.setdefault(other.id, []).append(tensor)
        live.append(tensor)
        before.append(tensor)
    return overlaps


def _share_bytes(tensor: Allocation, other: Allocation) -> bool:
    """Return whether two placed tensors have bytes of one memory in common."""
    if other.space is not tensor.space or not tensor.area or not other.area:
        return False
    return tensor.area.overlaps(other.area)


def _last(
    writes: list[tuple[Event, Region]], read: Region, reader: Event
) -> Event | None:
    """Return the last write before a read, by its program, that shares a byte with it."""
    mark = footprint(read)
    writer: Event | None = None
    for event, region in writes:
        if event.number > reader.number:
            break
        if event.program == reader.program and footprint(region).overlaps(mark):
            writer = event
    return writer


class _Block(NamedTuple):
    """A block of a tensor whose blocks the kernel placed, or a tensor that it placed."""

    tensor: Allocation
    number: int

    @property
    def area(self) -> Area:
        if not self.tensor.places:
            return self.tensor.areas[0]
        first, low = self.tensor.places[self.number]
        size = self.tensor.partition_bytes // len(self.tensor.places)
        return Area(first, first + self.tensor.partitions, low, low + size)

    def __str__(self) -> str:
        if self.tensor.places:
            return f"block {self.number} of {self.tensor}"
        return str(self.tensor)


_Place = tuple[tuple[int, ...], Space, Area]
"""A program, one of its memories, and bytes there."""


def _block_aliases(trace: Trace) -> Iterator[Finding]:
    """Yield findings on aliases of blocks that classic kernels placed; whole blocks count."""
    if not any(tensor.places for tensor in trace.allocations):
        return
    written: dict[_Block, Event] = {}
    latest: dict[_Place, tuple[_Block, Event]] = {}
    """The last block written at each place, and its event."""
    reported: set[tuple[int, int]] = set()
    for event in trace.events:
        for block in itertools.chain.from_iterable(map(_blocks_of, event.reads)):
            for other, over in _writers_over(block, event, written, latest):
                pair = block.tensor.id, other.tensor.id
                if pair not in reported:
                    reported.add(pair)
                    yield _overwrite_finding(block, other, over, event)
        for block in itertools.chain.from_iterable(map(_blocks_of, event.writes)):
            written[block] = event
            latest[event.program, block.tensor.space, block.area] = block, event


def _writers_over(
    block: _Block,
    reader: Event,
    written: Mapping[_Block, Event],
    latest: Mapping[_Place, tuple[_Block, Event]],
) -> Iterator[tuple[_Block, Event]]:
    """Yield the blocks that were written over a block after its last write, and the writers."""
    if block not in written:
        return
    place = reader.program, block.tensor.space, block.area
    for at, (other, over) in latest.items():
        is_later = over.number > written[block].number
        if is_later and _is_alias(block, other) and _share_place(at, place):
            yield other, over


def _share_place(place: _Place, other: _Place) -> bool:
    return place[:2] == other[:2] and place[2].overlaps(other[2])


def _is_alias(block: _Block, other: _Block) -> bool:
    """Return whether two blocks differ, and the kernel placed the blocks of a tensor of them."""
    return other != block and bool(block.tensor.places or other.tensor.places)


def _blocks_of(region: Region) -> Iterator[_Block]:
    """Yield the placed blocks that a region touches, or the placed tensor."""
    tensor = region.allocation
    if tensor.space.is_hbm or not tensor.areas:
        return
    if not tensor.places:
        yield _Block(tensor, 0)
        return
    mark = footprint(region)
    each = math.prod(tensor.shape[tensor.partition_axis + 1 :])
    each *= tensor.dtype.itemsize if tensor.viewed else 1
    for number in range(mark.low // each, (mark.high - 1) // each + 1):
        yield _Block(tensor, number)


def _unordered_finding(
    tensor: Allocation, other: Allocation, over: Event, reader: Event
) -> Finding:
    """Return a finding on a read of data that only another tensor's name wrote."""
    lines = (reader.location, over.location, tensor.location, other.location)
    return UNORDERED.finding(
        f"{reader.opcode} reads {tensor} at address {tensor.address}, whose bytes "
        f"{over.opcode} wrote by another name, to {other} at address {other.address}",
        "the compiler orders instructions by the tensors that they name: nothing orders this "
        "read after a write to another tensor, whose engine or DMA queue may be late",
        "read it by the tensor that was written, or a view of that (reshape, ap, view)",
        over,
        reader,
        lines=lines,
    )


def _overwrite_finding(
    tensor: Allocation | _Block, other: Allocation | _Block, over: Event, reader: Event
) -> Finding:
    """Return a finding on a read of a tensor or block after a write over it."""
    tensors: list[Allocation] = []
    places: list[object] = []
    for each in (tensor, other):
        if isinstance(each, _Block):
            tensors.append(each.tensor)
            places.append((each.area.first, each.area.low))
        else:
            tensors.append(each)
            places.append(each.address)
    lines = (reader.location, over.location, *(each.location for each in tensors))
    return ALIAS.finding(
        f"{reader.opcode} reads {tensor} at address {places[0]} after {over.opcode} wrote "
        f"over it, to {other} at address {places[1]}",
        "two tensors at one address have the same bytes: a write to the second replaces the "
        "data of the first",
        "place the second one elsewhere, or write it after the last use of the first",
        over,
        reader,
        lines=lines,
    )
