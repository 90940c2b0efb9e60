"""Values that a device handles in unexpected ways: NaN, infinities, integers.

Anomalies of values are in the trace (:class:`~difftest.simulator.trace.Anomaly`). Sums that grow in
a narrow dtype, which rounds at each addition, follow from the trace alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from difftest.analysis.detectors.access_index import access_index, is_accumulating_dma
from difftest.analysis.finding import (
    ERROR,
    NOTE,
    WARNING,
    Finding,
    Found,
    Hazard,
    deduplicated,
    group_by,
)
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Anomaly, AnomalyKind, Event, Purpose, Region, Trace

NAN_MADE = Hazard(
    "nan-made", WARNING, "an instruction makes a NaN of numbers, and it counts"
)
INFINITY_MADE = Hazard(
    "infinity-made", WARNING, "an instruction makes an infinity of finite numbers"
)
ACTIVATION_RANGE = Hazard(
    "activation-range", WARNING, "an activation gets an argument outside its range"
)
INTEGER_ROUNDED = Hazard(
    "integer-rounded", WARNING, "an integer beyond 2**24 goes through float32"
)
FLOAT8_CODES = Hazard(
    "float8-codes", ERROR, "float8 codes that trn1 and trn2 do not have"
)
NAN_SEARCHED = Hazard(
    "nan-searched", ERROR, "a search for the largest values gets a NaN"
)
HAZARDS = (
    NAN_MADE,
    INFINITY_MADE,
    ACTIVATION_RANGE,
    INTEGER_ROUNDED,
    FLOAT8_CODES,
    NAN_SEARCHED,
)

_WIDE = 4
"""Bytes of an integer that float32 may be unable to represent."""

Noted = list[tuple[Event, Anomaly]]


def find_numeric_anomalies(trace: Trace, machine: Machine) -> Iterator[Finding]:
    """Yield findings on hazards in the values of a launch."""
    anomalies = (
        (event, anomaly) for event in access_index(trace).seen for anomaly in event.seen
    )
    noted = group_by(anomalies, lambda pair: pair[1].what)
    if not noted:
        return
    nans = noted.get(AnomalyKind.NAN_MADE, [])
    seen = noted.get(AnomalyKind.NAN_STORED, [])
    yield from _made_findings(
        NAN_MADE, "NaN", nans, seen + noted.get(AnomalyKind.NAN_COMPARED, [])
    )
    infinities = noted.get(AnomalyKind.INFINITY_MADE, [])
    stored = noted.get(AnomalyKind.INFINITY_STORED, [])
    yield from _made_findings(INFINITY_MADE, "infinity", infinities, stored)
    if not any(is_output(event) for event, _ in stored):
        yield from map(
            _hidden_finding, anomalies_by_line(_lost_numbers(infinities, trace))
        )
    yield from map(
        _out_of_range, anomalies_by_line(noted.get(AnomalyKind.OUT_OF_RANGE, []))
    )
    counted = _counted(noted.get(AnomalyKind.INTEGER_ROUNDED, []), trace)
    yield from map(_rounding_finding, anomalies_by_line(counted))
    for events in anomalies_by_line(noted.get(AnomalyKind.FLOAT8_CODE, [])):
        yield _float8_finding(events, machine)
    for events in anomalies_by_line(noted.get(AnomalyKind.NAN_SEARCHED, [])):
        yield _search_finding(events, trace)


def anomalies_by_line(noted: Noted) -> list[Noted]:
    """Group the anomalies by the kernel's lines."""
    return list(group_by(noted, lambda pair: pair[0].location).values())


def describe_share(anomaly: Anomaly) -> str:
    """Return the number of affected elements, and the first, in words."""
    place = f" at {list(anomaly.first)}" if anomaly.of > 1 else ""
    return f"{anomaly.elements} of {anomaly.of} elements, the first{place}"


