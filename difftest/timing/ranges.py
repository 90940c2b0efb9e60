"""How far a figure may be from the truth: the range that each kind of evidence leaves.

A range is what one would bet nine to one on before any comparison with a device: the true time lies
between ``low`` and ``high`` times the model's. :mod:`difftest.timing.interval` makes of the ranges
that a kernel's time rests on the interval of the whole, and widens it by what the comparison of
whole kernels with devices showed. Rows whose evidence says less than most of their kind have a
range of their own (``data/ranges.csv``), each with a reason; every assumed row has one.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from difftest.timing.costs import Cost
from difftest.timing.data_files import rows_of
from difftest.timing.evidence import Evidence


class Range(NamedTuple):
    """Factors: the true time is from ``low`` to ``high`` times what the model says."""

    low: float
    high: float

    def with_all_of(self, other: Range) -> Range:
        """From the lower of the lows to the higher of the highs."""
        return Range(min(self.low, other.low), max(self.high, other.high))


MEASURED = Range(0.95, 1.05)
"""A row of cycles and start-up through many samples: what is left is contention."""
DOCUMENTED = Range(0.8, 1.3)
"""Formulas of the documentation, which were off by up to 30 % where traces could be compared."""
OTHER_MACHINE = Range(0.7, 1.5)
"""A row of trn2 taken for another machine: by so much trn1's probes were off before they were
known."""
ASSUMED = Range(0.5, 2.0)
"""Figures of the models of DMA and of the Tensor Engine that nobody published."""
GENERATED = Range(0.85, 1.1)
"""DMAs whose descriptors the device generates: from a few published latencies of kernels."""
ADDRESSED = Range(0.9, 1.35)
"""DMAs whose place a register names: GpSimd issues them in order, and each waits for a place, which
tiles of the last turn may still hold. In a trace with eight turns all but two had such a wait."""
ELEMENTS = Range(0.7, 1.3)
"""Rows of some bytes from the hardware's generator: with and without what lies between them."""
CHOSEN = Range(0.7, 1.2)
"""What runs on the engine that the compiler chooses: it is inferred which, and how the compiler
removes repeated copies is not modelled."""
PLACED = Range(0.4, 1.1)
"""What another instruction waited for, for its place in memory alone: the compiler may give the
tensor another place, so that nothing waits."""
PARTIAL = Range(0.85, 1.35)
"""Products that fill a part of the PE array: from as fast as whole ones, on trn2, to 1.6 times as
slow; on trn1 from 1.21 to 1.92 times, as they were probed."""
PROBED_PRODUCTS = Range(0.85, 1.65)
"""Products on trn1, of which one rate is taken: as far apart are the probes of whole ones."""
SPILLED = Range(0.9, 3.0)
"""A kernel of whose tensors half or more do not fit SBUF: what spilling costs is not modelled."""

BASE = "trn2"
"""The machine that most figures are of."""


def spilled(part: float) -> Range:
    """What spilling may do to a kernel's time; ``part`` of SBUF is what does not fit.

    One published matmul keeps 8 % more than fits, by the kernel here that follows its description,
    and takes no longer than one that fits.
    """
    most = SPILLED.high - 1.0
    return Range(SPILLED.low, 1.0 + most * min(1.0, 2.0 * part))


def range_of(cost: Cost) -> Range:
    """The range of an instruction's row."""
    own = own_ranges().get((cost.instruction, cost.evidence))
    if own is not None:
        return own
    if cost.evidence is Evidence.ASSUMED:
        if cost.machine != BASE:
            return OTHER_MACHINE
        raise ValueError(f"ranges.csv has no range for the assumed cost of {cost.instruction}")
    return MEASURED if cost.evidence is Evidence.MEASURED else DOCUMENTED


def range_of_evidence(evidence: Evidence, machine: str) -> Range:
    """The range of the models of DMA and of the Tensor Engine, by what they rest on."""
    if evidence is Evidence.MEASURED:
        return MEASURED
    if evidence is Evidence.DOCUMENTED:
        return DOCUMENTED
    return ASSUMED if machine == BASE else OTHER_MACHINE


@cache
def own_ranges() -> dict[tuple[str, Evidence], Range]:
    """``data/ranges.csv``: instruction and evidence -> the range of such rows."""
    return {
        (row["instruction"], Evidence(row["evidence"])): Range(
            float(row["low"]), float(row["high"])
        )
        for row in rows_of("ranges")
    }
