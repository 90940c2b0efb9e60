"""Published probes of single instructions on trn1, and what is predicted of them.

A probe is one instruction that a kernel repeats back to back on tensors in a ring, and its time is
the slope over the repeats (PROBE). Here the same trace is made by hand and predicted. The rows are
data (``data/probes-trn1.csv``); an operand is its memory, the bytes of an element and its shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from difftest.simulator.machine import TRN1
from difftest.simulator.trace import (
    Allocation,
    Attributes,
    Engine,
    Event,
    Kind,
    Purpose,
    Region,
    Space,
    Trace,
)
from difftest.timing.calibration import Judged, judge
from difftest.timing.evidence import rows_of
from difftest.timing.interval import Estimate, Interval
from difftest.timing.prediction import Prediction, predict

RING = 4
"""Tensors that the repeats write in turn (PROBE)."""
FEW, MANY = 32, 96
"""Repeats of the two traces whose times give the slope."""
RESOLUTION = 10.0
"""Nanoseconds to which the probes are given."""
_DTYPES = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4)}
"""A dtype of as many bytes: nothing else of it has a cost."""
_SPACES = {"sbuf": Space.SBUF, "psum": Space.PSUM, "hbm": Space.SHARED_HBM}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One published time; ``writes`` and ``reads`` are (memory, bytes of an element, shape)."""

    instruction: str
    purpose: Purpose
    engine: Engine
    writes: tuple[tuple[Space, int, tuple[int, int]], ...]
    reads: tuple[tuple[Space, int, tuple[int, int]], ...]
    op: str | None
    repeats: int
    """Instructions that the time is of."""
    measured: float
    """Nanoseconds, of all of them."""
    fitted: bool
    """Whether a cost of the model is taken from it, so that it judges nothing."""
    what: str


@cache
def probes() -> tuple[Probe, ...]:
    """Every row of ``data/probes-trn1.csv``."""
    return tuple(
        Probe(
            instruction=row["instruction"],
            purpose=Purpose(row["purpose"]),
            engine=Engine(row["engine"]),
            writes=_operands(row["writes"]),
            reads=_operands(row["reads"]),
            op=row["op"] or None,
            repeats=int(row["repeats"]),
            measured=float(row["measured_ns"]),
            fitted=row["fitted"] == "yes",
            what=row["what"],
        )
        for row in rows_of("probes-trn1")
    )


def _operands(text: str) -> tuple[tuple[Space, int, tuple[int, int]], ...]:
    operands = []
    for operand in text.split("; "):
        space, size, shape = operand.split()
        rows, columns = shape.split("x")
        operands.append((_SPACES[space], int(size), (int(rows), int(columns))))
    return tuple(operands)


def probed(probe: Probe) -> Judged:
    """What the model says of a probe, ns: the slope of two traces, and its interval."""
    few, many = (predict(_trace(probe, count), TRN1, dge=False) for count in (FEW, MANY))
    slope = (many.middle - few.middle) * 1e3 / (MANY - FEW) * probe.repeats

    def at(scale: float) -> Interval:
        return _around(many, slope, scale)

    name = f"probe of {probe.instruction} on {probe.engine.value}"
    return judge(name, probe.measured, slope, at)


def _around(prediction: Prediction, slope: float, scale: float) -> Interval:
    """The interval of the whole trace, as that of one of its instructions.

    What another compiler would leave out of it is no part: the probes' instructions were counted.
    """
    own = prediction.middle
    whole = Estimate(prediction.foundation, own, 0.0, 0.0, 0.0).interval(scale)
    return Interval(
        slope * whole.low / own - RESOLUTION / 2, slope * whole.high / own + RESOLUTION / 2
    )


def _trace(probe: Probe, count: int) -> Trace:
    trace = Trace()

    def region_of(operand: tuple[Space, int, tuple[int, int]]) -> Region:
        space, size, shape = operand
        number = len(trace.allocations)
        tensor = Allocation(number, space, shape, _DTYPES[size], 0, None, "", reads=1, writes=1)
        trace.allocations.append(tensor)
        return Region(tensor, 0, shape, (shape[1], 1))

    reads = tuple(map(region_of, probe.reads))
    ring = [tuple(map(region_of, probe.writes)) for _ in range(RING)]
    attributes = Attributes(op=probe.op)
    kind = Kind(probe.instruction, probe.engine, attributes, purpose=probe.purpose)
    for number in range(count):
        writes = ring[number % RING]
        trace.events.append(Event(number, kind, writes, reads))
    return trace
