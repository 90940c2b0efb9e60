"""Whether a launch gives the same outputs in other orders of what claims to have none."""

from __future__ import annotations

import contextlib
import io

import numpy as np

from difftest.analysis.detectors.survey import survey_of
from difftest.simulator import NkiError
from difftest.simulator.dtypes import Array
from difftest.simulator.exact.run import ExactOutput
from difftest.simulator.ordering import FORWARD, Order
from difftest.simulator.trace import Trace
from difftest.simulator.witness import Testimony

REVERSED = Order(reversed=True)
"""The last iteration and the last program first."""

SHUFFLED = Order(seed=0)
"""Iterations in an order that is the same each time."""

IN_TURN = Order(interleaved=True)
"""Programs that take turns at each access to what they share: who writes something and reads it
back gets what another program has written in between. Those of today's dialect do anyway."""

AT_RANDOM = Order(seed=0, interleaved=True)
"""The same, whoever's turn it is."""


_FLOAT64 = 2.0**-20
"""Of a bound of float32's rounding errors, or a narrower dtype's: what float64 may add to it. The
units of the two are 2**-29 apart; long sums may be counted with the root of their length."""

DRAWS = frozenset({"rand", "rand2", "rng", "dropout"})
"""Instructions that draw random numbers: in another order each gets others."""


def depends_on_order(testimony: Testimony) -> bool:
    """Whether some other order gives other outputs, bit for bit, or does not end.

    The kernel runs once more for each; what it prints then is not shown. Of a kernel that draws
    random numbers nothing can be told so.
    """
    trace = testimony.trace
    if any(event.opcode in DRAWS for event in trace.events):
        return False
    return any(_differs(testimony, order) for order in orders_of(trace))


def orders_of(trace: Trace) -> list[Order]:
    """The orders that may tell something: each costs as much as the launch itself."""
    programs = len({event.program for event in trace.events})
    orders = [REVERSED]
    if programs > 2 or survey_of(trace).has_affine:  # two are reversed or not
        orders.append(SHUFFLED)
    if programs > 1:
        orders += [AT_RANDOM] if trace.dialect == "nki" else [IN_TURN, AT_RANDOM]
    return orders


def _differs(testimony: Testimony, order: Order) -> bool:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            outputs = testimony.again(order)
        except (NkiError, AssertionError):  # it ran in the order of the simulator
            return True
    if len(outputs) != len(testimony.outputs):
        return True
    return not all(map(_equal, outputs, testimony.outputs)) and not _is_rounding(testimony, order)


def _is_rounding(testimony: Testimony, order: Order) -> bool:
    """Whether without rounding the outputs are the same: sums are added up in another order."""
    if testimony.exactly is None:
        return False
    with contextlib.redirect_stdout(io.StringIO()):
        one, other = testimony.exactly(FORWARD), testimony.exactly(order)
    return bool(one) and len(one) == len(other) and all(map(_agree, one, other))


def _agree(one: ExactOutput, other: ExactOutput) -> bool:
    """Whether two exact runs differ by the roundings of float64 alone."""
    if one.value.shape != other.value.shape:
        return False
    errors = [output.error for output in (one, other) if output.error is not None]
    limit = _FLOAT64 * np.maximum.reduce(errors) if errors else 0.0
    with np.errstate(invalid="ignore"):
        near = np.abs(one.value - other.value) <= limit
    same = (one.value == other.value) | (np.isnan(one.value) & np.isnan(other.value))
    return bool(np.all(near | same))


def _equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.array_equal(
        np.ascontiguousarray(one).reshape(-1).view(np.uint8),
        np.ascontiguousarray(other).reshape(-1).view(np.uint8),
    )
