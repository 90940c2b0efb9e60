"""Tensors of PyTorch and JAX go in as arrays and come out as what they were.

Neither framework is a need of this project's tests: stand-ins have what the module asks of them.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.frontend import foreign
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.kernel import jit, simulate
from tests.every import every

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class StandInTensor:
    """What `foreign` asks of a torch tensor: bits as another dtype, and no bfloat16 in NumPy."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def dtype(self) -> str:
        return f"torch.{self.array.dtype}"

    device = SimpleNamespace(type="cpu")

    def detach(self) -> StandInTensor:
        return self

    cpu = detach

    def numpy(self) -> np.ndarray:
        assert self.array.dtype != BFLOAT16, "torch raises a TypeError here"
        return self.array

    def view(self, dtype: object) -> StandInTensor:
        return StandInTensor(self.array.view(dtype))


@pytest.fixture
def torch(monkeypatch):
    module = ModuleType("torch")
    module.Tensor, module.dtype = StandInTensor, type("dtype", (), {})
    module.float32 = np.dtype(np.float32)
    module.from_numpy = StandInTensor
    module.int16, module.bfloat16 = np.dtype(np.int16), BFLOAT16
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture
def jax(monkeypatch):
    class Array(np.ndarray):
        pass

    module = ModuleType("jax")
    module.Array = Array
    module.numpy = ModuleType("jax.numpy")
    module.numpy.asarray = lambda array: np.asarray(array).view(Array)
    monkeypatch.setitem(sys.modules, "jax", module)
    return module


@jit
def more_and_double(x):
    """Returns x + 1 and doubles x in place."""
    tile = nl.load(x)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(tile, 1.0))
    nl.store(x, nl.multiply(tile, 2.0))
    return out


@jit
def both(pair):
    first, second = pair
    outs = [nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for x in pair]
    nl.store(outs[0], nl.load(second))
    nl.store(outs[1], nl.load(first))
    return tuple(outs)


@every("dtype", [np.float32, BFLOAT16])
def test_torch_in_is_torch_out_and_is_written_in_place(torch, dtype):
    tensor = StandInTensor(np.arange(6, dtype=dtype).reshape(2, 3))
    for kernel in (more_and_double, simulate(more_and_double)):
        before = tensor.array.copy()
        result = kernel(tensor)
        assert isinstance(result, StandInTensor)
        np.testing.assert_array_equal(result.array, before + np.dtype(dtype).type(1), strict=True)
        np.testing.assert_array_equal(tensor.array, before * np.dtype(dtype).type(2), strict=True)


def test_a_tensor_in_a_tuple_makes_each_output_one(torch):
    one, other = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    results = both((StandInTensor(one), other))
    assert [type(result) for result in results] == [StandInTensor] * 2
    np.testing.assert_array_equal(results[1].array, one)


def test_launch_itself_returns_arrays(torch):
    result = launch(more_and_double, [StandInTensor(np.ones((2, 2), np.float32))])
    assert type(result.outputs[0]) is np.ndarray


def test_jax_in_is_jax_out(jax):
    array = np.ones((2, 2), BFLOAT16).view(jax.Array)
    result = both((array, array))
    assert [type(one) for one in result] == [jax.Array] * 2
    np.testing.assert_array_equal(result[0], array)


def test_no_framework_is_imported_and_arrays_stay_arrays(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert type(more_and_double(np.ones((2, 2), np.float32))) is np.ndarray
    assert foreign.as_array("text") is None
    assert not {"torch", "jax"} & set(sys.modules)
