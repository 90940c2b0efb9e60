"""Sums that grow in a narrow dtype, which rounds at each addition."""

from __future__ import annotations

from difftest.analysis.detectors.survey import adds
from difftest.analysis.finding import WARNING, Finding, Found, Hazard, once
from difftest.analysis.purpose import Purpose, purpose
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Region, Trace

NARROW = Hazard("narrow-accumulation", WARNING, "a running sum is kept in a narrow dtype")

LONGEST = {"bfloat16": 16, "float16": 128, "float8_e4m3": 4, "float8_e5m2": 4, "float8_e4m3fn": 4}
"""Additions in a row from which on the roundings together can be a sixteenth of the sum, at least
four: half a unit in the last place each."""

Part = tuple[int, int, tuple[int, ...], tuple[int, ...]]


@once
def narrow(trace: Trace, machine: Machine) -> Found:
    """Chains of additions whose running sum is kept in a narrow dtype."""
    narrow = {
        tensor.id: LONGEST[name]
        for tensor in trace.allocations
        if tensor.dtype.itemsize < 4 and (name := tensor.dtype.name) in LONGEST
    }
    if not narrow:
        return
    sums: dict[Part, int] = {}
    for event in trace.events:
        if not event.writes:
            continue
        region = event.writes[0]
        longest = narrow.get(region.allocation.id)
        if longest is None or region.view is not None:
            continue
        length = _length(event, region, sums)
        if length:
            sums[_part(region)] = length
        elif sums:
            sums.pop(_part(region), None)
        if length == longest:
            yield _finding(event, region, length)


def _length(event: Event, written: Region, sums: dict[Part, int]) -> int:
    """How many additions in a row the sum has that an event writes; 0 if it adds nothing to one."""
    if not _adds(event):
        return 0
    dtype, elements = written.allocation.dtype, written.elements
    longest = 0
    for term in event.reads:
        if term.allocation.dtype == dtype and term.elements == elements and term.view is None:
            longest = max(longest, 1 + sums.get(_part(term), 0))
    return longest


def _adds(event: Event) -> bool:
    """Whether a result is the sum of tensors: each addition rounds."""
    if event.attributes.accumulate:
        return True
    does = purpose(event)
    if does is Purpose.COMBINE:
        return (event.attributes.op or "").rpartition("+")[2] in ("add", "subtract")
    return len(event.reads) > 1 if does is Purpose.SUM else adds(event)


def _part(region: Region) -> Part:
    return region.allocation.id, region.offset, region.shape, region.strides


def _finding(event: Event, region: Region, length: int) -> Finding:
    return NARROW.found(
        f"{length} additions in a row were each rounded to {region.dtype.name}, in "
        f"{region.allocation}",
        "an instruction rounds its result to the destination's dtype: a running sum in a "
        "narrow one loses what is smaller than half a unit in its last place",
        "keep the running sum in float32 (PSUM accumulates so), and round it once at the end",
        event,
    )
