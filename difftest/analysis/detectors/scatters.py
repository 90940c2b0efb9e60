"""Writes through indices, whose order on a device is undefined.

The descriptors of one DMA run on several queues at once. The compiler cannot order two DMAs that
add to one row. The data decide which rows meet, and the simulator records it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from difftest.analysis.detectors.access_index import (
    OperandAccess,
    access_index,
    is_accumulating_dma,
    is_accumulation,
    loses_additions,
)
from difftest.analysis.detectors.element_map import (
    Cells,
    ElementMap,
    element_index,
    first_true,
)
from difftest.analysis.detectors.happens_before import is_synchronization
from difftest.analysis.finding import (
    ERROR,
    NOTE,
    WARNING,
    Finding,
    Found,
    Hazard,
    deduplicated,
)
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Anomaly,
    AnomalyKind,
    Engine,
    Event,
    Purpose,
    Region,
    Trace,
)

ADDED_TWICE = Hazard(
    "scatter-added-twice", ERROR, "a scatter adds to one place more than once"
)
TWICE = Hazard(
    "scatter-twice", WARNING, "a scatter writes values that differ to one place"
)
AFTER_WRITE = Hazard(
    "scatter-after-write",
    WARNING,
    "a scatter adds to data that a plain write has just written",
)
SKIPPED = Hazard(
    "scatter-skipped", WARNING, "a scatter that adds skips indices out of bounds"
)
VIEW = Hazard(
    "scatter-skipped-view",
    NOTE,
    "a scatter that skips indices has a part of a tensor as its source",
)
PATTERN = Hazard(
    "skipped-pattern",
    NOTE,
    "an index in bounds is skipped because its pattern leaves the tensor",
)
OFFSET = Hazard("offset-in-view", NOTE, "a DMA's offset is read from inside a tensor")
HAZARDS = (ADDED_TWICE, TWICE, AFTER_WRITE, SKIPPED, VIEW, PATTERN)

_NOBODY = -1

_REMEDY = (
    "add up the values of a row first (for example by a product with a matrix of 0 and 1), "
    "or give each value its own row and sum the rows afterwards"
)


@deduplicated
def find_scatter_conflicts(trace: Trace, machine: Machine) -> Found:
    """Yield findings on rows with several indices, and on additions to recently written data."""
    yield from _anomaly_findings(trace, machine)
    yield from _additions(trace)


def _anomaly_findings(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield findings on anomalies of indices that the simulator recorded."""
    for event in access_index(trace).seen:
        # such DMAs aborted on devices, if they skip
        aborts = event.purpose is Purpose.TRANSPOSE or is_accumulating_dma(event)
        for anomaly in event.seen:
            if anomaly.what is AnomalyKind.PLACE_TWICE:
                yield TWICE.finding(
                    f"{_named(event)} writes values that differ to one place: "
                    f"{anomaly.elements} of {anomaly.of} are lost, "
                    f"the first at element {list(anomaly.first)}",
                    "if one DMA writes several values to one place, any of them may stay",
                    "let the indices differ, also for padded rows whose place is read",
                    event,
                )
            elif anomaly.what is AnomalyKind.PATTERN_SKIPPED:
                yield _pattern_finding(event, anomaly)
            elif anomaly.what is AnomalyKind.INDEX_SKIPPED and not aborts:
                yield from _view_findings(event, anomaly)
            elif anomaly.what is AnomalyKind.INDEX_SKIPPED and machine.nc_version >= 3:
                yield SKIPPED.finding(
                    f"{event.opcode} skips indices out of bounds: "
                    f"{anomaly.elements} of {anomaly.of} elements",
                    "a scatter that adds and skips, and a transpose of rows by indices that skips, "
                    "aborted the DMA, and the device hung (observed on trn2 and trn3)",
                    "write each unwanted row to a row of its own that nobody reads",
                    event,
                )


def _view_findings(event: Event, anomaly: Anomaly) -> Iterator[Finding]:
    """Yield findings on scatters that skip, with a part of a tensor as their source."""
    src = event.operand("src")
    if src is None:
        return
    size = math.prod(src.allocation.shape) * src.allocation.dtype.itemsize
    if src.elements * src.dtype.itemsize == size:
        return
    yield VIEW.finding(
        f"{_named(event)} skips indices out of bounds, "
        f"{anomaly.elements} of {anomaly.of} elements, "
        f"and its source is a part of {src.allocation}",
        "a DMA that skips was once seen to write all the same where its source was a view of a "
        "part of a tensor (trn2, one remark, low confidence)",
        "copy the part to a tile of its own first",
        event,
    )


def _pattern_finding(event: Event, anomaly: Anomaly) -> Finding:
    """Return a finding on an index in bounds whose pattern leaves the tensor."""
    return PATTERN.finding(
        f"{event.opcode} skips {anomaly.elements} of {anomaly.of} indices that are in bounds, the "
        f"first is {anomaly.value:.0f}: the pattern from there on leaves the tensor",
        "oob_mode.skip leaves out all elements of an index if a part of them is out of bounds",
        "end the pattern inside the tensor, or use a last index whose pattern fits",
        event,
    )


