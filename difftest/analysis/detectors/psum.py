"""PSUM accumulation chains that compilers mishandle, or that are undefined.

A chain is a matmul that overwrites its destination, and the matmuls that add to it. The trace
records whether a matmul adds, and whether the kernel or the compiler decided this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from difftest.analysis.detectors.access_index import OperandAccess, access_index
from difftest.analysis.detectors.element_map import ElementMap, first_true
from difftest.analysis.finding import (
    NOTE,
    WARNING,
    Finding,
    Found,
    Hazard,
    deduplicated,
    group_by,
)
from difftest.analysis.footprint import Footprint, footprint
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Purpose, Space, Trace

CHAINS = Hazard(
    "psum-chains", WARNING, "several accumulation chains in one PSUM tensor"
)
START = Hazard(
    "psum-start", WARNING, "a chain on a tensor used again leaves its start open"
)
FOREIGN = Hazard("psum-foreign", WARNING, "a matmul adds to data that no matmul wrote")
ADDITION = Hazard("psum-addition", WARNING, "+= in PSUM of anything but a matmul")
HAZARDS = (CHAINS, START, FOREIGN, ADDITION)

SEEN_ON = 2
"""The NeuronCore version where chains lost products. AWS's own kernels have such chains on the
next version (nki-library 2.29, core/output_projection/output_projection_tkg.py)."""
_NOBODY = -1
_SUMS = ("add", "subtract", "multiply")


@deduplicated
def find_psum_misuse(trace: Trace, machine: Machine) -> Found:
    """Yield findings on misuse of accumulation in PSUM."""
    modern = trace.dialect == "nki"
    for touches in access_index(trace).accesses.values():
        if touches[0].region.allocation.space is not Space.PSUM:
            continue
        if any(touch.event.attributes.accumulate for touch in touches):
            yield from _foreign(touches, machine, modern=modern)
            seen = modern and machine.nc_version == SEEN_ON
            for block in _blocks(touches):
                yield from _chains(block, machine, seen=seen)
        if not modern:
            yield from _additions(touches)
        elif any(touch.event.attributes.inferred for touch in touches):
            yield from _starts(touches)


@dataclass
class _Chain:
    """An accumulation: its place, its number of matmuls, and its first matmul."""

    place: Footprint
    bank: int
    first: Event
    steps: int = 1
    is_read: bool = False

    def disturbs(self, other: _Chain) -> bool:
        """Return whether another chain in this bank is unread and has several steps."""
        mine = self.place
        apart = other.place.high <= mine.low or mine.high <= other.place.low
        is_open = other.steps > 1 and not other.is_read
        return apart and other.bank == self.bank and is_open


def _is_product(touch: OperandAccess) -> bool:
    return touch.event.purpose is Purpose.PRODUCT and touch.region.role == "dst"


def _writes_product(touch: OperandAccess) -> bool:
    return touch.writes and _is_product(touch)


def _is_read(touch: OperandAccess) -> bool:
    """Return whether an access reads a product: a matmul's own read of ``dst`` does not count."""
    return not touch.writes and not _is_product(touch)


