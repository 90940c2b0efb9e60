"""Rounding, held to the definitions of the formats (a grid of values, ties to the even code)."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import DtypeError
from difftest.simulator.dtypes import (
    BFLOAT16,
    BOOL,
    DTYPES,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOATS,
    INTEGERS,
    NAMES,
    TFLOAT32,
    as_dtype,
    dtype_name,
    from_bits,
    is_float,
    is_integer,
    round_to,
    storage_dtype,
    to_bits,
)
from tests.every import every

NARROW = {  # exponent bits, mantissa bits: AWS nki.api.shared.rst, "Supported Data Types"
    TFLOAT32: (8, 10),
    BFLOAT16: (8, 7),
    FLOAT16: (5, 10),
    FLOAT8_E5M2: (5, 2),
    FLOAT8_E4M3: (4, 3),
}
WITH_BITS = [dtype for dtype in NARROW if dtype != TFLOAT32]


@pytest.fixture(autouse=True)
def no_floating_point_warnings():
    """As in a launch: the engines have none, and half of all NaN are signalling."""
    with np.errstate(all="ignore"):
        yield


def grid(dtype):
    """The values of all codes from +0 to +inf, in order; inf is replaced by the next value."""
    exponents, mantissas = NARROW[dtype]
    bias = 2 ** (exponents - 1) - 1
    codes = np.arange((2**exponents - 1) * 2**mantissas + 1)
    exponent = codes >> mantissas
    mantissa = codes & (2**mantissas - 1)
    normal = exponent > 0
    scale = np.where(normal, exponent - bias, 1 - bias) - mantissas
    return np.ldexp((mantissa + normal * 2**mantissas).astype(np.float64), scale)


def nearest(values, dtype):
    """Each value rounded to the dtype's grid: to the nearest, a tie to the even code."""
    points = grid(dtype)
    size = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(points, size), 1, len(points) - 1)
    below = above - 1
    up = points[above] - size
    down = size - points[below]
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    points[-1] = np.inf
    rounded = np.where(np.isnan(size), np.nan, points[code])
    return np.copysign(rounded, values).astype(np.float32)


def around(points):
    """float32 values at, just below and just above each point, of both signs."""
    exact = points.astype(np.float32)
    assert_array_equal(exact, points)
    up, down = (np.nextafter(exact, np.float32(limit)) for limit in (np.inf, -np.inf))
    values = np.concatenate([exact, up, down])
    return np.concatenate([values, -values])


@every("dtype", NARROW)
def test_each_midpoint_rounds_to_even_and_its_neighbours_away_from_it(dtype):
    points = grid(dtype)
    values = around((points[1:] + points[:-1]) / 2)
    rounded = round_to(values, dtype)
    assert_array_equal(rounded, nearest(values, dtype), strict=True)
    # each value was reached
    assert len(np.unique(rounded[rounded >= 0])) == len(points)


@every("dtype", NARROW)
def test_infinities_nan_and_large_numbers_round_as_the_nearest(dtype):
    largest = np.float32(grid(dtype)[-2])
    values = np.array(
        [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, largest, 0.0, -0.0], np.float32
    )
    rounded = round_to(values, dtype)
    assert_array_equal(rounded, nearest(values, dtype))
    assert_array_equal(np.signbit(rounded), np.signbit(values))
    assert rounded[5] == largest


