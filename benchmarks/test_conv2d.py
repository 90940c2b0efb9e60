"""The production convolution on the simulator, against torch.nn.functional.conv2d.

The ratios compare runs in turn, in CPU time on one thread.
"""

import itertools
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.launch import one_thread

CHANNELS = 256
PLANE = 224
FILTER = 3
ROUNDS = 9
PEAK_MEMORY = 1.5e9  # bytes
DTYPES = (np.float32, np.float16)
AIMS = {"simulated, float32": 1.8, "simulated, float16": 2.5}
"""Times torch's float32, where both have the same vector instructions."""


def arguments(dtype):
    random = np.random.default_rng(0)
    shapes = (
        (1, CHANNELS, PLANE, PLANE),
        (CHANNELS, CHANNELS, FILTER, FILTER),
        (CHANNELS,),
    )
    return tuple(
        random.random(shape, dtype=np.float32).astype(dtype) for shape in shapes
    )


def simulated(X, W, bias):
    from kernels.classic.conv2d import fused_conv2d_maxpool

    return launch(fused_conv2d_maxpool, (X, W, bias), record=False).outputs[0]


def in_torch(X, W, bias):
    import torch

    return torch.nn.functional.conv2d(*map(torch.from_numpy, (X, W, bias))).numpy()


def bare_products(X, W, bias):
    """The kernel's products alone, each of one operand that is at hand: what BLAS takes of it."""
    output = PLANE - FILTER + 1
    stationary = W[:128, :128, 0, 0].copy()
    moving = X[0, :128, :2, :output].reshape(128, -1)
    product = np.empty((128, 2 * output), np.float32)
    with one_thread():
        for _ in itertools.product(
            range(output // 2), range(2), range(2), range(FILTER**2)
        ):
            np.matmul(stationary.T, moving, out=product)
    return np.broadcast_to(product[0, 0], (1, CHANNELS, output, output))


def test_conv2d(capsys):
    import torch

    torch.set_num_threads(1)
    single, half = map(arguments, DTYPES)
    # torch's half precision takes half a minute here, so it is compared with single precision.
    runs = {
        "simulated, float32": (simulated, single),
        "simulated, float16": (simulated, half),
        "bare products": (bare_products, single),
        "torch, float32": (in_torch, single),
    }
    seconds = {name: [] for name in runs}
    for _ in range(1 + ROUNDS):
        for name, (run, inputs) in runs.items():
            start = time.process_time()
            result = run(*inputs)
            seconds[name].append(time.process_time() - start)
            assert result.shape == (1, CHANNELS, *(PLANE - FILTER + 1,) * 2)
    beside = seconds.pop("torch, float32")[1:]  # the first warms up
    blas = next(
        one["architecture"] for one in threadpool_info() if one["user_api"] == "blas"
    )
    with capsys.disabled():
        print(
            f"\ntimes torch ({torch.backends.cpu.get_cpu_capability()}), BLAS for {blas}"
        )
        for name, taken in seconds.items():
            ratio = statistics.median(
                a / b for a, b in zip(taken[1:], beside, strict=True)
            )
            print(
                f"{name}: {ratio:.2f}"
                + (f" (aim {AIMS[name]})" if name in AIMS else "")
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_peak_memory(dtype, capsys):
    peak = int(
        subprocess.check_output([sys.executable, __file__, dtype.__name__], text=True)
    )
    with capsys.disabled():
        print(
            f"\nconv2d {dtype.__name__}: peak memory {peak / 1e6:.0f} MB (aim 1500 MB)"
        )
    assert peak < PEAK_MEMORY


def print_peak_memory(dtype):
    """The peak resident memory in bytes of this process after one simulation."""
    import resource

    with embedded():
        simulated(*arguments(dtype))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak if sys.platform == "darwin" else peak * 1024)


if __name__ == "__main__":
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for kernels/
    print_peak_memory(getattr(np, sys.argv[1]))
