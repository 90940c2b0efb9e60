"""The course assignment's tests of the fused convolution: cases, points and thresholds as data.

Source: the assignment's handout ("Grading Guidelines") and its public starter code
(stanford-cs149/asst4-trainium2, `part2/test_harness.py`), in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from difftest.testing.backends.device.thresholds import Array, PerformanceTest

SEED = 42
"""The default seed of the starter code."""
BATCH = 4
FILTER = 3
SMALL = (32, 16)
LARGE = (224, 224)
MAX_POOL = 2


class ConvolutionCase(NamedTuple):
    """The arguments of one call of the convolution: images, filters and bias."""

    name: str
    X: Array
    W: Array
    bias: Array


@dataclass(frozen=True, kw_only=True)
class CorrectnessTest:
    """A correctness test. It gives its points only if all its cases pass."""

    name: str
    image: tuple[int, int]
    channels: tuple[tuple[int, int], ...]
    """Pairs of input and output channels, one pair for each case."""
    bias: bool
    pool_size: int
    points: float = 2.5

    def cases(self, random: np.random.RandomState) -> Iterator[ConvolutionCase]:
        """Yield each case, in float32, drawn in the order of the starter code."""
        for c_in, c_out in self.channels:
            X = random.rand(BATCH, c_in, *self.image).astype(np.float32)
            W = random.rand(c_out, c_in, FILTER, FILTER).astype(np.float32)
            if self.bias:
                bias = random.rand(c_out).astype(np.float32)
            else:
                bias = np.zeros(c_out, np.float32)
            yield ConvolutionCase(f"{c_in} -> {c_out} channels", X, W, bias)


_PAIRS = tuple((c_in, c_out) for c_in in (128, 256) for c_out in (128, 256))

CORRECTNESS = tuple(
    CorrectnessTest(
        name=f"{size} images{also}",
        image=image,
        channels=channels,
        bias=bool(also),
        pool_size=pool_size,
        points=0.0 if also and image == SMALL else 2.5,
    )
    for size, image, channels in (
        ("small", SMALL, _PAIRS),
        ("large", LARGE, ((256, 256),)),
    )
    for also, pool_size in (("", 1), (", bias", 1), (", bias, max pool", MAX_POOL))
)
"""Two of these tests are not the course's and give no points. They find errors of large images
within a second, on small images.
"""

_LIMITS = {
    (LARGE, "float32"): (4964.0, 4596.0),
    (LARGE, "float16"): (1365.0, 1002.0),
    (SMALL, "float32"): (110.0, 110.0),
    (SMALL, "float16"): (84.0, 84.0),
}
_POINTS = {
    (LARGE, 1): 17.5,
    (LARGE, MAX_POOL): 7.5,
    (SMALL, 1): 1.25,
    (SMALL, MAX_POOL): 1.25,
}

PERFORMANCE = tuple(
    PerformanceTest(
        name=f"{image[0]}x{image[1]}, {dtype}, {'max pool' if pool > 1 else 'no pool'}",
        shapes=((1, 256, *image), (256, 256, FILTER, FILTER), (256,)),  # X, W and bias
        dtype=dtype,
        pool_size=pool,
        points=_POINTS[image, pool],
        relaxed_us=_LIMITS[image, dtype][0],
        full_us=_LIMITS[image, dtype][1],
        extra_credit=image == SMALL,
    )
    for image in (LARGE, SMALL)
    for pool in (1, MAX_POOL)
    for dtype in ("float32", "float16")
)
TRANSPOSE = PerformanceTest(
    name="4096x4096, float32, transpose",
    shapes=((4096, 4096),),
    dtype="float32",
    relaxed_us=float(np.nextafter(700, 0)),
    full_us=float(np.nextafter(700, 0)),
)
"""Part 1's extra credit, given below 700 us. Its points do not count for this grade."""


def correctness_tests(*, max_pool: bool) -> tuple[CorrectnessTest, ...]:
    """Return the correctness tests, with or without max pooling."""
    return tuple(test for test in CORRECTNESS if max_pool or test.pool_size == 1)


def performance_tests(*, max_pool: bool) -> tuple[PerformanceTest, ...]:
    """Return the performance tests, with or without max pooling; extra credit last."""
    return tuple(test for test in PERFORMANCE if max_pool or test.pool_size == 1)
