"""How full SBUF and PSUM are while a kernel runs, as text."""

from __future__ import annotations

from collections.abc import Iterator

from difftest.analysis.placement import Placement, placements
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Trace

_WIDTH = 60
_BARS = " ▁▂▃▄▅▆▇█"
_NAMED = 3


def memory_text(trace: Trace, machine: Machine) -> str:
    """For each memory what is live at the peak, who, and a chart of it over the events.

    ::

        sbuf: 6,144 of 212,992 bytes a partition at the peak (3%), at event 5
          ▁▁▁▁▁▁▁▁▁▁▁▁  events 0 to 11
          4,096 bytes tensor 2 [128, 1024] float32 in sbuf, kernel.py:7: tile = nl.load(x)
    """
    last = trace.events[-1].number if trace.events else 0
    return "\n".join(
        line for placement in placements(trace, machine) for line in _lines(placement, last)
    )


def _lines(placement: Placement, last: int) -> Iterator[str]:
    peak, limit = placement.peak, placement.limit
    program = f" of program {placement.program}" if placement.program else ""
    yield (
        f"{placement.space.value}{program}: {placement.needed:,} of {limit:,} bytes a partition at "
        f"the peak ({placement.needed / limit:.0%}), at event {peak.event}"
    )
    yield f"  {_chart(placement, last)}  events 0 to {last}"
    for live in peak.live[:_NAMED]:
        at = live.allocation.location
        yield f"  {live.size:,} bytes {live.allocation}" + (f", {at}" if at else "")
    if len(peak.live) > _NAMED:
        yield f"  and {len(peak.live) - _NAMED} more"


def _chart(placement: Placement, last: int) -> str:
    """A bar for each span of events, as high as the most that is live in it."""
    width = min(_WIDTH, last + 1)
    highest = [0] * width
    since, live = 0, 0
    for event, after in (*placement.peak.history, (last + 1, 0)):
        for place in range(since * width // (last + 1), -(-event * width // (last + 1))):
            highest[place] = max(highest[place], live)
        since, live = event, after
    steps = len(_BARS) - 1
    return "".join(_BARS[min(steps, -(-one * steps // placement.limit))] for one in highest)
