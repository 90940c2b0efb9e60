import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.rope import rope
from tests.every import every
from tests.reference.strategies import DTYPES, arrays


@given(st.data(), st.sampled_from(DTYPES), st.integers(1, 3), st.integers(1, 3))
def test_rotates_pairs_as_complex_numbers(data, dtype, rows, half):
    x = data.draw(arrays((rows, 2 * half), dtype))
    cos, sin = (data.draw(arrays((rows, half), dtype)) for _ in "cs")
    out = rope(x, cos, sin)
    assert (out.shape, out.dtype) == (x.shape, np.float64)
    for t, i in np.ndindex(rows, half):
        point = complex(float(x[t, i]), float(x[t, i + half]))
        turned = point * complex(float(cos[t, i]), float(sin[t, i]))
        assert (out[t, i], out[t, i + half]) == (turned.real, turned.imag)


def test_keeps_lengths():
    angle = np.linspace(0, 3, 4).reshape(2, 2)
    x = np.arange(8.0).reshape(2, 4)
    out = rope(x, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose(
        np.hypot(*np.split(out, 2, 1)), np.hypot(*np.split(x, 2, 1))
    )


@every(
    "x, cos, sin, message",
    [
        ((2, 3), (2, 1), (2, 1), r"^x: received D = 3; accepted: an even D$"),
        (
            (2, 4),
            (1, 2),
            (2, 2),
            r"^cos: received shape \(1, 2\); accepted: \[T, D / 2\]",
        ),
        (
            (2, 4),
            (2, 2),
            (2, 4),
            r"^sin: received shape \(2, 4\); accepted: \[T, D / 2\]",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(x, cos, sin, message):
    with pytest.raises(ValueError, match=message):
        rope(np.zeros(x), np.zeros(cos), np.zeros(sin))
