"""Places that an instruction looks up: the exact run's, and bounds on a machine's.

A rounding can change the order of two values, or turn a value into 0. A place is open where the
bounds of the values allow several. Its bound is then the distance between the first and the last of
them, so that it covers any two choices. All other places are sure, and have the bound 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from difftest.simulator.dtypes import Array, DType
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import Bounded, Float64, element_bounds
from difftest.simulator.instructions.record import CheckedCall, MaskedValues
from difftest.simulator.instructions.search import EIGHT, ranks_of
from difftest.simulator.instructions.values import rows

LOOKED_UP = "places of rounded values are looked up"


class Doubting(Protocol):
    """The part of the launch's exact run that a look-up needs."""

    def doubt(self, reason: str, *, lost: bool, is_open: bool = False) -> None: ...


class PlacesOfEight(NamedTuple):
    """The places of 8 values a partition.

    Attributes
    ----------
    place : the places of the exact values, [P, 8]; -1 for a value that is not in the data.
    apart : the distance between the first and the last possible place, [P, 8]; 0 for a sure place.
    possible : the elements that are possible at open places, [P, N].
    """

    place: Array
    apart: Float64
    possible: Array


def look_up(data: Bounded, vals: Bounded, *, backwards: bool = False) -> PlacesOfEight:
    """Return the places of 8 values in the data, as the machine's ``matches`` finds them."""
    lines = rows(data.value)
    wanted = rows(vals.value)
    near, far = (
        np.zeros(plane.shape) if x.error is None else rows(element_bounds(x))
        for x, plane in ((data, lines), (vals, wanted))
    )
    ranks = ranks_of(wanted, backwards=backwards)
    place = np.full(wanted.shape, -1)
    apart = np.zeros(wanted.shape)
    possible = np.zeros(lines.shape, np.bool_)
    for k in range(EIGHT):
        value = wanted[:, k : k + 1]
        error = far[:, k : k + 1] + near
        same = lines == value
        taken = same & (np.cumsum(same, axis=1) == ranks[:, k : k + 1] + 1)
        is_there = taken.any(axis=1)
        place[is_there, k] = np.argmax(taken[is_there], axis=1)
        maybe = same | (np.abs(lines - value) <= error)
        is_open = (maybe & (error > 0)).any(axis=1)
        is_open &= (np.count_nonzero(maybe, axis=1) > 1) | ~is_there
        first = np.argmax(maybe, axis=1)
        last = lines.shape[1] - 1 - np.argmax(maybe[:, ::-1], 1)
        apart[:, k] = np.where(is_open, last - first, 0)
        apart[is_open & ~is_there, k] = np.inf  # the machine may or may not find it
        possible |= maybe & is_open[:, None]
    return PlacesOfEight(place, apart, possible)


def find_index8(
    run: Doubting, call: CheckedCall, data: Bounded, vals: Bounded
) -> Bounded | None:
    """Return the places that ``nc_find_index8`` writes; None if all are sure."""
    if data.error is None and vals.error is None:
        return None
    found = look_up(data, vals)
    dtype = _dtype(call, "dst")
    place = np.where(found.place < 0, np.iinfo(dtype).max, found.place)
    return _places(run, place, found.apart, dtype)


def match_replace8(
    run: Doubting, call: CheckedCall, data: Bounded, vals: Bounded, imm: float
) -> tuple[Bounded | None, Bounded | None]:
    """Return the numbers and the places that ``nc_match_replace8`` writes.

    The bound of an element at an open place holds both values: it is replaced or not.
    """
    number = bounded.number(imm)
    if data.error is None and vals.error is None and number.error is None:
        return None, None
    found = look_up(data, vals, backwards=call["backwards"])
    places = _places(run, found.place, found.apart, _dtype(call, "dst_idx"))
    value = rows(data.value).copy()
    kept = rows(data.value)
    error = np.zeros(value.shape)
    if data.error is not None:
        error = rows(element_bounds(data)).copy()
    by_number = 0.0 if number.error is None else float(number.error)
    row, k = np.nonzero(found.place >= 0)
    column = found.place[row, k]
    either = np.abs(kept - number.value) + np.maximum(error, by_number)
    value[row, column] = number.value
    error[row, column] = by_number
    error = np.where(found.possible, either, error)
    made = Bounded(
        value.reshape(data.value.shape), error.reshape(data.value.shape), data.dtype
    )
    return made, places


