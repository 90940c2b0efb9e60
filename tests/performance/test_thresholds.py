"""The kernels of this repository against the course's latency thresholds, on a NeuronCore."""

import importlib

import pytest

from difftest.testing.backends.device.core import missing_support
from difftest.testing.backends.device.timers import measure_stage, open_timer
from difftest.testing.backends.sdk import CLASSIC, NEWER, detect_sdk
from difftest.tools.course.assignment import PERFORMANCE, TRANSPOSE

FOLDERS = {CLASSIC: "kernels.classic", NEWER: "kernels.nki"}


def folder_for(sdk):
    """The kernels that the SDK runs on a device: classic ones, or else the current dialect's."""
    lacks = missing_support(sdk)
    return FOLDERS[NEWER if lacks[CLASSIC] and not lacks[NEWER] else CLASSIC]


def kernel_of(test):
    folder = folder_for(detect_sdk())
    if test is TRANSPOSE:
        return importlib.import_module(f"{folder}.transpose").matrix_transpose
    return importlib.import_module(f"{folder}.conv2d").fused_conv2d_maxpool


@pytest.fixture(scope="session")
def timer():
    """Return the device's kernel, once the kernel with a known result was right."""
    with open_timer(lambda: kernel_of(TRANSPOSE)) as opened:
        yield opened


@pytest.mark.parametrize("test", [*PERFORMANCE, TRANSPOSE], ids=lambda test: test.name)
def test_threshold(test, timer, report):
    result = measure_stage(test, kernel_of(test), timer)
    report(result)
    assert result.result != "missed", "\n".join(result.lines())