def is_output(event: Event) -> bool:
    """Return whether the destination of an event is an output of the kernel."""
    return event.writes[0].allocation.output is not None


def _made_findings(
    hazard: Hazard, what: str, makers: Noted, stores: Noted
) -> Iterator[Finding]:
    """Yield a finding on the first NaN or infinity if one reaches an output afterwards."""
    output = _first_output(stores)
    if not makers or output is None:
        return
    maker, anomaly = next((pair for pair in makers if not _is_fill(*pair)), makers[0])
    operands = "finite operands"
    severity = WARNING
    if hazard is NAN_MADE:
        operands = "operands that have none"
    elif anomaly.value is None or _is_fill(maker, anomaly):
        # exp of a large number is intended; a cast that loses one is not.
        severity = NOTE
    store, stored = output
    end = f"{stored.elements} elements that are {what} were stored to "
    end += str(store.writes[0].allocation)
    if stored.what is AnomalyKind.NAN_COMPARED:
        end = f"{_named(store)} compared {stored.elements} elements that are {what}, which hides it"
    origin = "" if anomaly.value is None else f", of {anomaly.value:g}"
    yield hazard.finding(
        f"{_named(maker)} made the first {what} of {operands} "
        f"({describe_share(anomaly)}{origin}), and {end}",
        "a device computes on with it, and engines need not treat it as NumPy does; a run "
        "that ends with one can be reported as a numerical error",
        "guard the operand (a maximum before a division, an epsilon under a root), subtract "
        "the row's maximum before exp, scale before a cast to a narrow dtype",
        maker,
        store,
        severity=severity,
    )


def _first_output(stores: Noted) -> tuple[Event, Anomaly] | None:
    """Return the first store to an output, else the first comparison; None without either."""
    for event, anomaly in stores:
        if is_output(event):
            return event, anomaly
    for event, anomaly in stores:
        if anomaly.what is AnomalyKind.NAN_COMPARED:
            return event, anomaly
    return None


def _counted(rounded: Noted, trace: Trace) -> Noted:
    """Drop rounded integers that may have any value, or are floats that are whole by chance."""
    if not rounded:
        return []
    harmless = _random(trace) | _products_of_floats(trace)
    return [pair for pair in rounded if pair[0].number not in harmless]


def _lost_numbers(infinities: Noted, trace: Trace) -> Noted:
    """Return the infinities that a cast made of numbers, and that count.

    A minimum may be an infinity. Rounded extreme values do not count if only ``tensor_reduce``
    reads and ignores them.
    """
    constants = Purpose.FILL, Purpose.SELECT
    made = [pair for pair in infinities if pair[0].purpose not in constants]
    lost = [pair for pair in made if pair[1].value is not None]
    ends = _reductions_of({event.writes[0].allocation.id for event, _ in lost}, trace)
    return [
        (event, anomaly)
        for event, anomaly in lost
        if ends[event.writes[0].allocation.id] != {_ignored_by(anomaly)}
    ]


def _ignored_by(anomaly: Anomaly) -> str:
    """Return the reduction that ignores an infinity."""
    if (anomaly.value or 0) < 0:
        return "max"
    return "min"


def _reductions_of(tensors: set[int], trace: Trace) -> dict[int, set[str]]:
    """Return the reductions that read each tensor, by three letters; "" for other readers."""
    ends: dict[int, set[str]] = {tensor: set() for tensor in tensors}
    if not ends:
        return ends
    for event in trace.events:
        reduces = event.opcode == "tensor_reduce"
        name = str(event.attributes.op)[:3] if reduces else ""
        for region in event.reads:
            if region.allocation.id in ends:
                ends[region.allocation.id].add(name)
    return ends


