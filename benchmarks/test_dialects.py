"""Identical kernels in both dialects, and many identical tiny instructions.

The ratios compare runs in pairs, one dialect after the other, in CPU time. They hold if a
computer's speed drifts.
"""

import statistics
import time

import numpy as np
import pytest

from difftest.simulator import launch

PAIRS = 9
AIM = 1.2
"""The largest ratio for the matmul, current to classic dialect; the convolution has no limit."""
ELEMENTS = 1000


def matrices():
    return tuple(np.random.default_rng(0).random((2, 1024, 1024), dtype=np.float32))


def images():
    random = np.random.default_rng(0)
    return random.random((128, 34, 34), np.float32), random.random(
        (3, 3, 128, 128), np.float32
    )


def matmul(lhsT, rhs):
    return lhsT.T @ rhs


def convolution(image, filters):
    windows = np.lib.stride_tricks.sliding_window_view(
        image, filters.shape[:2], axis=(1, 2)
    )
    return np.einsum("chwij,ijco->ohw", windows, filters, optimize=True)


def seconds(kernel, inputs):
    """Return the CPU time of a launch, and its output."""
    start = time.process_time()
    output = launch(kernel, inputs, record=False).outputs[0]
    return time.process_time() - start, output


@pytest.mark.parametrize(
    ("name", "inputs", "meaning", "aim"),
    [("matmul", matrices, matmul, AIM), ("conv", images, convolution, None)],
)
def test_today_beside_classic(name, inputs, meaning, aim, capsys):
    from benchmarks import dialects

    arrays = inputs()
    expected = meaning(*arrays)
    kernels = [
        getattr(dialects, f"{name}_{dialect}") for dialect in ("today", "classic")
    ]
    for kernel in kernels:  # which also warms up
        np.testing.assert_allclose(seconds(kernel, arrays)[1], expected, rtol=1e-4)
    ratios = []
    for _ in range(PAIRS):
        today, classic = (seconds(kernel, arrays)[0] for kernel in kernels)
        ratios.append(today / classic)
    ratio = statistics.median(ratios)
    with capsys.disabled():
        print(
            f"\n{name}: today's dialect takes {ratio:.2f} times the classic one's time"
        )
    assert aim is None or ratio < aim


@pytest.mark.benchmark(group="one element")
@pytest.mark.parametrize("record", [True, False], ids=["recorded", "not recorded"])
def test_one_element(benchmark, record):
    """Four instructions on tiles of one element, for each element; see OPS of a launch."""
    from kernels.classic.vector_add import vector_add_tiled

    vector = np.arange(ELEMENTS, dtype=np.float32)
    run = benchmark.pedantic(
        lambda: launch(vector_add_tiled, (vector, vector, 1), record=record),
        rounds=10,
        warmup_rounds=1,
    )
    np.testing.assert_array_equal(run.outputs[0], 2 * vector)
    benchmark.extra_info["us_per_instruction"] = (
        benchmark.stats.stats.min / (4 * ELEMENTS) * 1e6
    )
