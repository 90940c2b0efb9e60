import math

import numpy as np
import pytest

from difftest.testing.harness.compare import (
    FAILURE_PROBABILITY,
    expected_with_roundings,
    probabilistic_gamma,
    worst_case_gamma,
)
from tests.every import every

FLOAT32 = np.dtype("float32")
FLOAT16 = np.dtype("float16")
U32 = 2.0**-24


def tolerance(reduction, accumulation=FLOAT32, random=True):
    return (reduction, accumulation), random


def interval(tolerance, value, magnitude, dtype):
    return expected_with_roundings(value, dtype, magnitude, *tolerance).interval()


def gamma(tolerance, elements):
    """Elements as large as 1/2, where an underflow does not show."""
    values = np.full(elements, 0.5)
    expected = expected_with_roundings(values, FLOAT32, 2 * values, *tolerance)
    return float(np.max(expected.high - expected.value))


def test_worst_case_gamma_is_0_u_and_infinite_at_its_ends():
    assert worst_case_gamma(0, U32) == 0
    assert worst_case_gamma(1, U32) == pytest.approx(U32)
    assert worst_case_gamma(2**24, U32) == math.inf


def test_probabilistic_gamma_grows_with_the_root_of_n():
    few, many = (probabilistic_gamma(n, U32, 1000) for n in (1_000, 100_000))
    assert many / few == pytest.approx(10, rel=0.1)
    assert probabilistic_gamma(0, U32, 1000) == 0
    assert probabilistic_gamma(100, U32, 0) == 0


def test_so_many_roundings_that_no_float_holds_the_bound():
    assert probabilistic_gamma(10**9, 2.0**-8, 1000) == math.inf


def test_probabilistic_gamma_is_higham_and_marys_with_the_union_bound():
    n = 512
    elements = 4096
    factor = math.sqrt(2 * math.log(2 * n * elements / FAILURE_PROBABILITY)) / (1 - U32)
    failure = 2 * n * elements * math.exp(-(factor**2) * (1 - U32) ** 2 / 2)
    assert failure == pytest.approx(FAILURE_PROBABILITY)
    assert probabilistic_gamma(n, U32, elements) == pytest.approx(
        factor * math.sqrt(n) * U32, rel=1e-4
    )


def test_random_data_takes_the_smaller_of_the_two_bounds():
    assert gamma(tolerance(4), 1000) == pytest.approx(worst_case_gamma(4, U32))
    assert gamma(tolerance(10_000), 1000) == pytest.approx(
        probabilistic_gamma(10_000, U32, 1000)
    )


def test_other_data_takes_the_worst_case_bound():
    bound = gamma(tolerance(10_000, random=False), 1000)
    assert bound == pytest.approx(worst_case_gamma(10_000, U32))


def test_data_movement_allows_one_value():
    values = np.array([0.1, -3.0, 0.0])
    low, high = interval(tolerance(0), values, np.abs(values), FLOAT16)
    assert np.array_equal(low, high)
    assert np.array_equal(low, values.astype(np.float16))


def test_the_interval_is_rounded_once_into_the_outputs_dtype():
    """One float32 rounding is far below half a unit of float16: both ends round to one value."""
    low, high = interval(tolerance(1), np.array([1 / 3]), np.array([1 / 3]), FLOAT16)
    assert low == high == np.float16(1 / 3)
    low, high = interval(tolerance(1), np.array([1 / 3]), np.array([1 / 3]), FLOAT32)
    assert high - low == pytest.approx(2.0**-25, rel=0.01)


def test_the_interval_of_a_value_that_is_not_finite_is_the_value_itself():
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    magnitude = np.array([np.nan, np.inf, np.inf, np.nan])
    low, high = interval(tolerance(5), values, magnitude, FLOAT32)
    assert np.array_equal(low, values.astype(np.float32), equal_nan=True)
    assert np.array_equal(high, values.astype(np.float32), equal_nan=True)


def test_near_the_largest_number_infinity_is_within_the_interval():
    largest = float(np.finfo(np.float16).max)
    low, high = interval(
        tolerance(10, FLOAT16), np.array([largest]), np.array([largest]), FLOAT16
    )
    assert np.isfinite(low[0])
    assert np.isinf(high[0])


@every("terms", [128, 1024])
@every("output", [FLOAT32, FLOAT16])
def test_float32_accumulation_is_distinguished_from_float16_accumulation(terms, output):
    generator = np.random.default_rng(terms)
    a, b = (generator.standard_normal((64, terms)).astype(np.float16) for _ in range(2))
    products = a.astype(np.float64) * b.astype(np.float64)
    exact = products.sum(1)
    magnitude = np.abs(products).sum(1)
    low, high = interval(tolerance(terms), exact, magnitude, output)

    def accumulate(dtype):
        total = np.zeros(64, dtype)
        for column in range(terms):
            total = (total + products[:, column].astype(dtype)).astype(dtype)
        return total.astype(output)

    in_float32 = accumulate(FLOAT32)
    in_float16 = accumulate(FLOAT16)
    assert np.all((low <= in_float32) & (in_float32 <= high))
    assert np.mean((low <= in_float16) & (in_float16 <= high)) < 0.5


def test_an_underflow_has_an_absolute_error():
    """A product of subnormal numbers rounds to a multiple of the smallest one, or to 0."""
    smallest = float(np.finfo(np.float32).smallest_subnormal)
    expected = np.array([2 * smallest])
    low, high = interval(
        tolerance(4, random=False), expected, np.abs(expected), FLOAT32
    )
    assert (low[0], high[0]) == (0.0, 4 * smallest)
    low, high = interval(
        tolerance(0, random=False), expected, np.abs(expected), FLOAT32
    )
    assert (low[0], high[0]) == (2 * smallest, 2 * smallest)