def _hidden_finding(noted: Noted) -> Finding:
    """Return a finding on a cast that makes an infinity which no output shows."""
    event, anomaly = noted[0]
    return INFINITY_MADE.finding(
        f"{_named(event)} made an infinity of {anomaly.value:g} ({describe_share(anomaly)}), "
        "which a later instruction hides: no output has one",
        "a number beyond the largest of a narrow dtype is lost, even if a minimum or a quotient "
        "turns the infinity into a finite number",
        "scale before the cast, or keep the tile in float32 or bfloat16",
        *(event for event, _ in noted),
    )


def _is_fill(event: Event, anomaly: Anomaly) -> bool:
    """Return whether an infinity is range_select's fill in a narrow dtype, which is fixed."""
    return event.purpose is Purpose.SELECT and anomaly.value == float(
        np.finfo(np.float32).min
    )


def _out_of_range(noted: Noted) -> Finding:
    event, anomaly = noted[0]
    return ACTIVATION_RANGE.finding(
        f"{_named(event)} got {anomaly.value!r}, outside its range ({describe_share(anomaly)})",
        "outside its valid range the hardware's result of an activation function is invalid",
        "scale or clamp the input first; a row that nobody uses does no harm",
        *(event for event, _ in noted),
    )


def _rounding_finding(noted: Noted) -> Finding:
    """Return a finding on an integer that float32 rounded."""
    event, anomaly = noted[0]
    value = "" if anomaly.value is None else f" {anomaly.value:.0f}"
    return INTEGER_ROUNDED.finding(
        f"{_named(event)} computed the integer{value} in float32, which does not have it "
        f"({describe_share(anomaly)})",
        "but for the sums, differences and products of two 32-bit integer tiles, the engines "
        "compute in float32, exact for integers up to 2**24",
        "keep the numbers below 2**24, split them into two, or use nisa.tensor_tensor on "
        "int32 tiles",
        *(event for event, _ in noted),
    )


def _random(trace: Trace) -> set[int]:
    """Return the numbers of events that make floats of random bits; any result is right."""
    bits: set[int] = set()
    scaled: set[int] = set()
    for event in trace.events:
        follows = any(region.allocation.id in bits for region in event.reads)
        for region in event.writes:
            tensor = region.allocation
            if event.purpose is Purpose.BITS or (follows and tensor.dtype.kind in "iu"):
                bits.add(tensor.id)
            else:
                bits.discard(tensor.id)
                if follows:
                    scaled.add(event.number)
    return scaled


def _products_of_floats(trace: Trace) -> set[int]:
    """Return the numbers of matrix products without a copy to 32-bit integers.

    Float data may be whole numbers by chance; their products are rounded like others.
    """
    sums: dict[int, set[int]] = {}
    floats: set[int] = set()
    for event in trace.events:
        held: set[int] = set()
        for region in event.reads:
            held |= sums.get(region.allocation.id, set())
        if event.purpose is Purpose.PRODUCT:
            floats.add(event.number)
            held.add(event.number)
        elif event.purpose not in (Purpose.COPY, Purpose.TRANSPOSE):
            held = set()
        for region in event.writes:
            before = sums.get(region.allocation.id, set())
            # tiles are written in parts
            sums[region.allocation.id] = held and before | held
            dtype = region.allocation.dtype
            if dtype.kind in "iu" and dtype.itemsize == _WIDE:
                floats -= held
    return floats


def _float8_finding(noted: Noted, machine: Machine) -> Finding:
    """Return a finding on float8 codes that the machine lacks."""
    event, anomaly = noted[0]
    return FLOAT8_CODES.finding(
        f"{_named(event)} read {anomaly.value!r} as float8_e4m3fn on {machine.name} "
        f"({describe_share(anomaly)})",
        "NeuronCore-v2 and v3 have float8_e4m3 with a largest value of 240: they read the "
        "codes of 256 to 448 as an infinity or NaN",
        "scale the data to at most 240 and pass float8_e4m3, or use trn3",
        *(event for event, _ in noted),
    )


