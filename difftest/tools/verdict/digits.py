"""Limit the digits that a kernel may lose, by its task and not by its own instructions.

The error bound of an exact run follows from a kernel's instructions. A kernel that adds a large
number and subtracts it again has a bound that allows any digits. So the judge also measures the
errors, in units that the kernel cannot change:

- an element may err by a unit of its own value, plus the change of the reference when its inputs
  change by that unit. A unit is the unit roundoff of the coarsest dtype of the contract;
- the typical error, the root of the mean square over all elements, is limited by the number of
  terms that the reference adds;
- the largest error is limited by a multiple of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from difftest.simulator.dtypes import NKI_NAMES
from difftest.support.rounding import Array, Float64, is_float_dtype, ulp, unit_roundoff
from difftest.testing.backends.base import Backend, Completed, KernelCall
from difftest.testing.contract.reference import as_float64
from difftest.testing.harness.compare import check_values, expected_within
from difftest.testing.harness.differential import (
    ARITHMETIC,
    FLOAT32_UNIT,
    ReferenceResult,
)
from difftest.testing.harness.runner import Runner, Trial
from difftest.testing.harness.verdict import Mismatch

SAFETY = 3.0
"""The limits, as multiples of the errors of the honest kernels in ``test_digits``."""
BASE = 1.0
"""The typical error of a value that a kernel rounds a few times, in units of the accumulation."""
NARROW = 0.16
"""The typical error beyond the last rounding, in units of a narrower dtype of the contract."""
MARGIN = 1.5
"""The limit for sums, as a multiple of the error of the case's own terms in their order."""
SUM_GROWTH = 0.25
"""The typical error of a sum in order of n terms, divided by the square root of n.

A rounding of a partial sum errs by 0.41 units (uniform in half a unit in the last place). The
partial sums of equal terms are k/n of the whole, so n roundings err by 0.41 * sqrt(n / 3)."""
LARGEST = 16.0
"""The largest error of an element, as a multiple of the typical error of a value.

A kernel may cancel between its instructions, as in ``1 - tanh(x)``."""
DEVIATIONS = 4.0
"""The largest error by sums and narrow roundings, as a multiple of the typical one."""
_SAMPLES = 4
"""The elements of each input that :func:`sums_of` changes."""
_ALIKE = 2
"""The elements that suffice if they change equally many elements of the output."""


class StrictRunner(Runner):
    """A runner that also rejects outputs with larger errors than their task excuses."""

    def suspected(
        self, trial: Trial, backend: Backend, call: KernelCall, ran: Completed
    ) -> Mismatch | None:
        """Return the inherited mismatch, else the first output that has lost too many digits."""
        wrong = super().suspected(trial, backend, call, ran)
        if wrong is not None:
            return wrong
        reference = trial.reference
        exact = ran.exact
        if not isinstance(reference, ReferenceResult):
            return None
        if exact is None or not exact.has_meaning:
            return None
        values: Sequence[Array] = [output.value for output in exact.outputs]
        if exact.doubts:
            values = reference.precise
        for index, (got, value, _) in enumerate(
            zip(ran.outputs, values, reference.forms, strict=False)
        ):
            wrong = lost_digits(reference, index, got, value.astype(np.float64))
            if wrong is not None:
                return wrong
        return None


def lost_digits(
    reference: ReferenceResult, index: int, got: Array, value: Float64
) -> Mismatch | None:
    """Return a mismatch if an output's errors exceed the errors that its task excuses; else None.

    Parameters
    ----------
    got, value : the kernel's output ``index``, and its exact values.
    """
    _, dtype = reference.forms[index]
    if not is_float_dtype(dtype) or got.shape != value.shape or not got.size:
        return None
    mask = np.isfinite(value) & np.isfinite(got.astype(np.float64))
    exact = np.where(mask, value, 0.0)
    distance = np.abs(np.where(mask, got.astype(np.float64), 0.0) - exact)
    last = ulp(np.abs(exact), dtype) / 2 + np.finfo(np.float32).tiny
    distance = np.maximum(distance - last, 0.0)
    size = np.abs(exact)
    if np.all(distance <= SAFETY * BASE * FLOAT32_UNIT * size):
        return None
    for allowance in allowances(reference, index, exact):
        ratios = _ratio(distance, np.maximum(size, allowance.typical_size))
        typical = _root_mean_square(ratios)
        largest = allowance.largest * np.maximum(size, allowance.largest_size)
        if typical <= allowance.typical and np.all(distance <= largest):
            return None
    value = np.where(mask, value, got)
    of_typical = allowance.typical * np.maximum(size, allowance.typical_size)
    for allowed in (largest, of_typical):
        expected = expected_within(value, dtype, allowed + last, ARITHMETIC)
        wrong = check_values(index, expected, got)
        if isinstance(wrong, Mismatch):
            return wrong
    return None


