import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.transpose import transpose
from tests.reference.strategies import DTYPES, arrays


@given(st.data(), st.sampled_from(DTYPES), st.integers(1, 5), st.integers(1, 5))
def test_moves_each_element_and_keeps_the_dtype(data, dtype, m, n):
    a = data.draw(arrays((m, n), dtype))
    out = transpose(a)
    assert (out.shape, out.dtype) == ((n, m), a.dtype)
    assert all(out[j, i] == a[i, j] for i, j in np.ndindex(m, n))


def test_the_result_is_no_view_of_the_argument():
    a = np.ones((1, 4))
    assert not np.shares_memory(transpose(a), a)


def test_a_vector_is_no_matrix():
    with pytest.raises(
        ValueError, match=r"^a: received shape \(3,\); accepted: 2 axes \(M, N\)$"
    ):
        transpose(np.zeros(3))