def _search_finding(noted: Noted, trace: Trace) -> Finding:
    """Return a finding on a search among NaN; an error if its result addresses memory."""
    event, anomaly = noted[0]
    access = _addressed(event, trace)
    searched = f"{describe_share(anomaly)} of its {anomaly.role}"
    happened = f"{_named(event)} searched among NaN ({searched})"
    if access is not None:
        happened += f", and {_named(access)} takes the indices that came of it"
    return NAN_SEARCHED.finding(
        happened,
        "a NaN is not among the largest values on a device: the indices of a row of NaN are "
        "0xFFFFFFFF, and a gather that uses them faults",
        "select before the search: another number where the data are not equal to "
        "themselves (nl.maximum gives NaN)",
        *(event for event, _ in noted),
        severity=WARNING if access is None else ERROR,
        lines=(event.location, None if access is None else access.location),
    )


def _addressed(search: Event, trace: Trace) -> Event | None:
    """Return the first event with indices that follow from a search; None if there is none."""
    follows = {region.allocation.id for region in search.writes}
    for event in trace.events:
        if event.number <= search.number:
            continue
        read = [region for region in event.reads if region.allocation.id in follows]
        if any(region.role == "index" for region in read):
            return event
        if read:
            follows |= {region.allocation.id for region in event.writes}
    return None


def _named(event: Event) -> str:
    op = event.attributes.op
    if op:
        return f"{event.opcode}({op})"
    return event.opcode


NARROW = Hazard(
    "narrow-accumulation", WARNING, "a running sum is kept in a narrow dtype"
)

LONGEST = {
    "bfloat16": 16,
    "float16": 128,
    "float8_e4m3": 4,
    "float8_e5m2": 4,
    "float8_e4m3fn": 4,
}
"""The number of additions in a row whose roundings may reach a sixteenth of the sum, and at least
four. Each rounding is half a unit in the last place."""
_longest = functools.cache(lambda dtype: LONGEST.get(dtype.name))

Part = tuple[int, int, tuple[int, ...], tuple[int, ...]]


@deduplicated
def find_narrow_accumulation(trace: Trace, machine: Machine) -> Found:
    """Yield findings on chains of additions with a running sum in a narrow dtype."""
    narrow = _narrow_tensors(trace)
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
            yield _narrow_sum(event, region, length)


def _narrow_tensors(trace: Trace) -> dict[int, int]:
    """Return the longest chain of additions for each tensor of a narrow dtype, by id."""
    longest = {base.id: _longest(base.dtype) for base in trace.allocations}
    return {number: most for number, most in longest.items() if most}


def _length(event: Event, written: Region, sums: dict[Part, int]) -> int:
    """Return the number of additions in a row in a written sum; 0 if the event adds nothing."""
    if not _adds(event):
        return 0
    dtype = written.allocation.dtype
    elements = written.elements
    longest = 0
    for term in event.reads:
        if (
            term.allocation.dtype == dtype
            and term.elements == elements
            and term.view is None
        ):
            longest = max(longest, 1 + sums.get(_part(term), 0))
    return longest


def _adds(event: Event) -> bool:
    """Return whether a result is the sum of tensors: each addition rounds."""
    if event.attributes.accumulate:
        return True
    if event.purpose is Purpose.COMBINE:
        last = (event.attributes.op or "").rpartition("+")[2]
        return last in ("add", "subtract")
    if event.purpose is Purpose.SUM:
        return len(event.reads) > 1
    return is_accumulating_dma(event)


def _part(region: Region) -> Part:
    return region.allocation.id, region.offset, region.shape, region.strides


def _narrow_sum(event: Event, region: Region, length: int) -> Finding:
    return NARROW.finding(
        f"{length} additions in a row were each rounded to {region.dtype.name}, in "
        f"{region.allocation}",
        "an instruction rounds its result to the destination's dtype: a running sum in a "
        "narrow dtype loses terms that are smaller than half a unit in its last place",
        "keep the running sum in float32 (PSUM accumulates so), and round it once at the end",
        event,
    )
