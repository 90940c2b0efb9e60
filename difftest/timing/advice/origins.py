"""Where data came from, through loads and copies: equal data have equal origins."""

from __future__ import annotations

from collections.abc import Hashable

from difftest.analysis.footprint import Footprint, footprint
from difftest.analysis.natures import Nature, nature
from difftest.simulator.trace import Event, Region
from difftest.timing.program import LoweredInstruction

BACK = 64
"""Writers of a tile that are asked, from the last one on."""


class Origins:
    """What each tile held when; instructions are given in program order."""

    def __init__(self) -> None:
        self._written: dict[int, list[tuple[Footprint, Region, Hashable]]] = {}
        """Tile -> of each write what it touched, and where the data came from."""

    def write(self, one: LoweredInstruction) -> None:
        """Note what an instruction writes, once its operands have been asked for."""
        for region in one.event.writes:
            if region.allocation.space.is_hbm:
                continue
            entry = footprint(region), region, self._moved(one.event, one.index)
            self._written.setdefault(region.allocation.id, []).append(entry)

    def _moved(self, event: Event, index: int) -> Hashable:
        if nature(event) is Nature.COPY and event.reads[0].elements == event.writes[0].elements:
            return self.of(event.reads[0])
        return index

    def of(self, region: Region) -> Hashable:
        """The elements of a tensor in HBM, or what an instruction made, and the part of it.

        A tile that is written again holds something else: what counts is the last write before.
        """
        allocation = region.allocation
        part = (region.offset, region.shape, region.strides)
        writes = self._written.get(allocation.id, ())
        if allocation.space.is_hbm or not writes:
            return (allocation.id, part)
        mark = footprint(region)
        for written, target, origin in reversed(writes[-BACK:]):
            if written.covers(mark):
                inside = (region.offset - target.offset, region.shape, region.strides)
                return (origin, target.shape, target.strides, inside)
            if written.overlaps(mark):
                break
        return (allocation.id, len(writes), part)
