import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.rms_norm import rms_norm
from tests.reference.strategies import DTYPES, arrays


@given(st.data(), st.sampled_from(DTYPES), st.integers(1, 3), st.integers(1, 4))
def test_divides_by_the_root_of_the_mean_square(data, dtype, rows, columns):
    x, gamma = (
        data.draw(arrays((rows, columns), dtype)),
        data.draw(arrays((columns,), dtype)),
    )
    out = rms_norm(x, gamma, eps=0.5)
    assert (out.shape, out.dtype) == ((rows, columns), np.float64)
    for t, i in np.ndindex(rows, columns):
        square = sum(float(value) ** 2 for value in x[t]) / columns
        expected = float(gamma[i]) * float(x[t, i]) / math.sqrt(square + 0.5)
        assert out[t, i] == pytest.approx(expected, rel=1e-14)


def test_a_row_of_zeros_stays_zero():
    np.testing.assert_array_equal(
        rms_norm(np.zeros((1, 2)), np.ones(2)), np.zeros((1, 2))
    )


def test_operands_that_do_not_fit_are_named():
    with pytest.raises(
        ValueError, match=r"^gamma: received N = 2; accepted: N = 3, as in x$"
    ):
        rms_norm(np.ones((1, 3)), np.ones(2))
