import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.softmax import softmax
from tests.reference.strategies import DTYPES, arrays


@given(st.data(), st.sampled_from(DTYPES), st.integers(1, 3), st.integers(1, 4))
def test_is_each_exponential_over_their_sum(data, dtype, rows, columns):
    x = data.draw(arrays((rows, columns), dtype))
    out = softmax(x)
    assert (out.shape, out.dtype) == ((rows, columns), np.float64)
    for row, got in zip(x, out, strict=True):
        powers = [np.exp(float(value)) for value in row]
        np.testing.assert_allclose(got, np.array(powers) / sum(powers), rtol=1e-14)


def test_large_elements_do_not_overflow():
    np.testing.assert_array_equal(softmax([[1e4, 1e4]]), [[0.5, 0.5]])


def test_computes_in_float64():
    assert softmax(np.zeros((1, 3), ml_dtypes.bfloat16))[0, 0] == 1 / 3


def test_infinities_make_a_nan_without_a_warning():
    assert np.isnan(softmax([[np.inf, 0.0]])[0, 0])


def test_complex_numbers_are_refused():
    with pytest.raises(ValueError, match="x: received dtype complex128"):
        softmax([1j])
