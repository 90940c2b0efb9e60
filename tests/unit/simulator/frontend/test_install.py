"""The embedded modules replace neuronxcc for a while, and leave no trace."""

import importlib
import importlib.util
import sys
import types

import numpy as np
import pytest

from difftest.simulator import NotModelledError
from difftest.simulator.entry import kernel
from difftest.simulator.entry.install import embedded, is_embedded
from difftest.simulator.frontend.arguments import AnyTensor
from difftest.simulator.frontend.classic import compiler, isa, language
from difftest.simulator.frontend.classic import typing as nki_typing
from difftest.simulator.frontend.classic.tensor import Tensor
from tests.every import every

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out
"""


def installed():
    return {
        name: module
        for name, module in sys.modules.items()
        if name.startswith("neuronxcc")
    }


@pytest.fixture(autouse=True)
def the_modules_are_as_they_were():
    before = installed()
    yield
    assert installed() == before


def test_the_documented_ways_to_import():
    with embedded():
        import neuronxcc.nki as nki
        import neuronxcc.nki.compiler as ncc
        import neuronxcc.nki.isa as nisa
        import neuronxcc.nki.language as nl
        import neuronxcc.nki.typing as nt
        from neuronxcc import nki as same
        from neuronxcc.nki import baremetal, benchmark, jit
        from neuronxcc.nki.language import par_dim
        from neuronxcc.nki.typing import mutable_tensor

        assert same is nki
        assert (nl, nisa, ncc, nt) == (language, isa, compiler, nki_typing)
        assert (nki.language, nki.isa, nki.compiler, nki.typing) == (nl, nisa, ncc, nt)
        assert (jit, baremetal, benchmark) == (kernel.jit, nki.baremetal, nki.benchmark)
        assert (nki.trace, nki.simulate_kernel) == (
            kernel.trace,
            kernel.simulate_kernel,
        )
        assert nki.tensor is AnyTensor
        assert issubclass(Tensor, AnyTensor)
        assert par_dim is language.par_dim
        assert mutable_tensor is nki_typing.mutable_tensor


@every("name", ["compiler", "framework", "compiler.kernel_builder"])
def test_parts_of_nki_that_are_not_modelled_can_be_imported_and_not_used(name):
    with embedded():
        module = importlib.import_module(f"nki.{name}")
        import nki

        assert (
            getattr(nki, name.partition(".")[0])
            is sys.modules[f"nki.{name.partition('.')[0]}"]
        )
        compiled = module.compile_kernel
        with pytest.raises(
            NotModelledError, match=f"nki.{name}.compile_kernel is not modelled"
        ):
            compiled(print)
        with pytest.raises(NotModelledError, match="a class that is based on it"):
            types.new_class("Mine", (compiled,))
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"nki.{name}.driver")


def test_the_modules_name_the_simulator():
    with embedded():
        import neuronxcc

        assert is_embedded(neuronxcc)
        assert "not the Neuron SDK" in neuronxcc.__doc__
        assert importlib.util.find_spec("neuronxcc").name == "neuronxcc"
        assert importlib.util.find_spec("neuronxcc.nki").name == "neuronxcc.nki"
    assert not is_embedded(types.ModuleType("neuronxcc"))


def test_after_an_error_nothing_is_there():
    before = installed()
    with pytest.raises(ZeroDivisionError), embedded():
        _ = 1 / 0
    assert installed() == before


@pytest.fixture
def real(monkeypatch):
    """A stand-in for the SDK's package, already imported, with a part of its own."""
    names = (
        "neuronxcc",
        "neuronxcc.nki",
        "neuronxcc.nki.language",
        "neuronxcc.starfish",
    )
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(
        sys.modules, "neuronxcc_other", types.ModuleType("neuronxcc_other")
    )
    return modules


def test_the_real_package_comes_back(real):
    with embedded():
        import neuronxcc.nki.language as nl

        assert nl is language
        assert "neuronxcc.starfish" not in sys.modules
        assert "neuronxcc_other" in sys.modules
    for name, module in real.items():
        assert sys.modules[name] is module


def test_modules_imported_within_the_block_are_removed(real):
    with embedded():
        sys.modules["neuronxcc.nki.extra"] = types.ModuleType("neuronxcc.nki.extra")
    assert "neuronxcc.nki.extra" not in sys.modules


def test_nested_installations_come_off_in_order():
    outer = embedded().install()
    first = sys.modules["neuronxcc"]
    with embedded():
        assert sys.modules["neuronxcc"] is not first
        with pytest.raises(
            RuntimeError, match="another neuronxcc was installed on top"
        ):
            outer.uninstall()
    assert sys.modules["neuronxcc"] is first
    outer.uninstall()
    assert "neuronxcc" not in sys.modules or sys.modules["neuronxcc"] is not first


def test_an_installation_is_made_and_removed_once():
    installation = embedded()
    with pytest.raises(RuntimeError, match="are not installed by this object"):
        installation.uninstall()
    assert installation.install() is installation
    with pytest.raises(RuntimeError, match="are already installed by this object"):
        installation.install()
    installation.uninstall()
    with pytest.raises(RuntimeError, match="are not installed by this object"):
        installation.uninstall()
    installation.install().uninstall()


def test_a_kernel_keeps_working_afterwards(tmp_path, monkeypatch):
    (tmp_path / "kernel_of_the_test.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    with embedded():
        module = importlib.import_module("kernel_of_the_test")
    monkeypatch.delitem(sys.modules, "kernel_of_the_test")
    data = np.ones((2, 3), np.float32)
    assert (module.doubled(data) == 2 * data).all()
    assert (module.nki.simulate_kernel(module.doubled, data) == 2 * data).all()