def nonzero(run: Doubting, call: CheckedCall, src: Bounded) -> MaskedValues | None:
    """Return the values that ``nonzero_with_count`` writes; None if no element's truth is open.

    All places after the first open element may change.
    """
    if src.error is None:
        return None
    lines = rows(src.value)
    errors = rows(element_bounds(src))
    is_open = (np.abs(lines) <= errors) & (errors > 0)
    firsts = np.arange(0, len(lines), call.machine.gpsimd_core_partitions)
    if not is_open[firsts].any():
        return None
    run.doubt(LOOKED_UP, lost=False)
    length = lines.shape[1]
    value = np.full((len(lines), length + 1), float(call["padding_val"]))
    error = np.zeros(value.shape)
    chosen = np.zeros(value.shape, np.bool_)
    widest = abs(call["padding_val"] - call["index_offset"]) + length
    for p in firsts:
        chosen[p] = True
        places = np.flatnonzero(lines[p])
        value[p, : places.size] = places + call["index_offset"]
        value[p, -1] = places.size
        if is_open[p].any():
            sure = np.count_nonzero(places < np.argmax(is_open[p]))
            error[p, sure:-1] = widest
            error[p, -1] = np.count_nonzero(is_open[p])
    shape = call.result.shape
    numbers = Bounded(value.reshape(shape), error.reshape(shape), call.result.dtype)
    return MaskedValues(numbers, chosen.reshape(shape))  # type: ignore[arg-type]


def order_of(run: Doubting, x: Bounded, kind: Any) -> Bounded:
    """Return the places of the values of each row in ascending order.

    Values whose bounds overlap, each with the next, may be in any order among themselves.
    """
    order = np.argsort(x.value, axis=1, kind=kind)
    if x.error is None:
        return Bounded(order.astype(np.float64))
    low, high = (np.take_along_axis(end, order, axis=1) for end in bounded.ends(x))
    starts = _starts(low, high)
    group = np.cumsum(starts.reshape(-1)) - 1
    at = np.flatnonzero(starts)
    flat = order.reshape(-1)
    apart = np.maximum.reduceat(flat, at) - np.minimum.reduceat(flat, at)
    rounded = np.maximum.reduceat((high - low).reshape(-1), at) > 0
    apart = np.where(rounded, apart, 0)[group].reshape(order.shape)
    if not apart.any():
        return Bounded(order.astype(np.float64))
    run.doubt(LOOKED_UP, lost=False)
    return Bounded(order.astype(np.float64), apart.astype(np.float64))


def sure_order(x: Bounded) -> tuple[Array, Array]:
    """Return the ascending order of each row's values, and where no rounding can change it."""
    order = np.argsort(x.value, axis=1)
    low, high = (np.take_along_axis(end, order, axis=1) for end in bounded.ends(x))
    starts = _starts(low, high)
    ends = np.ones(starts.shape, np.bool_)
    ends[:, :-1] = starts[:, 1:]
    return order, starts & ends


def _starts(low: Float64, high: Float64) -> Array:
    """Return where groups of values with overlapping bounds begin, for rows in ascending order."""
    reach = np.maximum.accumulate(high, axis=1)
    rest = np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1]
    starts = np.ones(low.shape, np.bool_)
    starts[:, 1:] = reach[:, :-1] < rest[:, 1:]
    return starts


def _dtype(call: CheckedCall, role: str) -> DType:
    """Return the dtype of a destination."""
    dst = call.destinations.get(role)
    if dst is None:
        return call.result.dtype
    return dst.dtype


def _places(
    run: Doubting, place: Array, apart: Float64, dtype: DType
) -> Bounded | None:
    if not apart.any():
        return None
    run.doubt(LOOKED_UP, lost=False)
    return Bounded(place.astype(np.float64), apart, dtype)
