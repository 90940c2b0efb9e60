import importlib
import sys

import numpy as np
import pytest

from difftest.testing.backends.base import Completed, Crashed, KernelCall
from difftest.testing.backends.device.core import device_backend
from difftest.testing.backends.sdk import (
    DialectError,
    dialect_of,
    function_of,
    sdk_simulator,
)
from tests.unit.testing.backends.sdk_standin import write_classic, write_newer

KERNEL = """
import {package} as nki
import {package}.language as nl

@nki.jit
def add(a, b):
    return nl.add(nl.load(a), nl.load(b))
"""


@pytest.fixture
def kernels(site, monkeypatch):
    """Modules of kernels, one of each dialect, to import once the SDK is written."""
    (site / "for_classic.py").write_text(KERNEL.format(package="neuronxcc.nki"))
    (site / "for_newer.py").write_text(KERNEL.format(package="nki"))

    def load(name):
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name).add

    return load


def call(kernel):
    return KernelCall(kernel=kernel, inputs=(np.ones((2, 2), np.float32),) * 2)


def test_the_dialect_is_read_off_the_kernels_file(site, kernels):
    write_classic(site)
    write_newer(site)
    assert dialect_of(kernels("for_classic")) == "classic"
    assert dialect_of(kernels("for_newer")) == "newer"
    assert dialect_of(lambda a: a) is None


def test_the_function_inside_a_kernel_is_found(site, kernels):
    write_newer(site)
    assert function_of(kernels("for_newer")).__name__ == "add"
    assert function_of(len) is None


def test_each_kernel_runs_on_its_own_generation(site, kernels):
    write_classic(site)
    write_newer(site)
    backend = sdk_simulator()
    for name in ("for_classic", "for_newer"):
        assert isinstance(backend.run(call(kernels(name))), Completed)


def test_a_classic_kernel_is_reported_by_a_newer_simulator(site, kernels):
    write_classic(site)
    kernel = kernels("for_classic")
    (site / "neuronxcc" / "nki" / "__init__.py").write_text(
        "from neuronxcc.nki import language"
    )
    write_newer(site)
    for module in [name for name in sys.modules if name.startswith("neuronxcc")]:
        del sys.modules[module]
    outcome = sdk_simulator().run(call(kernel))
    assert isinstance(outcome, Crashed)
    assert isinstance(outcome.error, DialectError)


def test_a_classic_kernel_is_reported_by_a_newer_device_before_anything_compiles(
    site, chip, kernels, tmp_path, monkeypatch
):
    write_classic(site, "2.27.5334.0")
    write_newer(site, "0.6.0")
    monkeypatch.setenv("STANDIN_COUNT", str(tmp_path / "count"))
    backend = device_backend()
    outcome = backend.run(call(kernels("for_classic")))
    assert isinstance(outcome, Crashed)
    first, found, remedy = str(outcome.error).splitlines()
    assert first == (
        "the kernel is written for neuronxcc.nki (classic); device runs newer kernels here."
    )
    assert found.startswith(
        "  found:  neuronxcc.nki.baremetal of SDK 2.32 is not used: since 2.30"
    )
    assert remedy.startswith(
        "  remedy: port the kernel (NKI migration guide, 0.1.0 to 0.2.0)"
    )
    assert not (tmp_path / "count").exists()
    backend.close()