def _blocks(touches: list[OperandAccess]) -> Iterable[list[OperandAccess]]:
    """Group the accesses by block; blocks are placed in PSUM like separate tensors."""
    allocation = touches[0].region.allocation
    size = math.prod(allocation.shape[allocation.partition_axis :])
    return group_by(touches, lambda touch: touch.region.offset // size).values()


def _chains(
    touches: list[OperandAccess], machine: Machine, *, seen: bool
) -> Iterator[Finding]:
    """Yield findings on pairs of unread chains of several steps in one bank of one tensor.

    ``seen`` says whether such chains failed on this machine, in this dialect.
    """
    chains: dict[Footprint, _Chain] = {}
    size = touches[0].region.allocation.dtype.itemsize
    for touch in touches:
        place = footprint(touch.region)
        if _is_read(touch):
            for chain in chains.values():
                chain.is_read |= chain.place.overlaps(place)
            continue
        if not _writes_product(touch):
            continue
        mine = chains.get(place)
        if mine is None or not touch.event.attributes.accumulate:
            bank = place.low * size // machine.psum_bank_bytes
            chains[place] = _Chain(place, bank, touch.event)
            continue
        mine.steps += 1
        for other in chains.values():
            if mine.disturbs(other):
                yield CHAINS.finding(
                    f"two accumulations of several matmuls are open in {touch.region.allocation} "
                    f"before either is read: columns {other.place.low} and {place.low} of a bank",
                    "if one PSUM tensor has several accumulation chains, all but the last lose "
                    "their first product (observed on NeuronCore-v2, current dialect, SDK 2.32)",
                    "give each chain a PSUM tensor of its own, or read one before the next begins",
                    touch.event,
                    other.first,
                    severity=WARNING if seen else NOTE,
                )


def _starts(touches: list[OperandAccess]) -> Iterator[Finding]:
    """Yield findings on matmuls without ``accumulate`` after a read of the earlier product."""
    done: dict[Footprint, bool] = {}
    """Place of each product -> whether it was read since."""
    for touch in touches:
        place = footprint(touch.region)
        if _is_read(touch):
            for product in done:
                done[product] = done[product] or product.overlaps(place)
        if not _writes_product(touch):
            continue
        if touch.event.attributes.inferred and done.get(place):
            yield START.finding(
                f"nc_matmul leaves it to the compiler whether it adds to {touch.region.allocation}"
                ", whose product was read before",
                "where accumulate is left out the compiler guesses where a chain begins, and joins "
                "the matmuls on a tensor that is used again",
                "say accumulate=False for the first matmul of each chain and True for the others",
                touch.event,
            )
        done[place] = False


def _foreign(
    touches: list[OperandAccess], machine: Machine, *, modern: bool
) -> Iterator[Finding]:
    """Yield findings on matmuls that add to data from other instructions."""
    if modern and machine.nc_version >= 4:
        return
    writes = [touch for touch in touches if touch.writes]
    foreign = _foreign_events(writes, modern)
    if not foreign:
        return
    regions = [touch.region for touch in touches]
    element_map = ElementMap([regions[0].allocation], regions)
    cells = element_map.filled(_NOBODY)
    """The place in ``writes`` of each cell's last write, if that is foreign."""
    for place, touch in enumerate(writes):
        if touch.event in foreign:
            element_map.write(cells, touch.region, place)
            continue
        before = element_map.read(cells, touch.region)
        wrong = before != _NOBODY
        if wrong.any() and _adds_surely(touch):
            other = writes[int(before[first_true(wrong)])].event
            element = element_map.element(touch.region, wrong)
            yield _added_to_foreign(touch, element, other, modern=modern)
        element_map.write(cells, touch.region, _NOBODY)


def _foreign_events(writes: list[OperandAccess], modern: bool) -> set[Event]:
    """Return the events to whose results no matmul may add.

    The classic compiler supports tiles that are cleared and added to.
    """
    events = {touch.event for touch in writes}
    others = [event for event in events if event.purpose is not Purpose.PRODUCT]
    return {event for event in others if modern or not event.clears}


def _adds_surely(touch: OperandAccess) -> bool:
    """Return whether the kernel says that a matmul adds."""
    attributes = touch.event.attributes
    return _is_product(touch) and attributes.accumulate and not attributes.inferred


def _added_to_foreign(
    touch: OperandAccess, element: Sequence[int], other: Event, *, modern: bool
) -> Finding:
    remedy = "start from nl.zeros in PSUM, and add the rest afterwards"
    if modern:
        remedy = (
            "use accumulate=False for the first matmul, and add the rest afterwards"
        )
    return FOREIGN.finding(
        f"{touch.event.opcode} adds to element {list(element)} of "
        f"{touch.region.allocation}, which {other.opcode} wrote",
        "a matmul adds to what matmuls wrote: on NeuronCore-v2 and v3 to add to what "
        "another instruction wrote is undefined",
        remedy,
        touch.event,
        other,
    )


def _additions(touches: list[OperandAccess]) -> Iterator[Finding]:
    """Yield findings on ``+=`` on a PSUM tile outside matmuls, in the classic dialect."""
    for touch in touches:
        event = touch.event
        if not touch.writes or event.attributes.op not in _SUMS:
            continue
        if any(
            region.allocation is touch.region.allocation
            and region[1:4] == touch.region[1:4]
            for region in event.reads
        ):
            yield ADDITION.finding(
                f"{event.opcode} ({event.attributes.op}) updates {touch.region.allocation} in "
                "place",
                "+= in PSUM is for matmuls alone: with other instructions the compiler gave wrong "
                "values (observed)",
                "copy the product to SBUF and continue there",
                event,
            )
