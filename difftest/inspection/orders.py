"""Whether a launch gives the same outputs in other orders of what claims to have none."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable

import numpy as np

from difftest.analysis.detectors.survey import adds
from difftest.analysis.purpose import Purpose, purpose
from difftest.simulator import NkiError
from difftest.simulator.baton import FORWARD, Order
from difftest.simulator.dtypes import Array
from difftest.simulator.exact.run import ExactOutput
from difftest.simulator.trace import Event, Location, Trace
from difftest.simulator.witness import Testimony

REVERSED = Order(reversed=True)
"""The last program first, to its end."""

SERIAL = Order(serial=True)
"""The first program first, to its end: those of today's dialect take turns otherwise."""

SHUFFLED = Order(seed=0)
"""Programs in an order that is the same each time."""

_FLOAT64 = 2.0**-20
"""Of a bound of float32's rounding errors, or a narrower dtype's: what float64 may add to it. The
units of the two are 2**-29 apart; long sums may be counted with the root of their length."""


def depends_on_order(
    testimony: Testimony, held: Iterable[Location | None], loop: Location | None = None
) -> bool:
    """Whether some other order gives other outputs, bit for bit, or does not end.

    The kernel runs once more for each; what it prints then is not shown. Random numbers are those
    of the launch: each program draws in each iteration what it drew there.

    Parameters
    ----------
    held : lines at which a program that may be late is.
    loop : the line of the loop whose iterations are reordered; None for the programs.
    """
    trace, orders = testimony.trace, [Order(loop, reversed=True), Order(loop, seed=0)]
    orders = orders_of(trace, held) if loop is None else orders
    sums = any(_adds_up(event, loop) for event in trace.events)
    return any(_differs(testimony, order, sums=sums) for order in orders)


def orders_of(trace: Trace, held: Iterable[Location | None]) -> list[Order]:
    """The orders of programs that may tell something: each costs as much as the launch itself."""
    late, programs = frozenset(held), {event.program for event in trace.events}
    lates = [Order(held=late), Order(held=late, reversed=True), Order(held=late, serial=True)]
    plain = [REVERSED, *[SHUFFLED] * (len(programs) > 2), *[SERIAL] * (trace.dialect == "nki")]
    return [*lates, *plain] if late else plain


def _adds_up(event: Event, loop: Location | None) -> bool:
    """Whether an instruction adds to what others put there: turns of the loop, or programs."""
    if loop is not None and all(turn.loop.location != loop for turn in event.loops):
        return False
    return adds(event) or (loop is not None and event.attributes.accumulate)


def _differs(testimony: Testimony, order: Order, *, sums: bool) -> bool:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            outputs = testimony.again(order)
        except (NkiError, AssertionError):  # it ran in the order of the simulator
            return True
    if len(outputs) != len(testimony.outputs):
        return True
    if all(map(_equal, outputs, testimony.outputs)):
        return False
    return not (sums and _is_rounding(testimony, order))


def _is_rounding(testimony: Testimony, order: Order) -> bool:
    """Whether without rounding the outputs are the same: sums are added up in another order."""
    if testimony.exactly is None:
        return False
    with contextlib.redirect_stdout(io.StringIO()):
        first, other = testimony.exactly(FORWARD), testimony.exactly(order)
    if not first:  # random numbers have no exact run: it can be told neither way
        random = Purpose.BITS, Purpose.DRAW
        return any(purpose(event) in random for event in testimony.trace.events)
    return len(first) == len(other) and all(map(_agree, first, other))


def _agree(first: ExactOutput, other: ExactOutput) -> bool:
    """Whether two exact runs differ by the roundings of float64 alone."""
    if first.value.shape != other.value.shape:
        return False
    errors = [output.error for output in (first, other) if output.error is not None]
    limit = _FLOAT64 * np.maximum.reduce(errors) if errors else 0.0
    with np.errstate(invalid="ignore"):
        near = np.abs(first.value - other.value) <= limit
    same = (first.value == other.value) | (np.isnan(first.value) & np.isnan(other.value))
    return bool(np.all(near | same))


def _equal(first: Array, other: Array) -> bool:
    return first.shape == other.shape and np.array_equal(
        np.ascontiguousarray(first).reshape(-1).view(np.uint8),
        np.ascontiguousarray(other).reshape(-1).view(np.uint8),
    )
