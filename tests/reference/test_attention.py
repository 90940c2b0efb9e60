import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.attention import attention
from tests.every import every
from tests.reference.strategies import arrays

FEW = st.integers(1, 3)


@given(
    st.data(),
    st.sampled_from([np.float32, np.float16]),
    FEW,
    FEW,
    FEW,
    FEW,
    st.booleans(),
)
def test_is_the_mean_of_values_weighed_by_their_keys(
    data, dtype, groups, shared, queries, more, causal
):
    keys = queries + more - 1
    heads = groups * shared
    q = data.draw(arrays((heads, queries, 2), dtype))
    k, v = (data.draw(arrays((groups, keys, 2), dtype)) for _ in "kv")
    out = attention(q, k, v, causal)
    assert (out.shape, out.dtype) == (q.shape, np.float64)
    for h, i in np.ndindex(heads, queries):
        seen = range(keys - queries + i + 1 if causal else keys)
        own = k[h // shared].astype(float), v[h // shared].astype(float)
        weights = [
            math.exp(q[h, i].astype(float) @ own[0][j] / math.sqrt(2)) for j in seen
        ]
        mean = sum(w * own[1][j] for w, j in zip(weights, seen, strict=True)) / sum(
            weights
        )
        np.testing.assert_allclose(out[h, i], mean, rtol=1e-12, atol=1e-14)


@every(
    "q, k, v, message",
    [
        (
            (2, 1, 4),
            (2, 3, 5),
            (2, 3, 5),
            r"^k: received D = 5; accepted: D = 4, as in q$",
        ),
        ((2, 1, 4), (2, 3, 4), (2, 2, 4), r"^v: received shape \(2, 2, 4\)"),
        (
            (3, 1, 4),
            (2, 3, 4),
            (2, 3, 4),
            r"^q: received 3 heads; accepted: a multiple of the 2",
        ),
        (
            (2, 4, 4),
            (2, 3, 4),
            (2, 3, 4),
            r"^q: received 4 queries; accepted: at most 3",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(q, k, v, message):
    with pytest.raises(ValueError, match=message):
        attention(np.zeros(q), np.zeros(k), np.zeros(v), causal=True)
