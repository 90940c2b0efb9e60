import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.matmul import matmul
from tests.every import every
from tests.reference.strategies import DTYPES, arrays

SIDES = st.integers(1, 4)


@given(st.data(), st.sampled_from(DTYPES), SIDES, SIDES, SIDES)
def test_is_the_sum_of_products_over_k(data, dtype, k, m, n):
    lhsT, rhs = data.draw(arrays((k, m), dtype)), data.draw(arrays((k, n), dtype))
    out = matmul(lhsT, rhs)
    assert (out.shape, out.dtype) == ((m, n), np.float64)
    for i, j in np.ndindex(m, n):
        assert out[i, j] == sum(float(lhsT[c, i]) * float(rhs[c, j]) for c in range(k))


def test_accumulates_in_float64():
    ones = np.ones((300, 1), ml_dtypes.bfloat16)
    assert matmul(ones, ones) == 300  # in bfloat16 the sum would stop at 256


def test_infinities_make_a_nan_without_a_warning():
    assert np.isnan(matmul([[np.inf], [1.0]], [[0.0], [1.0]])).all()


@every(
    "lhsT, rhs, message",
    [
        ((2, 3), (4, 3), r"^rhs: received K = 4; accepted: K = 2, as in lhsT$"),
        ((2,), (2, 3), r"^lhsT: received shape \(2,\); accepted: 2 axes \(K, M\)$"),
        (
            (2, 3),
            (2, 3, 4),
            r"^rhs: received shape \(2, 3, 4\); accepted: 2 axes \(K, N\)$",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(lhsT, rhs, message):
    with pytest.raises(ValueError, match=message):
        matmul(np.zeros(lhsT), np.zeros(rhs))
