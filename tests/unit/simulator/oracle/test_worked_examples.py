"""The plain mode on examples of the documentation and on cases worked out by hand."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import on_tiles

ROWS = np.arange(24, dtype=np.float32).reshape(4, 6)


plainly = functools.partial(on_tiles, plain=True)
"""Return a computation's results for arrays as SBUF tiles, in plain mode."""


def test_the_last_of_several_scattered_rows_counts():
    def kernel(x, places):
        out = nl.ndarray((6, 6), x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.load(places), nl.arange(6)[None, :]], nl.load(x))
        return out

    places = np.array([[1], [3], [1], [0]], np.int32)
    result = launch(kernel, [ROWS, places], plain=True)
    assert_array_equal(result.outputs[0][[0, 1, 3]], ROWS[[3, 2, 1]])
    assert_array_equal(
        result.unwritten[0][:, 0], [False, False, True, False, True, True]
    )


def test_a_quotient_of_integers_is_the_fraction():
    (quotient,) = plainly(lambda x: x / 38, np.full((1, 1), 57, np.int32))
    assert quotient.dtype == np.float32
    assert quotient == 1.5


def test_floats_become_integers_to_nearest_even_and_saturate():
    values = np.array([[0.5, 1.5, -2.5, 300, -300, np.inf, np.nan]], np.float32)
    cast = plainly(lambda x: nisa.tensor_copy(x, dtype=nl.int8), values)
    assert_array_equal(cast, [[0, 2, -2, 127, -128, 127, 0]])


@every("value", [1 + 2.0**-11, 1 + 3 * 2.0**-11, -(1 + 2.0**-10), 3e38, 1e-40])
def test_tfloat32_keeps_ten_bits(value):
    """The bits below the tenth of the mantissa are rounded off, to nearest even."""
    bits = int(np.float32(value).view(np.uint32))
    kept = bits >> 13
    rest = bits & 0x1FFF
    kept += rest > 0x1000 or (rest == 0x1000 and kept & 1)
    rounded = plainly(
        lambda x: nisa.tensor_copy(x, dtype=nl.tfloat32),
        np.full((1, 1), value, np.float32),
    )
    assert int(rounded.view(np.uint32)[0, 0]) == kept << 13


def test_the_documentations_masked_square():
    """``nki.api.shared.rst``, "NKI API Masking", on fewer elements."""

    def square(x):
        i = nl.mgrid[0:4, 0:6]
        return nl.square(x, mask=(i.p < 2) & (i.x < 3))

    squares = plainly(square, ROWS)
    assert_array_equal(squares[:2, :3], ROWS[:2, :3] ** 2)
    assert np.isnan(squares[2:]).all()
    assert np.isnan(squares[:, 3:]).all()


def test_the_documentations_exponential_of_any_number_of_rows():
    """``nki.api.shared.rst``: tiles of pmax rows; the last one exceeds the tensor."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i_f = nl.arange(x.shape[1])[None, :]
        for p in nl.affine_range(math.ceil(x.shape[0] / nl.tile_size.pmax)):
            i_p = p * nl.tile_size.pmax + nl.arange(nl.tile_size.pmax)[:, None]
            tile = nl.load(x[i_p, i_f], mask=i_p < x.shape[0])
            nl.store(
                out[i_p, i_f],
                nl.exp(tile, mask=i_p < x.shape[0]),
                mask=i_p < x.shape[0],
            )
        return out

    x = np.linspace(-2, 2, 300, dtype=np.float32).reshape(150, 2)
    result = launch(kernel, [x], plain=True)
    assert result.unwritten == (None,)
    np.testing.assert_allclose(
        result.outputs[0], np.exp(x.astype(np.float64)), rtol=3e-7
    )


def test_a_reduction_adds_from_left_to_right_in_float32():
    values = np.random.default_rng(0).standard_normal((2, 200)).astype(np.float32)
    expected = np.zeros(2, np.float32)
    for column in values.T:
        expected = expected + column
    assert_array_equal(plainly(lambda x: nl.sum(x, axis=1), values)[:, 0], expected)


def test_a_matrix_product_of_transposed_rows():
    product = plainly(lambda x: nl.copy(nisa.nc_matmul(x, x)), ROWS)
    assert_array_equal(product, ROWS.T @ ROWS)


def test_the_mode_ends_with_its_launch():
    plainly(nl.exp, ROWS)
    with pytest.raises(NkiError, match="inside a kernel"):
        nl.zeros((2, 2), nl.float32)
