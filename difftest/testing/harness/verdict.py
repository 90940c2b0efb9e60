"""What can come of one case on one backend: a closed set of five, and the numbers they carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from difftest.support.rounding import Array, Float64, Mask


class Match(NamedTuple):
    """Each of the ``elements`` that were compared with a finite number is right.

    Whether ``exact``: equal, without rounding. ``nonfinite`` more are as they must be and prove
    nothing: the reference is not finite there, or any number is allowed.
    """

    elements: int
    exact: bool
    nonfinite: int = 0


@dataclass(frozen=True)
class WrongElement:
    """The first wrong element in row-major order; numbers as they print in their dtypes."""

    index: tuple[int, ...]
    got: str
    """The number that the kernel gave."""
    expected: str
    error: str
    """Distance in units in the last place of the output's dtype, or in words."""
    allowed: str
    """The right values: one, or the two ends of an interval."""
    exact: str = ""
    """The number of the exact run, where that is what is judged; else empty. Then ``error`` and
    ``allowed`` are about it."""


class WrongOutput(NamedTuple):
    """The arrays of a wrong output: what was ``got``, in its dtype, and where that is ``wrong``.

    ``value`` is right, float64; ``low`` and ``high`` are the bounds of what is right enough.
    """

    got: Array
    value: Float64
    low: Float64
    high: Float64
    wrong: Mask


@dataclass(frozen=True)
class Mismatch:
    """The kernel and its reference disagree.

    Attributes
    ----------
    kind : which check found it: "outputs", "shape", "dtype", "unwritten", "nan", "infinity",
        "value" or "empty", in the order in which they are made; at last "inputs", for a kernel
        that writes to one.
    output : index of the result; None if their number is wrong.
    argument : the kernel's argument that the result is; empty for a returned array.
    elements, wrong : elements compared, and how many of them are wrong.
    first : the first wrong element, where elements were compared.
    box : the smallest box that holds all wrong elements, (start, stop) of each axis.
    question : "algorithm" or "arithmetic" where the two were asked apart, else empty.
    how : lines that say how the allowed error came about, the most telling first.
    evidence : the arrays, where elements were compared.
    hidden : whether the exact run alone shows it: rounded into the output's dtype, its numbers are
        as good as the right ones.
    """

    kind: str
    output: int | None
    message: str
    elements: int = 0
    wrong: int = 0
    first: WrongElement | None = None
    box: tuple[tuple[int, int], ...] = ()
    shape: tuple[int, ...] = ()
    question: str = ""
    how: tuple[str, ...] = ()
    evidence: WrongOutput | None = field(default=None, compare=False, repr=False)
    argument: str = ""
    hidden: bool = False


class BothRejected(NamedTuple):
    """The reference and the kernel both refuse the case."""

    reference_error: BaseException
    kernel_error: BaseException


class OneSided(NamedTuple):
    """One accepts the case and the other does not, or something broke down: always a failure.

    The "kernel", the "reference" or the "backend" ``failed``: it "refused" what the other accepts,
    it "crashed", whatever the reference says, or the kernel is "unsupported" by the backend.
    """

    failed: str
    error: BaseException
    how: str = "refused"


class Inconclusive(NamedTuple):
    """The comparison can tell nothing, for this reason. Counted and shown, never taken as right.

    ``nonfinite`` is that of :class:`Match`, where all elements are such.
    """

    reason: str
    nonfinite: int = 0


Verdict: TypeAlias = Match | Mismatch | BothRejected | OneSided | Inconclusive


def is_failure(verdict: Verdict) -> bool:
    """Whether the verdict makes a test fail."""
    return isinstance(verdict, (Mismatch, OneSided))
