"""The five possible verdicts on one case on one backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from difftest.support.rounding import Array, Float64, Mask


class Match(NamedTuple):
    """The outputs are right.

    Attributes
    ----------
    elements : the number of elements that were compared with a finite number.
    exact : whether they are equal, without any tolerance.
    nonfinite : the number of further right elements that prove nothing: the reference is not finite
        there, or any number is allowed.
    """

    elements: int
    exact: bool
    nonfinite: int = 0


@dataclass(frozen=True)
class WrongElement:
    """The first wrong element in row-major order, with numbers as their dtypes print them."""

    index: tuple[int, ...]
    got: str
    """The kernel's number."""
    expected: str
    error: str
    """The distance in units in the last place of the output's dtype, or in words."""
    allowed: str
    """The right values: one value, or the two ends of an interval."""
    exact: str = ""
    """The number of the exact run if that is judged; else empty. Then ``error`` and ``allowed``
    refer to it."""


class WrongOutput(NamedTuple):
    """The arrays of a wrong output.

    Attributes
    ----------
    got : the judged output, in its dtype.
    value : the right values, float64.
    low, high : the bounds of right values, float64.
    wrong : True for each wrong element.
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
    kind : the check that failed: "outputs", "shape", "dtype", "unwritten", "nan", "infinity",
        "value" or "empty", in the order of the checks; last "inputs", for a write to an input.
    output : index of the result; None if the number of results is wrong.
    message : the error in one sentence.
    elements, wrong : the number of compared elements, and the number of wrong ones.
    first : the first wrong element; None if no elements were compared.
    box : the smallest box that holds all wrong elements, (start, stop) of each axis.
    shape : the shape of the output.
    question : "algorithm" or "arithmetic" if one was judged alone; else empty.
    how : lines on the causes of the error and of its bound, the most important first.
    evidence : the arrays; None if no elements were compared.
    argument : the name of the argument that the result is; empty for a returned array.
    hidden : whether only the exact run shows the error: rounded into the output's dtype, its
        numbers are right.
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
    """The reference and the kernel both reject the case."""

    reference_error: BaseException
    kernel_error: BaseException


class OneSided(NamedTuple):
    """Only one side accepts the case, or one side crashed: always a failure.

    Attributes
    ----------
    failed : the side that failed: "kernel", "reference" or "backend".
    error : its error.
    how : "refused" if the other side accepts the case, "crashed" for a crash, or "unsupported" if
        the backend cannot run the kernel.
    """

    failed: str
    error: BaseException
    how: str = "refused"


class Inconclusive(NamedTuple):
    """The comparison decides nothing, for a ``reason``. It is counted and shown, never a pass.

    ``nonfinite`` counts as in :class:`Match`, if all elements are nonfinite.
    """

    reason: str
    nonfinite: int = 0


Verdict: TypeAlias = Match | Mismatch | BothRejected | OneSided | Inconclusive


def is_failure(verdict: Verdict) -> bool:
    """Return whether the verdict fails a test."""
    return isinstance(verdict, (Mismatch, OneSided))