def _ratio(distance: Float64, size: Float64) -> Float64:
    """Return the quotients; infinite for a distance from a size of 0."""
    result = np.where(distance > 0, np.inf, 0.0)
    return np.divide(distance, size, out=result, where=size > 0)


def _root_mean_square(values: Float64) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or math.isinf(largest):
        return largest
    return largest * math.sqrt(np.mean(np.square(values / largest)))


class Allowance(NamedTuple):
    """The errors that an output may have, relative to the size of an element.

    Attributes
    ----------
    typical, largest : the limits of the typical and of the largest error.
    typical_size, largest_size : the least sizes that count for these.
    """

    typical: float
    largest: float
    typical_size: float
    largest_size: float


def allowances(
    reference: ReferenceResult, index: int, exact: Float64
) -> Iterator[Allowance]:
    """Yield limits for an output whose exact values are ``exact``, each above the one before.

    The last one is the limit. Most kernels stay below one of the others, which take fewer calls
    of the reference: the first takes none.
    """
    limits = _Limits(*_units(reference, index))
    size = _root_mean_square(exact)
    yield limits.allowance(0.0, exact.size, size, size)
    sums = sums_of(reference, index)
    least = _least_growth(sums.terms)
    yield limits.allowance(least, sums.number, size, size)
    # Few errors are not typical, and errors of equal elements are equal.
    number = min(sums.number, np.unique(exact).size)
    changes = reference.input_changes
    typical_size = largest_size = size
    if changes is None:
        largest_size = float(np.abs(exact).max())
    else:
        typical_size = max(size, _root_mean_square(changes[index]) / FLOAT32_UNIT)
        largest_size = max(size, float(changes[index].max()) / FLOAT32_UNIT)
    yield limits.allowance(least, number, typical_size, largest_size)
    growth = _growth_of_terms(reference, index, sums.terms)
    yield limits.allowance(growth, number, typical_size, largest_size)


class _Limits(NamedTuple):
    """The limits of errors by the units of a task.

    Attributes
    ----------
    unit : the unit roundoff of the accumulation.
    coarsest : the unit roundoff of the coarsest dtype of the contract.
    """

    unit: float
    coarsest: float

    def allowance(
        self, growth: float, number: float, typical_size: float, largest_size: float
    ) -> Allowance:
        """Return the errors that an output may have.

        Parameters
        ----------
        growth : the limit of the typical error of its sums, in units of the accumulation.
        number : the number of its errors that do not have a common cause.
        typical_size, largest_size : see :class:`Allowance`.
        """
        value = SAFETY * BASE * self.unit
        more = growth * self.unit
        if self.coarsest > self.unit:
            more += SAFETY * NARROW * self.coarsest
        # The limit of a single error is that of the largest.
        rarity = 1 / math.sqrt(number)
        return Allowance(
            value * (1 + (LARGEST - 1) * rarity)
            + more * (1 + (DEVIATIONS - 1) * rarity),
            value * LARGEST + more * DEVIATIONS,
            typical_size,
            largest_size,
        )


def _units(reference: ReferenceResult, index: int) -> tuple[float, float]:
    """Return the unit roundoff of the sums, and of the coarsest dtype of the contract."""
    spec = reference.spec
    inputs = [reference.case.dtype_of(name) for name in spec.inputs]
    dtypes = [NKI_NAMES[name] for name in (spec.accumulation, *inputs)]
    dtypes.append(reference.forms[index][1])
    units = [unit_roundoff(dtype) for dtype in dtypes if is_float_dtype(dtype)]
    return units[0], max(units)


def _least_growth(terms: float) -> float:
    """Return a growth that every task may have: its roundings err in any direction."""
    return MARGIN * SUM_GROWTH * math.sqrt(terms) if terms > 1 else 0.0


def _growth_of_terms(reference: ReferenceResult, index: int, terms: float) -> float:
    """Return the growth of the case's own terms, if the reference adds them.

    Otherwise the terms are unknown. The roundings of equal terms err in one direction: n terms by
    up to n/4 units.
    """
    least = _least_growth(terms)
    if terms <= 1:
        return least
    measured = error_in_order(reference, index)
    if measured is not None:
        return max(least, MARGIN * measured)
    is_equal = _errs_in_one_direction(reference)
    return SAFETY * SUM_GROWTH * (terms if is_equal else math.sqrt(terms))


