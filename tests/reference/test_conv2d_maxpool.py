import numpy as np
import pytest

from reference.conv2d import conv2d_direct
from reference.conv2d_maxpool import conv2d_maxpool
from reference.maxpool2d import maxpool2d_direct
from tests.every import every


@every("pool_size", [1, 2, 3, (2, 1)])
@every("convolution", [{}, {"stride": 2, "padding": (0, 1, 2, 0), "groups": 2}])
def test_is_the_pooling_of_the_convolution_and_its_bias(pool_size, convolution):
    rng = np.random.default_rng(3)
    per_group = 4 // convolution.get("groups", 1)
    X, W, bias = (
        rng.integers(-9, 9, shape).astype(np.float32)
        for shape in ((2, 4, 9, 8), (6, per_group, 3, 2), (6,))
    )
    expected = maxpool2d_direct(conv2d_direct(X, W, bias, **convolution), pool_size)
    out = conv2d_maxpool(X, W, bias, pool_size, **convolution)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, expected, strict=True)


@every(
    "pool_size, message",
    [
        (0, "^pool_size: received 0; accepted: one or two integers >= 1$"),
        (
            (1, 4),
            r"^pool_size: received \(1, 4\); accepted: at most the convolution's 4 x 3$",
        ),
    ],
)
def test_a_bad_pool_size_is_named(pool_size, message):
    with pytest.raises(ValueError, match=message):
        conv2d_maxpool(
            np.zeros((1, 1, 4, 3)), np.zeros((1, 1, 1, 1)), pool_size=pool_size
        )
