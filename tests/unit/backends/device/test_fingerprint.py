import importlib
import sys
import types

import numpy as np
import pytest

from difftest.backends.base import KernelCall
from difftest.backends.device.fingerprint import UnknownStateError, fingerprint

MODULE = """
import helpers
from helpers import helper

SIZE = 128

def kernel(a, scale=2):
    def inner(x):
        return x * SIZE
    return inner(helper(a)) + helpers.OFFSET
"""

HELPERS = """
OFFSET = 1
DEEP = 3

def helper(a):
    return deeper(a) + DEEP

def deeper(a):
    return a
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The fingerprint of ``kernel`` with these two modules, imported anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def fingerprint_of(module=MODULE, helpers=HELPERS, versions=None, **changes):
        (tmp_path / "kernel_module.py").write_text(module)
        (tmp_path / "helpers.py").write_text(helpers)
        for name in ("kernel_module", "helpers"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        kernel = importlib.import_module("kernel_module").kernel
        call = {"inputs": (np.ones((2, 3), np.float32),), **changes}
        return fingerprint(KernelCall(kernel=kernel, **call), versions or {"neuronx-cc": "2.21"})

    return fingerprint_of


def test_the_same_is_the_same(load):
    assert load() == load()


def test_other_data_in_the_same_shape_is_the_same(load):
    assert load(inputs=(np.zeros((2, 3), np.float32),)) == load()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * SIZE", "x / SIZE"),
        ("SIZE = 128", "SIZE = 127"),
        ("scale=2", "scale=3"),
    ],
)
def test_a_change_of_the_kernels_file_shows(load, old, new):
    assert load(MODULE.replace(old, new)) != load()


@pytest.mark.parametrize(
    ("old", "new"),
    [("OFFSET = 1", "OFFSET = 2"), ("DEEP = 3", "DEEP = 4"), ("return a\n", "return -a\n")],
)
def test_a_change_of_what_the_kernel_calls_shows(load, old, new):
    """The kernel's own source is the same each time."""
    assert load(helpers=HELPERS.replace(old, new)) != load()


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": (np.ones((3, 2), np.float32),)},
        {"inputs": (np.ones((2, 3), np.float16),)},
        {"outputs": (np.ones(1, np.float32),)},
        {"parameters": {"scale": 4}},
        {"grid": (2,)},
        {"versions": {"neuronx-cc": "2.22"}},
    ],
)
def test_shapes_dtypes_parameters_grid_and_sdk_show(load, change):
    assert load(**change) != load()


def test_a_patched_global_shows(load, monkeypatch):
    before = load()
    kernel = sys.modules["kernel_module"].kernel
    call = KernelCall(kernel=kernel, inputs=(np.ones((2, 3), np.float32),))
    assert fingerprint(call, {"neuronx-cc": "2.21"}) == before
    monkeypatch.setattr(sys.modules["kernel_module"], "SIZE", 64)
    assert fingerprint(call, {"neuronx-cc": "2.21"}) != before


def test_a_value_that_the_kernel_closes_over_shows():
    def scaled(factor):
        def kernel(a):
            return a * factor

        return fingerprint(KernelCall(kernel=kernel, inputs=(np.ones(3),)), {})

    assert scaled(2) == scaled(2) != scaled(3)


def test_state_that_cannot_be_read_is_not_guessed():
    state = types.SimpleNamespace(size=3)

    def kernel(a):
        return a * state.size

    with pytest.raises(UnknownStateError, match="namespace"):
        fingerprint(KernelCall(kernel=kernel, inputs=()), {})


def test_a_kernel_whose_function_does_not_show_has_none():
    with pytest.raises(UnknownStateError, match="does not show"):
        fingerprint(KernelCall(kernel=len, inputs=()), {})
