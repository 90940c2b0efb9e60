"""Compare a kernel's outputs with its reference's: pure functions on arrays.

The checks run in this order, and the first failure is reported: number of outputs, shape, dtype
(strict: no output is cast to the expected dtype), elements never written, places of NaN, places of
infinities, values. A comparison without any element is a failure. The sign of a zero and the
payload of a NaN are not compared.

The tolerance of a value is derived, not chosen (docs/explanation/tolerance.md). For n roundings of
size u each, gamma is the smaller of

- n u / (1 - n u), which always holds (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
  lemma 3.1);
- exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1 (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019,
  theorem 2.4), which holds with probability 1 - 2 exp(-lambda^2 (1 - u)^2 / 2) a sum if rounding
  errors are independent with mean zero: for random data only, on constant data they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.support.rounding import (
    Array,
    Float64,
    Mask,
    float_info,
    is_float_dtype,
    round_once,
    ulp,
    unit_roundoff,
)
from difftest.testing.contract.reference import array_bytes, as_float64
from difftest.testing.harness.verdict import (
    Inconclusive,
    Match,
    Mismatch,
    WrongElement,
    WrongOutput,
)

FAILURE_PROBABILITY = 1e-9
"""The largest probability that a right case is called wrong: one in a thousand million cases."""


def are_equal(ours: Sequence[Array], theirs: Sequence[Array]) -> bool:
    """Return whether two sets of outputs are equal in shapes, dtypes and bits, or in values."""
    return len(ours) == len(theirs) and all(
        (array.shape, array.dtype) == (other.shape, other.dtype)
        and (
            np.array_equal(array_bytes(array), array_bytes(other))
            or np.array_equal(array, other, True)
        )
        for array, other in zip(ours, theirs, strict=True)
    )


class Expected(NamedTuple):
    """The expectation of an output: its dtype, and the two bounds of its values.

    Attributes
    ----------
    value : the exact values, float64.
    dtype : the dtype that the output must have. The bounds are rounded into it.
    low, high : the bounds.
    question : "algorithm" or "arithmetic" if it is judged alone; empty for both together.
    exact : whether only equal values are right.
    doubt : the reason if nothing can be decided; else empty.
    """

    value: Float64
    dtype: np.dtype[Any]
    low: Array
    high: Array
    question: str = ""
    exact: bool = False
    doubt: str = ""

    def interval(self) -> tuple[Array, Array]:
        """Return the smallest and the largest correct value of each element, in ``dtype``."""
        return round_once(self.low, self.dtype), round_once(self.high, self.dtype)


def expected_within(
    value: Float64,
    dtype: np.dtype[Any],
    error: Float64 | float,
    question: str = "",
    **how: Any,
) -> Expected:
    """Return the expectation of an output that lies within ``error`` of its value."""
    return Expected(value, dtype, value - error, value + error, question, **how)


def worst_case_gamma(n: int, u: float) -> float:
    """Return Higham's n u / (1 - n u); infinite if n u >= 1, where no bound exists."""
    if n * u >= 1:
        return math.inf
    return n * u / (1 - n * u)


def probabilistic_gamma(n: int, u: float, elements: int) -> float:
    """Return Higham and Mary's bound for n roundings in each of ``elements`` elements."""
    if n == 0 or elements == 0:
        return 0.0
    factor = math.sqrt(2 * math.log(2 * n * elements / FAILURE_PROBABILITY)) / (1 - u)
    try:
        return math.expm1(factor * math.sqrt(n) * u + n * u * u / (1 - u))
    except OverflowError:
        return math.inf


def expected_with_roundings(
    value: Float64,
    dtype: np.dtype[Any],
    magnitude: Float64,
    roundings: tuple[int, np.dtype[Any]],
    random: bool = False,
) -> Expected:
    """Return the expectation of an output, with the error bound of its roundings.

    Parameters
    ----------
    value : the exact values, float64.
    dtype : the dtype of the output.
    magnitude : the same computation over absolute values.
    roundings : the number of roundings of an element, and the dtype into which they round.
    random : whether all inputs are random. Then the probabilistic bound applies.
    """
    n, accumulation = roundings
    u = unit_roundoff(accumulation)
    gamma = worst_case_gamma(n, u)
    if random:
        gamma = min(gamma, probabilistic_gamma(n, u, value.size))
    # A rounding whose result is subnormal adds half a unit.
    underflow = n * float(float_info(accumulation).smallest_subnormal) / 2
    with np.errstate(invalid="ignore", over="ignore"):
        error = gamma * magnitude + underflow
    error = np.where(np.isfinite(value) & ~np.isnan(error), error, 0.0)
    doubt = ""
    if gamma >= 1:
        doubt = (
            f"the error bound is {gamma:.2g} of the magnitude: {n} roundings into "
            f"{accumulation} may leave no digit right"
        )
    return expected_within(value, dtype, error, exact=n == 0, doubt=doubt)


