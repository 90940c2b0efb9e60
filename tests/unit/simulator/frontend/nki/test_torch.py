"""torch's tensors in and out; the module is a stand-in, or torch itself (DIFFTEST_TORCH=real)."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys

import numpy as np
import pytest

from difftest.simulator import DtypeError, KernelError, launch
from difftest.simulator.entry import kernel as nki
from difftest.simulator.entry.kernel import baremetal_with, benchmark_with, profile_with
from difftest.simulator.entry.nki_kernel import jit, simulate
from difftest.simulator.frontend.classic import language as classic
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.torch_standin import standin
from tests.unit.simulator.frontend.test_benchmark import Predictor

REAL = os.environ.get("DIFFTEST_TORCH") == "real"
A = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    if REAL:
        import torch

        return torch
    module = standin()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@jit
def doubled(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(a)))
    return out


def sum_of_two(a):
    out = classic.ndarray(a.shape, a.dtype, buffer=classic.shared_hbm)
    classic.store(out, classic.load(a) + classic.load(a))
    return out


CALLS = {
    "nki.jit": doubled,
    "nki.simulate": simulate(doubled),
    "nki.simulate(function)": simulate(doubled.function),
    "classic nki.jit": nki.jit(sum_of_two),
    "nki.simulate_kernel": functools.partial(nki.simulate_kernel, nki.jit(sum_of_two)),
    "nki.baremetal": baremetal_with(None)(sum_of_two),
    "nki.profile": profile_with(None)(sum_of_two),
    "nki.benchmark": benchmark_with(Predictor())(sum_of_two),
}
NAMES = ["float32", "float16", "bfloat16", "int32", "int16", "uint8", "float8_e5m2"]


@every("call", CALLS)
@every("name", NAMES)
def test_a_kernel_called_with_tensors_returns_tensors(torch, call, name):
    tensor = torch.from_numpy(A.copy()).to(getattr(torch, name))
    result = CALLS[call](tensor)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == tensor.dtype
    assert result.to(torch.float32).tolist() == (A * 2).tolist()


def test_a_bool_stays_one(torch):
    @jit
    def kernel(a):
        assert a.dtype == nl.bool_
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
        return out

    result = kernel(torch.from_numpy(A > 3))
    assert result.dtype == torch.bool
    assert result.tolist() == (A > 3).tolist()


def test_several_outputs_are_a_tuple_and_arrays_may_be_among_tensors(torch):
    both = jit(lambda a, b: (doubled(a), doubled(b)))
    first, second = both(torch.from_numpy(A.copy()), A + 1)
    assert first.tolist() == (A * 2).tolist()
    assert second.tolist() == (A * 2 + 2).tolist()
    assert type(both(A, A)[0]) is np.ndarray


@every("name", ["float32", "bfloat16"])
def test_a_torch_tensor_has_the_writes_of_the_kernel(torch, name):
    @jit
    def kernel(a):
        nl.store(a, nl.multiply(nl.load(a), 3.0))

    tensor = torch.from_numpy(A.copy()).to(getattr(torch, name))
    assert kernel(tensor) is None
    assert tensor.to(torch.float32).tolist() == (A * 3).tolist()


def test_a_failed_kernel_leaves_its_tensors_alone(torch):
    @jit
    def kernel(a):
        nl.store(a, nl.multiply(nl.load(a), 3.0))
        raise LookupError

    tensor = torch.from_numpy(A.copy())
    with pytest.raises(LookupError):
        kernel(tensor)
    assert tensor.tolist() == A.tolist()


def test_tensors_in_objects_and_tensors_that_are_no_plain_memory(torch):
    @dataclasses.dataclass
    class Weights:
        first: object
        bias: object = None

    kernel = jit(lambda weights, more: (doubled(weights.first), doubled(more["x"])))
    turned = torch.from_numpy(A.copy()).t()
    learned = torch.from_numpy(A.copy()).requires_grad_()
    first, second = kernel(Weights(turned), {"x": learned})
    assert first.tolist() == (A.T * 2).tolist()
    assert second.tolist() == (A * 2).tolist()


def test_a_dtype_of_torch_is_the_one_of_that_name(torch):
    @jit
    def kernel(a, dtype):
        assert dtype == nl.bfloat16
        out = nl.ndarray(a.shape, dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, a)
        return out

    assert (
        kernel(torch.from_numpy(A.copy()), dtype=torch.bfloat16).dtype == torch.bfloat16
    )


def test_launch_returns_arrays(torch):
    result = launch(doubled, (torch.from_numpy(A.copy()),)).outputs[0]
    np.testing.assert_array_equal(result, A * 2)


def test_an_output_that_torch_has_no_dtype_for_changes_nothing(torch):
    @jit
    def kernel(a):
        nl.store(a, nl.multiply(nl.load(a), 3.0))
        out = nl.ndarray(a.shape, nl.tfloat32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, a)
        return out

    tensor = torch.from_numpy(A.copy())
    with pytest.raises(DtypeError, match="torch has no dtype for an output"):
        kernel(tensor)
    assert tensor.tolist() == A.tolist()


class OnDevice:
    """Makes a tensor claim that it is on a device; its copy is on the CPU."""

    def __init__(self, torch):
        device = type("device", (), {"type": "xla"})()
        copied = {"device": property(lambda self: device), "detach": lambda self: self}
        copied["cpu"] = lambda self: torch.from_numpy(A.copy())
        self.kind = type("DeviceTensor", (torch.Tensor,), copied)

    def tensor(self):
        return self.kind.__new__(self.kind)


def test_a_tensor_on_a_device_is_copied_and_not_written(torch):
    tensor = OnDevice(torch).tensor()
    assert doubled(tensor).tolist() == (A * 2).tolist()

    @jit
    def kernel(a):
        nl.store(a, nl.load(a))

    with pytest.raises(KernelError, match="read-only"):
        kernel(tensor)


def test_without_torch_nothing_is_a_tensor(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    np.testing.assert_array_equal(doubled(A), A * 2)
