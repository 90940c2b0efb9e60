"""The project's kernels in both dialects, and the convolution on two cores, in the model."""

import importlib
import itertools

import numpy as np

from difftest.simulator import TRN2, launch
from difftest.simulator.entry.install import embedded
from difftest.timing import predict
from tests.every import every

LAYER = [(1, 128, 64, 64), (128, 128, 3, 3), (128,)]
CASES = {
    "vector_add.vector_add_stream": ([(25_600,)] * 2, {"FREE_DIM": 200}),
    "matmul.nki_matmul_tiled_": ([(256, 256), (256, 1024), (256, 1024)], {}),
    "tutorial_matmul.matmul_hoisted": ([(256, 256), (256, 1024)], {}),
    "transpose.matrix_transpose": ([(1024, 1024)], {}),
    "conv2d.fused_conv2d_maxpool": (LAYER, {"pool_size": 2}),
}


def predicted(dialect, name, shapes, keywords, dtype=np.float32, grid=()):
    module, _, function = name.partition(".")
    with embedded():
        kernel = getattr(
            importlib.import_module(f"kernels.{dialect}.{module}"), function
        )
    arrays = [np.ones(shape, dtype) for shape in shapes]
    return predict(launch(kernel, arrays, keywords, grid=grid).trace, TRN2, dge=True)


@every("name, dtype", zip(CASES, itertools.cycle([np.float32, np.float16])))
def test_todays_kernel_is_predicted_as_fast_as_the_classic_one(name, dtype):
    classic, todays = (
        predicted(dialect, name, *CASES[name], dtype=dtype)
        for dialect in ("classic", "nki")
    )
    assert todays.latency <= 1.02 * classic.latency


@every("pool_size", [1, 2])
def test_two_cores_convolve_in_little_more_than_half_the_time(pool_size):
    shapes = [(1, 128, 130, 130), (128, 128, 3, 3), (128,)]
    one, two = (
        predicted(
            "nki",
            "conv2d.fused_conv2d_maxpool",
            shapes,
            {"pool_size": pool_size},
            grid=grid,
        )
        for grid in ((), (2,))
    )
    assert two.middle <= 0.55 * one.middle