@deduplicated
def find_unchecked_offsets(trace: Trace, machine: Machine) -> Found:
    """Yield findings on DMAs with a run-time offset that is read from inside a tensor."""
    if trace.dialect != "nki":
        return
    for event in trace.events:
        if event.engine is not Engine.DMA or len(event.reads) < 2:
            continue
        for region in event.reads:
            if region.role == "index" and region.elements == 1 and region.offset:
                yield OFFSET.finding(
                    f"{event.opcode} takes its offset from element {region.offset} of "
                    f"{region.allocation}",
                    "an offset that is itself a view with an offset was correct in a kernel that "
                    "ran alone, and wrong inside a model (trn2, one report)",
                    "copy the offset to a tile of its own, [1, 1], first",
                    event,
                )


def _additions(trace: Trace) -> Iterator[Finding]:
    """Yield findings on additions to tensors in HBM with unordered writes to the same places."""
    index = access_index(trace)
    if not index.has_scatter:
        return
    for touches in index.accesses.values():
        if touches[0].region.allocation.space.is_hbm and any(
            map(is_accumulation, touches)
        ):
            yield from _of_tensor(
                [t for t in touches if t.writes], touches[0].region.allocation
            )


def _of_tensor(
    writes: list[OperandAccess], allocation: Allocation
) -> Iterator[Finding]:
    """Yield findings on additions to a tensor, except races between two programs."""
    element_map = ElementMap([allocation], [touch.region for touch in writes])
    plain = element_map.filled(_NOBODY)
    """The place in ``writes`` of the last plain write of each cell."""
    added: dict[tuple[int, ...], Cells] = defaultdict(
        lambda: element_map.filled(_NOBODY)
    )
    """Program -> the place of its last addition to each cell."""
    for place, touch in enumerate(writes):
        event = touch.event
        region = touch.region
        if is_synchronization(event):
            for cells in (plain, *added.values()):
                cells[...] = _NOBODY
        elif not is_accumulation(touch):
            if element_map.is_exact(region):
                # a plain scatter takes the same queue as an adding one
                is_scatter = event.purpose is Purpose.SCATTER
                element_map.write(plain, region, _NOBODY if is_scatter else place)
        elif loses_additions(touch):
            yield from _twice(event, region)
            own = added[event.program]
            if element_map.is_exact(region):
                yield from _conflict(_again, touch, writes, element_map, own)
            yield from _conflict(_after, touch, writes, element_map, plain)
            element_map.write(own, region, place)


def _conflict(
    finding: Callable[[Event, Event, str], Finding],
    touch: OperandAccess,
    writes: list[OperandAccess],
    element_map: ElementMap,
    cells: Cells,
) -> Iterator[Finding]:
    """Yield a finding if an addition goes to cells that an earlier write has.

    ``cells`` are the places in ``writes`` of each cell's last write.
    """
    before = element_map.read(cells, touch.region)
    wrong = before != _NOBODY
    if wrong.any():
        other = writes[int(before[first_true(wrong)])].event
        at = f"element {list(element_map.element(touch.region, wrong))}"
        yield finding(touch.event, other, at)


def _twice(event: Event, region: Region) -> Iterator[Finding]:
    """Yield a finding if a scatter addresses a place more than once."""
    if region.places is None:
        return
    elements, counts = np.unique(region.places.elements, return_counts=True)
    if counts.max(initial=0) > 1:
        first = element_index(int(elements[counts > 1][0]), region.allocation)
        count = int(counts[counts > 1].sum())
        of = int(counts.sum())
        yield ADDED_TWICE.finding(
            f"{_named(event)} adds to one place more than once: {count} of {of} additions, the "
            f"first to element {list(first)}",
            "additions of one DMA to one place are not ordered, and some are lost",
            _REMEDY,
            event,
        )


def _again(event: Event, other: Event, at: str) -> Finding:
    return ADDED_TWICE.finding(
        f"{_named(event)} adds to {at}, to which another DMA has added",
        "additions of two DMAs to one row are not ordered, and some can be lost",
        _REMEDY,
        event,
        other,
        severity=WARNING,
    )


def _after(event: Event, other: Event, at: str) -> Finding:
    return AFTER_WRITE.finding(
        f"{_named(event)} adds to {at}, which {other.opcode} wrote before, and it is not a scatter",
        "a plain write and a scatter that adds run on different queues: one of 128 or 510 rows "
        "was lost (observed on trn1 and trn2)",
        "let a scatter that overwrites write each row first, or clear the tensor in another kernel",
        event,
        other,
    )


def _named(event: Event) -> str:
    return f"a scatter to {event.writes[0].allocation}"
