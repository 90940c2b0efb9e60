"""The kernels of this repository against the course's latency thresholds, on a NeuronCore."""

import functools
import importlib
from pathlib import Path

import pytest

from difftest.backends.detection import CLASSIC, NEWER, detect_sdk
from difftest.backends.device.entries import entries
from difftest.backends.device.measurements import history_file
from difftest.backends.device.stage import CONVOLUTIONS, MISSED, TRANSPOSE, keep, run_threshold
from difftest.backends.device.timers import open_bench

FILES = {"fused_conv2d_maxpool": "conv2d", "matrix_transpose": "transpose"}
FOLDERS = {CLASSIC: "kernels.classic", NEWER: "kernels.nki"}


def folder_for(sdk):
    """The kernels that the SDK runs on a device: today's, where it takes no classic ones."""
    ways = entries(sdk)
    return FOLDERS[NEWER if NEWER in ways and CLASSIC not in ways else CLASSIC]


def module_of(name):
    return importlib.import_module(f"{folder_for(detect_sdk())}.{FILES[name]}")


def import_kernel(name):
    return getattr(module_of(name), name)


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
    kernel_file = Path(module_of(threshold.kernel).__file__)
    keep(result, history_file(), kernel_file, bench.machine)
    assert result.result != MISSED, "\n".join(result.lines())
