"""The use of SBUF and PSUM over a kernel's run, and the tensors in them, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from difftest.analysis.finding import group_by
from difftest.analysis.placement import LiveRange, Placement, placements
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Trace

ROWS = 12
"""The most lines of the kernel whose tensors are shown; the rest is counted."""
_BARS = " ▁▂▃▄▅▆▇█"
_MANY = "+"
"""Shown for more tensors than a digit can express."""
_LEAST = 24
"""Columns of the narrowest chart."""
_SIZE = 9
"""Columns of a number of bytes."""


def memory_text(
    trace: Trace, machine: Machine, width: int = 100, share: float = 0.0
) -> str:
    """Return a chart of each memory, with the bytes at the peak and the free bytes.

    ::

        sbuf: 6,144 of 212,992 bytes a partition at the peak (3%), 206,848 free
                    ▁▁▁▁▁▁▁▁▁▁▁▁  how full, events 0 to 11
            4,096   ─────────     kernel.py:7: tensor 2 [128, 1024] float32, tile = nl.load(x)
            2,048   ──2222──      kernel.py:9: 2 of 4 tensors [128, 256] float32, ...
            (512)           ───   kernel.py:11: tensor 9 [128, 128] float32, ...
                        ^         the peak, at event 5

    A row shows the tensors of one line of the kernel, or of one call of a helper. Its number is
    their bytes at the peak, or in brackets the bytes of one tensor outside the peak. The
    chart shows how many are live in each span of events, as a line for one. Tensors at the peak
    come first, the largest at the top.

    Parameters
    ----------
    width : columns of a line.
    share : the least use of a memory, relative to its limit, for its chart.
    """
    # The last tensor may have no event of its own, if an event only moved a result into its tile.
    last = max((tile.last for tile in trace.allocations), default=0)
    return "\n".join(
        line
        for placement in placements(trace, machine)
        if placement.needed >= share * placement.limit
        for line in _Chart(placement, last, width).lines()
    )


class _AllocationGroup(NamedTuple):
    """The tensors of one line of the kernel, called from one line, of one shape and dtype."""

    lives: tuple[LiveRange, ...]
    there: int
    """The number that are live at the peak."""

    @property
    def bytes(self) -> int:
        """Return their bytes of a partition at the peak."""
        return self.there * self.lives[0].size

    @property
    def label(self) -> str:
        """Return the line that makes the tensors, their number, and their form."""
        tensor = self.lives[0].allocation
        total = len(self.lives)
        name = str(tensor).rpartition(" in ")[0]
        if total > 1:
            kind = name[name.index("[") :]
            count = f"{self.there} of {total}" if 0 < self.there < total else str(total)
            name = f"{count} {tensor.name or 'tensors'} {kind}"
        at = tensor.location
        if at is None:
            return name
        call = "".join(f", called at line {line.line}" for line in at.calls[:1])
        return f"{at.short_place}{call}: {name}, {at.text}"


class _Chart:
    """The chart of one memory, as lines of at most ``width`` columns."""

    def __init__(self, placement: Placement, last: int, width: int) -> None:
        self.placement = placement
        self.events = last + 1
        self.width = width
        self.columns = min(max(_LEAST, (width - _SIZE) // 3), self.events)

    def lines(self) -> Iterator[str]:
        placement = self.placement
        peak = self.placement.peak
        yield from self._head()
        if not placement.lives:
            return
        yield self._row("", self._bars(), f"how full, events 0 to {self.events - 1:,}")
        groups = self._groups()
        for group in groups[:ROWS]:
            size = f"{group.bytes:,}" if group.there else f"({group.lives[0].size:,})"
            yield self._row(size, self._ranges(group.lives), group.label)
        if len(groups) > ROWS:
            rest = sum(group.bytes for group in groups[ROWS:])
            count = sum(len(group.lives) for group in groups[ROWS:])
            yield self._row(
                f"{rest:,}", "", f"{count:,} more, of {len(groups) - ROWS} lines"
            )
        yield self._row(
            "",
            " " * self._place(peak.event) + "^",
            f"the peak, at event {peak.event:,}",
        )

    def _head(self) -> Iterator[str]:
        """Yield the lines above the chart: how full the memory is."""
        placement = self.placement
        name = placement.space.value
        if placement.program:
            name += f" of program {', '.join(map(str, placement.program))}"
        free = placement.limit - placement.needed
        rest = f"{free:,} free" if free >= 0 else f"{-free:,} too many"
        yield (
            f"{name}: {placement.needed:,} of {placement.limit:,} bytes a partition at the peak "
            f"({placement.needed / placement.limit:.0%}), {rest}"
        )
        if placement.reached > placement.needed:
            yield f"  laid out, with their gaps, they reach {placement.reached:,}"

    def _row(self, size: str, chart: str, label: str) -> str:
        row = f"{size:>{_SIZE}} {chart:<{self.columns}} {label}".rstrip()
        if len(row) <= self.width:
            return row
        return row[: self.width - 1] + "…"

    def _groups(self) -> list[_AllocationGroup]:
        """Group the tensors by line, sorted by their bytes at the peak, then by size."""

        def kind(live: LiveRange) -> tuple[object, ...]:
            tensor = live.allocation
            at = tensor.location, tensor.location and tensor.location.calls
            return (*at, tensor.name, tensor.shape, tensor.dtype)

        lines = group_by(self.placement.lives, kind)
        when = self.placement.peak.event
        groups = [
            _AllocationGroup(
                tuple(lives), sum(life.first <= when <= life.last for life in lives)
            )
            for lives in lines.values()
        ]
        groups.sort(
            key=lambda item: (-item.bytes, -item.lives[0].size, item.lives[0].first)
        )
        return groups

    def _place(self, event: int) -> int:
        """Return the column of an event."""
        return event * self.columns // self.events

    def _ranges(self, lives: Sequence[LiveRange]) -> str:
        """Return the most tensors that are live in each column, as characters."""
        changes = Counter(live.first for live in lives)
        changes.subtract(live.last + 1 for live in lives)
        counts = self._highest(sorted(changes.items()), total=True)
        return "".join(map(_count_character, counts))

    def _bars(self) -> str:
        """Return a bar for each span of events: the most bytes that are live in it."""
        steps = len(_BARS) - 1
        limit = self.placement.limit
        highest = self._highest(self.placement.peak.history)
        return "".join(_BARS[min(steps, -(-peak * steps // limit))] for peak in highest)

    def _highest(
        self, steps: Sequence[tuple[int, int]], *, total: bool = False
    ) -> list[int]:
        """Return each column's largest value; steps set it or, with ``total``, add to it."""
        highest = [0] * self.columns
        since = 0
        now = 0
        for event, value in (*steps, (self.events, 0)):
            first = self._place(since)
            last = -(-event * self.columns // self.events)
            for column in range(first, last):
                highest[column] = max(highest[column], now)
            since = event
            now = now + value if total else value
        return highest


def _count_character(count: int) -> str:
    """Return the character for a number of live tensors: a line for one."""
    if count == 0:
        return " "
    if count == 1:
        return "─"
    return str(count) if count < 10 else _MANY
