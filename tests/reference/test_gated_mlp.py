import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.gated_mlp import gated_mlp
from tests.every import every
from tests.reference.strategies import DTYPES, arrays

FEW = st.integers(1, 3)


@given(st.data(), st.sampled_from(DTYPES), FEW, FEW, FEW)
def test_is_the_sum_over_the_hidden_layer(data, dtype, rows, outer, inner):
    x = data.draw(arrays((rows, outer), dtype))
    gate, up = (data.draw(arrays((outer, inner), dtype)) for _ in "gu")
    down = data.draw(arrays((inner, outer), dtype))
    out = gated_mlp(x, gate, up, down)
    assert (out.shape, out.dtype) == ((rows, outer), np.float64)
    for t, n in np.ndindex(rows, outer):
        total = 0.0
        for f in range(inner):
            gated, upper = (
                sum(float(x[t, i]) * float(weights[i, f]) for i in range(outer))
                for weights in (gate, up)
            )
            total += gated / (1 + math.exp(-gated)) * upper * float(down[f, n])
        assert out[t, n] == pytest.approx(total, rel=1e-12, abs=1e-12)


@every(
    "gate, up, down, message",
    [
        ((4, 2), (4, 2), (2, 4), r"^gate: received N = 4; accepted: N = 3, as in x$"),
        ((3, 2), (3, 1), (2, 3), r"^up: received shape \(3, 1\); accepted: \(3, 2\)"),
        (
            (3, 2),
            (3, 2),
            (3, 2),
            r"^down: received shape \(3, 2\); accepted: \(2, 3\), \[F, N\]",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(gate, up, down, message):
    with pytest.raises(ValueError, match=message):
        gated_mlp(np.zeros((1, 3)), np.zeros(gate), np.zeros(up), np.zeros(down))