def error_in_order(reference: ReferenceResult, index: int) -> float | None:
    """Return the typical error of an output whose terms are added in order, in units.

    The terms of an axis of an input are the outputs of the reference without all other places of
    that axis. They are added in float32, from both ends. The result is None if these outputs do
    not add up to the output.
    """
    whole = reference.in_float64
    if whole is None:
        return None
    output = as_float64(whole)[index]
    found: list[float] = []
    for name, array in reference.inputs.items():
        for axis in range(array.ndim if is_float_dtype(array.dtype) else 0):
            length = array.shape[axis]
            halves = (slice(0, length // 2), slice(length // 2, length))
            if not _add_up(_terms(reference, index, name, axis, halves), output):
                continue
            places = [slice(place, place + 1) for place in range(length)]
            terms = _terms(reference, index, name, axis, places)
            if terms is not None:
                found += [_error_of_sums(one, output) for one in (terms, terms[::-1])]
    return max(found, default=None)


def _add_up(terms: Float64 | None, output: Float64) -> bool:
    """Return whether terms add up to an output."""
    if terms is None:
        return False
    size = 1e-9 * _root_mean_square(output)
    return np.allclose(terms.sum(axis=0), output, rtol=1e-9, atol=size)


def _terms(
    reference: ReferenceResult,
    index: int,
    name: str,
    axis: int,
    parts: Sequence[slice],
) -> Float64 | None:
    """Return the output for each part of an axis of an input alone; None if one is rejected."""
    terms = []
    for part in parts:

        def change(changed: str, array: Float64, part: slice = part) -> Float64:
            if changed != name:
                return array
            alone = np.zeros_like(array)
            at = (slice(None),) * axis + (part,)
            alone[at] = array[at]
            return alone

        outputs = reference.evaluate(change)
        if outputs is None:
            return None
        terms.append(as_float64(outputs)[index])
    return np.stack(terms)


def _error_of_sums(terms: Float64, output: Float64) -> float:
    """Return the typical error of sums in float32, in order, relative to the outputs."""
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(terms.astype(np.float32), axis=0)[-1]
        distance = np.abs(sums.astype(np.float64) - output)
    size = np.maximum(np.abs(output), _root_mean_square(output))
    return _root_mean_square(_ratio(distance, size)) / FLOAT32_UNIT


def _errs_in_one_direction(reference: ReferenceResult) -> bool:
    """Return whether sums of the inputs, or of their distances from a mean, have equal terms.

    One element in 16 of an input has the value of another one, or most elements are negligible.
    """
    for array in reference.inputs.values():
        if is_float_dtype(array.dtype) and array.size:
            values = array.astype(np.float64)
            has_equal = np.unique(values).size <= values.size * 15 / 16
            if has_equal or np.median(np.abs(values)) < _root_mean_square(values) / 8:
                return True
    return False


class Sums(NamedTuple):
    """The sums of an output, as far as calls of the reference show them.

    Attributes
    ----------
    terms : the number of terms of a sum: the elements of an input that an element needs.
    number : the number of sums that have no common error.
    """

    terms: float
    number: float


def sums_of(reference: ReferenceResult, index: int) -> Sums:
    """Return the sums of an output.

    The reference is called with a few single elements changed, and the changed elements of the
    output are counted. A kernel adds along an axis, so the longest axis of an input is the limit
    of the number of terms. It is their number if the reference rejects such inputs.
    """
    arrays = {
        name: array
        for name, array in reference.inputs.items()
        if is_float_dtype(array.dtype) and array.size
    }
    longest = max((max(array.shape, default=1) for array in arrays.values()), default=0)
    original = reference.in_float64
    if original is None:
        return Sums(longest, 1.0)
    before = as_float64(original)[index]
    random = np.random.default_rng(0)
    terms = 0.0
    shared = float(before.size)
    for changed, array in arrays.items():
        counts: list[int] = []
        for place in random.integers(array.size, size=_SAMPLES):
            counts.append(_count_changed(reference, index, before, changed, place))
            if len(counts) == _ALIKE and len(set(counts)) == 1:
                break
        mean = float(np.mean(counts))
        terms = max(terms, mean * array.size / before.size)
        shared = min(shared, max(mean, 1.0))
    return Sums(min(terms, longest), before.size / shared)


def _count_changed(
    reference: ReferenceResult, index: int, before: Float64, changed: str, place: int
) -> int:
    """Return the number of elements of an output that one element of an input changes."""

    def change(name: str, array: Float64) -> Float64:
        if name == changed:
            array.flat[place] = 1.5 * array.flat[place] + 2.0**-10
        return array

    outputs = reference.evaluate(change)
    if outputs is None:
        return 0
    return int(np.count_nonzero(as_float64(outputs)[index] != before))