Answer = Match | Mismatch | Inconclusive


def compare(
    expected: Sequence[Expected],
    outputs: Sequence[Array],
    unwritten: Sequence[Mask | None] = (),
) -> Answer:
    """Return the verdict on all outputs of one run, in the kernel's own dtypes.

    ``unwritten`` has None or a mask for each output. The mask is True where the kernel never wrote.
    ``unwritten`` is empty if the backend does not know.
    """
    forms = [(output.value, output.dtype) for output in expected]
    wrong = check_shapes(forms, outputs, unwritten)
    if wrong is not None:
        return wrong
    return merge_verdicts(
        list(map(check_values, range(len(outputs)), expected, outputs))
    )


def check_shapes(
    forms: Sequence[tuple[Array, np.dtype[Any]]],
    outputs: Sequence[Array],
    unwritten: Sequence[Mask | None],
) -> Answer | None:
    """Return the first error in the number, shapes, dtypes or written elements; None without one.

    ``forms`` are the expected values and dtypes. The values themselves are not compared.
    """
    if len(outputs) != len(forms):
        message = f"the kernel returned {arrays_text(len(outputs))}, the reference {len(forms)}"
        return Mismatch("outputs", None, message)
    masks = unwritten or (None,) * len(outputs)
    many = len(forms) > 1
    verdicts = [
        _check_form(index, form, got, mask, many=many)
        for index, (form, got, mask) in enumerate(
            zip(forms, outputs, masks, strict=True)
        )
    ]
    return first_mismatch(verdicts)


def arrays_text(arrays: int) -> str:
    """Return a number of arrays in words."""
    if arrays == 1:
        return "1 array"
    return f"{arrays or 'no'} arrays"


NAN_AGAINST_NAN = "the reference is finite nowhere, and NaN against NaN proves nothing"


def merge_verdicts(
    verdicts: Sequence[Answer | None], undecided: str = NAN_AGAINST_NAN
) -> Answer:
    """Return the verdict on a run from the verdicts on its outputs.

    It is a mismatch if the outputs have no element. If no element decides anything, it is
    inconclusive for the reason ``undecided``.
    """
    wrong = first_mismatch(verdicts)
    if wrong is not None:
        return wrong
    matches = [verdict for verdict in verdicts if isinstance(verdict, Match)]
    elements = sum(match.elements for match in matches)
    nonfinite = sum(match.nonfinite for match in matches)
    if elements:
        return Match(elements, all(match.exact for match in matches), nonfinite)
    if nonfinite:
        return Inconclusive(undecided, nonfinite)
    return Mismatch("empty", None, "no element was compared: the outputs are empty")


def first_mismatch(verdicts: Sequence[Answer | None]) -> Mismatch | Inconclusive | None:
    """Return the first mismatch, else the first inconclusive verdict, else None."""
    for kind in (Mismatch, Inconclusive):
        for verdict in verdicts:
            if isinstance(verdict, kind):
                return verdict
    return None


def _check_form(
    index: int,
    form: tuple[Array, np.dtype[Any]],
    got: Array,
    unwritten: Mask | None,
    *,
    many: bool,
) -> Mismatch | None:
    """Return the error in an output's shape, dtype or written elements; None without one.

    The message names the output if there are ``many``.
    """
    value, dtype = form
    of = f" of output {index}" if many else ""
    if got.shape != value.shape:
        message = (
            f"the kernel's shape{of} is {got.shape}, the reference's {value.shape}"
        )
        return Mismatch("shape", index, message)
    if got.dtype != dtype:
        message = f"the kernel's dtype{of} is {got.dtype}, expected is {dtype} (see output_dtype=)"
        return Mismatch("dtype", index, message)
    if unwritten is not None and unwritten.any():
        wanted = Expected(value=value, dtype=dtype, low=value, high=value)
        return _mismatch(index, "unwritten", unwritten, unwritten, wanted, got)
    return None


