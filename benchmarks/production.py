"""The table of docs/explanation/production-kernels.md: `python -m benchmarks.production`.

All times are predicted, for trn2 and the toolchain of `nki.benchmark`.
"""

import numpy as np

from difftest.simulator import MACHINES, launch
from difftest.simulator.entry.install import embedded
from difftest.timing import predict
from difftest.timing.report import roofline

LARGE = (1, 256, 224, 224)
SMALL = (1, 256, 32, 16)
WEIGHTS = (256, 256, 3, 3)
ROWS = (
    ("224 x 224 float32", LARGE, "float32", 1),
    ("224 x 224 float32, max pooling", LARGE, "float32", 2),
    ("224 x 224 float16", LARGE, "float16", 1),
    ("224 x 224 float16, max pooling", LARGE, "float16", 2),
    ("32 x 16 float32", SMALL, "float32", 1),
    ("32 x 16 float16", SMALL, "float16", 1),
)


def row(title, kernel, shapes, dtype, named):
    """Print the bound and the 99th percentile of a kernel, in microseconds."""
    machine = MACHINES["trn2"]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]
    trace = launch(kernel, arrays, named, machine=machine).trace
    prediction = predict(trace, machine, dge=True)
    bounds = roofline(prediction)
    bound = max(bounds.tensor_bound, bounds.memory_bound)
    p99 = prediction.get_latency_percentile(99)
    print(f"{title} | {bound:,.0f} | {p99:,.0f}", flush=True)


def main():
    """Print the rows: the convolution of the course, and the transpose."""
    with embedded():
        from kernels.classic.conv2d import fused_conv2d_maxpool
        from kernels.classic.transpose import matrix_transpose

        print("shape, dtype | bound | predicted p99")
        for title, image, dtype, pool in ROWS:
            shapes = (image, WEIGHTS, (256,))
            row(title, fused_conv2d_maxpool, shapes, dtype, {"pool_size": pool})
        row("4096 x 4096 float32", matrix_transpose, [(4096, 4096)], "float32", {})


if __name__ == "__main__":
    main()
