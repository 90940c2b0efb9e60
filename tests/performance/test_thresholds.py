"""The kernels of this repository against the course's latency thresholds, on a NeuronCore."""

import functools
import importlib
from pathlib import Path

import pytest

from difftest.backends.device.history import history_file
from difftest.backends.device.stage import CONVOLUTIONS, MISSED, TRANSPOSE, keep, run_threshold
from difftest.backends.device.timers import open_bench

MODULES = {
    "fused_conv2d_maxpool": "kernels.classic.conv2d",
    "matrix_transpose": "kernels.classic.transpose",
}


def import_kernel(name):
    return getattr(importlib.import_module(MODULES[name]), name)


def load_of(threshold):
    return functools.partial(import_kernel, threshold.kernel)


@pytest.fixture(scope="session")
def bench():
    """The device, once the kernels whose result is known came out right."""
    opened = open_bench(load_of(TRANSPOSE))
    yield opened
    opened.close()


@pytest.mark.parametrize("threshold", [*CONVOLUTIONS, TRANSPOSE], ids=lambda one: one.name)
def test_threshold(threshold, bench, report):
    load = load_of(threshold)
    result = run_threshold(threshold, load, bench.timer, history_file())
    report(result)
    kernel_file = Path(importlib.import_module(MODULES[threshold.kernel]).__file__)
    keep(result, history_file(), kernel_file, bench.machine)
    assert result.result != MISSED, "\n".join(result.lines())