def check_values(index: int, expected: Expected, got: Array) -> Answer:
    """Return the verdict on the values of output ``index``, which has the expected form."""
    # a signalling NaN is a value to judge, not an error
    with np.errstate(invalid="ignore"):
        low, high, values = as_float64((*expected.interval(), got))
    inside = (low <= values) & (values <= high)
    outside: Mask = ~(inside | (np.isnan(values) & np.isnan(low)))
    if outside.any():
        kind, wrong = _worst_kind(values, low, high, outside)
        return _mismatch(index, kind, wrong, outside, expected, got)
    if expected.doubt:
        return Inconclusive(expected.doubt)
    finite = int((np.isfinite(low) & np.isfinite(high)).sum())
    return Match(finite, expected.exact, got.size - finite)


def _worst_kind(
    values: Float64, low: Float64, high: Float64, outside: Mask
) -> tuple[str, Mask]:
    """Return the kind of the worst wrong elements, and those elements."""
    places_of_nan = np.isnan(values) != np.isnan(low)
    if places_of_nan.any():
        return "nan", places_of_nan
    infinite = np.isinf(values) | np.isinf(low) | np.isinf(high)
    if (outside & infinite).any():
        return "infinity", outside & infinite
    return "value", outside


_MESSAGES = {
    "unwritten": "the kernel never wrote some elements",
    "nan": "the kernel has NaN where the reference has a number, or the other way round",
    "infinity": "the kernel has an infinity where the reference has none, or the other way round",
    "value": "values differ by more than rounding explains",
}
"""The message for each kind of mismatch, if algorithm and arithmetic are judged together."""
_ARITHMETIC = {
    "nan": "the arithmetic fails: the algorithm is correct, but the kernel has NaN where the "
    "algorithm has a number, or the other way round",
    "infinity": "the arithmetic overflows: the algorithm is correct, but the kernel has an "
    "infinity where the algorithm has none, or the other way round",
    "value": "the arithmetic is too coarse: it rounds more than dtypes explain",
}
"""The message for each kind of mismatch of the arithmetic alone."""


def _message(kind: str, expected: Expected) -> str:
    """Return the error of an output in one sentence."""
    if kind == "value" and expected.exact:
        is_float = is_float_dtype(expected.dtype)
        why = "nothing here rounds" if is_float else "these are integers"
        text = f"values differ, and {why}: each must be equal"
        if expected.question:
            return f"the arithmetic is wrong: the algorithm is correct, but {text}"
        return text
    if expected.question == "algorithm":
        if kind == "value":
            return "the algorithm differs: without rounding too, values are wrong"
        return f"without rounding too, {_MESSAGES[kind]}"
    if expected.question == "arithmetic":
        return _ARITHMETIC[kind]
    return _MESSAGES[kind]


def _mismatch(
    index: int, kind: str, wrong: Mask, every: Mask, expected: Expected, got: Array
) -> Mismatch:
    """Return the mismatch of an output.

    Parameters
    ----------
    wrong : the wrong elements of this kind; the first one is reported.
    every : all wrong elements.
    """
    low, high = expected.interval()
    value = expected.value
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    first = WrongElement(
        index=at,
        got="never written" if kind == "unwritten" else str(got[at]),
        expected=_number(value[at], expected.dtype),
        error=error_in_ulp(float(got[at]), float(value[at]), expected.dtype),
        allowed=_interval(str(low[at]), str(high[at])),
    )
    places = np.nonzero(every) if every.ndim else ()
    least, most = as_float64((low, high))
    return Mismatch(
        kind=kind,
        output=index,
        message=_message(kind, expected),
        elements=got.size,
        wrong=int(every.sum()),
        first=first,
        box=tuple((int(axis.min()), int(axis.max()) + 1) for axis in places),
        shape=got.shape,
        question=expected.question,
        evidence=WrongOutput(got, value, least, most, every),
    )


def _number(value: np.float64, dtype: np.dtype[Any]) -> str:
    """Return an expected number as text: without a point for integers."""
    if not is_float_dtype(dtype) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _interval(low: str, high: str) -> str:
    """Return the correct values of an element as text."""
    return f"exactly {low}" if low == high else f"{low} to {high}"


def error_in_ulp(got: float, expected: float, dtype: np.dtype[Any]) -> str:
    """Return the distance from the expected number in units in the last place, as text."""
    if not (np.isfinite(got) and np.isfinite(expected)):
        return "not finite"
    is_float = is_float_dtype(dtype)
    if is_float and abs(expected) < float(float_info(dtype).smallest_normal):
        least = "the least digits are" if expected else "0 is expected"
        return f"{abs(got - expected):.3g}, where {least}"
    distance = abs(got - expected) / float(ulp(np.asarray(expected), dtype))
    return f"{distance:.3g} ULP of {dtype}" if is_float else f"{distance:.3g}"
