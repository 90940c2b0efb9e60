"""The kernels of this repository against the course's latency thresholds, on a NeuronCore."""

import importlib

import pytest

from difftest.backends.device.backend import lacks_of
from difftest.backends.device.stage import CONVOLUTIONS, MISSED, TRANSPOSE, measure_threshold
from difftest.backends.device.timers import opened_timer
from difftest.backends.sdk import CLASSIC, NEWER, detect_sdk

FILES = {"fused_conv2d_maxpool": "conv2d", "matrix_transpose": "transpose"}
FOLDERS = {CLASSIC: "kernels.classic", NEWER: "kernels.nki"}


def folder_for(sdk):
    """The kernels that the SDK runs on a device: today's, where it takes no classic ones."""
    lacks = lacks_of(sdk)
    return FOLDERS[NEWER if lacks[CLASSIC] and not lacks[NEWER] else CLASSIC]


def module_of(name):
    return importlib.import_module(f"{folder_for(detect_sdk())}.{FILES[name]}")


def import_kernel(name):
    return getattr(module_of(name), name)


@pytest.fixture(scope="session")
def timer():
    """Of the device, once the kernel whose result is known came out right."""
    with opened_timer(lambda: import_kernel(TRANSPOSE.kernel)) as opened:
        yield opened


@pytest.mark.parametrize("threshold", [*CONVOLUTIONS, TRANSPOSE], ids=lambda one: one.name)
def test_threshold(threshold, timer, report):
    result = measure_threshold(threshold, import_kernel(threshold.kernel), timer)
    report(result)
    assert result.result != MISSED, "\n".join(result.lines())
