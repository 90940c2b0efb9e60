"""The production convolution on the simulator, beside torch.nn.functional.conv2d."""

import subprocess
import sys

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.frontend.install import embedded

CHANNELS, PLANE, FILTER = 256, 224, 3
PEAK_MEMORY = 1.5e9  # bytes
DTYPES = (np.float32, np.float16)


def arguments(dtype):
    random = np.random.default_rng(0)
    shapes = ((1, CHANNELS, PLANE, PLANE), (CHANNELS, CHANNELS, FILTER, FILTER), (CHANNELS,))
    return tuple(random.random(shape, dtype=np.float32).astype(dtype) for shape in shapes)


def simulated(X, W, bias):
    from kernels.classic.conv2d import fused_conv2d_maxpool

    return launch(fused_conv2d_maxpool, (X, W, bias), record=False).outputs[0]


def in_torch(X, W, bias):
    import torch  # its threads are not to spin beside the simulator's, which therefore runs first

    return torch.nn.functional.conv2d(*map(torch.from_numpy, (X, W, bias))).numpy()


# torch's half precision takes half a minute a round on a processor without it.
@pytest.mark.parametrize(
    ("run", "dtype", "rounds"),
    [
        pytest.param(simulated, np.float32, 5, marks=pytest.mark.benchmark(group="conv2d float32")),
        pytest.param(simulated, np.float16, 5, marks=pytest.mark.benchmark(group="conv2d float16")),
        pytest.param(in_torch, np.float32, 5, marks=pytest.mark.benchmark(group="conv2d float32")),
        pytest.param(in_torch, np.float16, 1, marks=pytest.mark.benchmark(group="conv2d float16")),
    ],
)
def test_conv2d(benchmark, run, dtype, rounds):
    inputs = arguments(dtype)
    warmup = int(rounds > 1)
    result = benchmark.pedantic(run, inputs, rounds=rounds, warmup_rounds=warmup)
    output = PLANE - FILTER + 1
    assert result.shape == (1, CHANNELS, output, output)


@pytest.mark.parametrize("dtype", DTYPES)
def test_peak_memory(dtype, capsys):
    peak = int(subprocess.check_output([sys.executable, __file__, dtype.__name__], text=True))
    with capsys.disabled():
        print(f"\nconv2d {dtype.__name__}: peak memory {peak / 1e6:.0f} MB (aim 1500 MB)")
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
