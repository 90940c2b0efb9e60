import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.vector_add import vector_add
from tests.every import every
from tests.reference.strategies import DTYPES, arrays


@given(st.data(), st.sampled_from(DTYPES), st.integers(0, 9))
def test_adds_each_element_in_float64(data, dtype, n):
    a = data.draw(arrays((n,), dtype))
    b = data.draw(arrays((n,), dtype))
    total = vector_add(a, b)
    assert total.dtype == np.float64
    assert total.tolist() == [float(x) + float(y) for x, y in zip(a, b, strict=True)]


def test_nothing_is_rounded_to_the_narrow_dtype():
    big = np.array([256], ml_dtypes.bfloat16)
    small = np.array([1], ml_dtypes.bfloat16)
    assert big + small == 256  # bfloat16 has 8 bits of significand
    assert vector_add(big, small) == 257


def test_infinities_of_both_signs_make_a_nan_without_a_warning():
    assert np.isnan(vector_add([np.inf], [-np.inf])).all()


def test_shapes_must_agree():
    with pytest.raises(
        ValueError,
        match=r"^b: received shape \(3,\); accepted: the shape of a, \(1,\)$",
    ):
        vector_add(np.zeros(1), np.zeros(3))


@every("bad", [[1j], ["1"], [None]])
def test_only_real_numbers_are_added(bad):
    with pytest.raises(
        ValueError, match=r"^a: received dtype .*; accepted: integers or real"
    ):
        vector_add(bad, [1])
