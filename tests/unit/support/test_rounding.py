import ml_dtypes
import numpy as np

from difftest.support.rounding import is_float_dtype, round_once, ulp, unit_roundoff
from tests.every import every

NARROW = ("float16", "bfloat16", "float8_e4m3", "float8_e5m2")


def positive_numbers(dtype):
    """Every finite number >= 0 of a narrow dtype, in order, as float64."""
    bits = np.arange(2 ** (8 * dtype.itemsize - 1)).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # some are signalling NaN
        values = bits.view(dtype).astype(np.float64)
    return values[np.isfinite(values)]


@every("name", NARROW)
def test_ulp_is_the_distance_between_neighbours(name):
    dtype = np.dtype(name)
    values = positive_numbers(dtype)
    assert np.array_equal(ulp(values[:-1], dtype), np.diff(values))


def test_ulp_of_float32_and_of_integers():
    assert ulp(np.array([1.0, -3.0]), np.dtype("float32")).tolist() == [
        2.0**-23,
        2.0**-22,
    ]
    assert ulp(np.array([1e6, 0.0]), np.dtype("int32")).tolist() == [1, 1]


@every("name", NARROW)
def test_rounding_goes_to_the_nearest_and_ties_to_even(name):
    dtype = np.dtype(name)
    values = positive_numbers(dtype)
    middles = (values[:-1] + values[1:]) / 2
    even = np.where(np.arange(len(middles)) % 2 == 0, values[:-1], values[1:])
    assert np.array_equal(round_once(middles, dtype).astype(np.float64), even)


def test_integers_round_to_even_and_saturate():
    values = np.array([0.5, 1.5, 2.5, -300.0, 300.0])
    assert round_once(values, np.dtype("int8")).tolist() == [0, 2, 2, -128, 127]
    assert round_once(values, np.dtype("uint8")).tolist() == [0, 2, 2, 0, 255]


def test_rounding_overflows_to_infinity_without_a_warning():
    assert np.isinf(round_once(np.array([1e9]), np.dtype("float16"))[0])


@every("low, high", [(0.0, 2.0**-14), (65_000.0, 66_000.0), (1e5, 1e6)])
def test_many_numbers_round_to_float16_as_each_does(low, high):
    """Those that are subnormal there, and infinite; and their middles, with both neighbours."""
    values = np.linspace(low, high, 2**12 + 1)
    values = np.concatenate(
        [values, np.nextafter(values, 0), np.nextafter(values, 1e9)]
    )
    for signed in (values, -values):
        with np.errstate(over="ignore"):
            each = np.array([np.float16(value) for value in signed])
        assert round_once(signed, np.dtype("float16")).tobytes() == each.tobytes()


def test_rounding_to_the_same_dtype_is_the_array_itself():
    array = np.ones(3, np.float32)
    assert round_once(array, np.dtype("float32")) is array


def test_numbers_other_than_0_round_to_true():
    assert round_once(np.array([0.0, 0.5, 2.0]), np.dtype("bool")).tolist() == [
        False,
        True,
        True,
    ]


@every("name, u", [("float32", 2.0**-24), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_unit_roundoff_is_half_a_unit_in_the_last_place_of_1(name, u):
    assert unit_roundoff(np.dtype(name)) == u


def test_is_float_dtype_knows_narrow_floats_and_rejects_integers():
    assert all(is_float_dtype(np.dtype(name)) for name in ("float32", *NARROW))
    assert not any(
        is_float_dtype(np.dtype(name)) for name in ("int8", "uint32", "bool")
    )
    assert is_float_dtype(np.dtype(ml_dtypes.bfloat16))