def test_many_float16_are_cast_like_few():
    """Steps over an array, and NumPy's cast of each number: at every float16 and between them."""
    patterns = np.arange(2**16, dtype=np.uint16).view(np.float16)
    known = patterns[np.isfinite(patterns)]
    numbers = known.astype(np.float32)
    assert to_bits(numbers, FLOAT16).tobytes() == known.tobytes()
    assert (
        from_bits(patterns, FLOAT16).tobytes() == patterns.astype(np.float32).tobytes()
    )
    above = np.nextafter(known, np.float16(np.inf)).astype(np.float32)
    midpoints = ((numbers + above) / 2)[np.isfinite(above)]
    around = [np.nextafter(midpoints, np.float32(end)) for end in (-np.inf, np.inf)]
    values = np.concatenate([numbers, midpoints, *around])
    few = [
        round_to(part, FLOAT16) for part in np.array_split(values, values.size // 2**11)
    ]
    assert round_to(values, FLOAT16).tobytes() == np.concatenate(few).tobytes()


ALL_BITS = np.uint32(0x7FFFFFFF).view(np.float32)
"""A NaN, the last: no bit can be added to it."""


@every(
    "value, rounded",
    [
        (65519.0, 65504.0),
        (65520.0, np.inf),
        (-1e6, -np.inf),
        (np.nan, np.nan),
        (ALL_BITS, np.nan),
    ],
)
def test_one_of_many_float16_is_too_large(value, rounded):
    values = np.full(2**13, 0.1, np.float32)
    values[5000] = value
    expected = np.full(2**13, np.float16(0.1), np.float32)
    expected[5000] = rounded
    assert_array_equal(round_to(values, FLOAT16), expected)
    assert_array_equal(to_bits(expected, FLOAT16), expected.astype(np.float16))


@every("dtype", WITH_BITS)
def test_the_dtype_of_numpy_or_ml_dtypes_has_this_grid(dtype):
    codes = np.arange(len(grid(dtype)), dtype=f"u{dtype.itemsize}")
    values = codes.view(dtype).astype(np.float64)
    assert_array_equal(values[:-1], grid(dtype)[:-1])
    assert values[-1] == np.inf


@every("dtype", WITH_BITS)
def test_every_bit_pattern_crosses_the_border_of_hbm(dtype):
    bits = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    on_chip = from_bits(bits, dtype)
    assert_array_equal(on_chip, bits.astype(np.float32), strict=True)
    back = to_bits(on_chip, dtype)
    number = ~np.isnan(on_chip)
    assert back.dtype == dtype
    assert_array_equal(
        back.view(np.uint8)[np.repeat(number, dtype.itemsize)],
        bits.view(np.uint8)[np.repeat(number, dtype.itemsize)],
    )
    assert np.isnan(back.astype(np.float32)[~number]).all()


def test_tfloat32_takes_four_bytes_in_hbm():
    values = np.array([1.0, 1.0 + 2**-10, -np.inf], np.float32)
    bits = to_bits(values, TFLOAT32)
    assert bits.dtype == np.dtype("V4")
    assert bits.tobytes() == values.tobytes()
    assert_array_equal(from_bits(bits, TFLOAT32), values, strict=True)


@every("dtype", INTEGERS)
def test_float_to_integer_rounds_to_even_and_saturates(dtype):
    info = np.iinfo(dtype)
    halves = np.arange(-600, 601) / 2
    limits = [
        float(limit) + step
        for limit in (info.min, info.max)
        for step in (-1, -0.5, 0, 0.5)
    ]
    values = np.array([*halves, *limits, 1e10, -1e10, 3e38, -3e38], np.float32)
    expected = np.array(
        [min(max(round(float(value)), info.min), info.max) for value in values], dtype
    )
    assert_array_equal(round_to(values, dtype), expected, strict=True)
    for value, alone in zip(values[:, None], expected[:, None], strict=True):
        assert_array_equal(round_to(value, dtype), alone, strict=True)


@every("dtype", INTEGERS)
def test_nan_rounds_to_the_integer_0(dtype):
    values = np.array([1.0, np.nan, -0.0], np.float32)
    assert round_to(values, dtype).tolist() == [1, 0, 0]
    assert round_to(values[:0], dtype).dtype == dtype


@every("dtype", INTEGERS)
def test_integer_to_integer_saturates(dtype):
    values = np.array([-(2**40), -129, -128, -1, 0, 127, 128, 65535, 65536, 2**40])
    info = np.iinfo(dtype)
    expected = np.array([min(max(int(v), info.min), info.max) for v in values], dtype)
    assert_array_equal(round_to(values, dtype), expected, strict=True)


def test_integer_to_float_goes_through_float32():
    values = np.array([2**24, 2**24 + 1, 2**24 + 3, -(2**31), 2**31 - 1], np.int32)
    as_float32 = np.array([2**24, 2**24, 2**24 + 4, -(2**31), 2**31], np.float32)
    assert_array_equal(round_to(values, FLOAT32), as_float32, strict=True)
    for dtype in (BFLOAT16, FLOAT16, TFLOAT32):
        assert_array_equal(round_to(values, dtype), nearest(as_float32, dtype))


@every("name", NAMES)
def test_each_dtype_has_one_name_and_its_properties(name):
    dtype = as_dtype(name)
    assert as_dtype(dtype) is dtype
    assert dtype_name(dtype) == name
    assert is_float(dtype) == (dtype in FLOATS)
    assert is_integer(dtype) == (dtype in INTEGERS or dtype == BOOL)
    assert storage_dtype(dtype) == (FLOAT32 if dtype in FLOATS else dtype)


def test_the_documented_dtypes_are_all_there():
    documented = {"uint8", "int8", "uint16", "int16", "uint32", "int32", "bool"}
    documented |= {
        "float8_e4m3",
        "float8_e5m2",
        "float16",
        "bfloat16",
        "tfloat32",
        "float32",
    }
    assert set(NAMES) == documented
    assert len(DTYPES) == len(NAMES)


@every("spec", [np.float32, "float32", np.dtype("f4"), ml_dtypes.bfloat16])
def test_scalar_types_and_dtypes_are_taken(spec):
    assert as_dtype(spec) in DTYPES


@every(
    "spec",
    [np.float64, float, "float64", int, np.int64, complex, "float33", object(), None],
)
def test_other_dtypes_are_refused(spec):
    with pytest.raises(DtypeError) as caught:
        as_dtype(spec)
    assert caught.value.received == f"dtype {spec!r}"
    assert caught.value.limit == ", ".join(sorted(NAMES))
