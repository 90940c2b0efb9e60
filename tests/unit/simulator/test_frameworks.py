"""Tensors of PyTorch and JAX are arguments as arrays, and results in their own type.

The tests need neither framework: small classes have the parts that the module uses.
"""

import sys
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator.arrays import framework_array
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import language as nl

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


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


def test_jax_in_is_jax_out(jax):
    array = np.ones((2, 2), BFLOAT16).view(jax.Array)
    result = both((array, array))
    assert [type(one) for one in result] == [jax.Array] * 2
    np.testing.assert_array_equal(result[0], array)


def test_no_framework_is_imported_and_arrays_stay_arrays(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert type(more_and_double(np.ones((2, 2), np.float32))) is np.ndarray
    assert framework_array("text") is None
    assert not {"torch", "jax"} & set(sys.modules)
