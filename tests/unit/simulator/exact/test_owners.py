"""Exact runs of kernels that place tensors on the same bytes."""

import gc

import numpy as np

from difftest.simulator import launch
from difftest.simulator.exact.exact_values import ByteOwners
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored

X = np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)
WIDE = X.astype(np.float64)
FOREIGN = "the bits of rounded values are read as another tensor's"


def placed(place=0, dtype=nl.float32, shape=(16, 24)):
    return nl.ndarray(shape, dtype, address=(0, place))


def scaled(dst, src, factor):
    nisa.tensor_scalar(dst, src, nl.multiply, factor)
    return dst


def loaded(dst, x):
    nisa.dma_copy(dst, x)
    return dst


def exact_of(kernel):
    result = launch(kernel, [X], exact=True)
    (output,) = result.exact.outputs
    return result.exact, output, result.outputs[0]


def lost(run):
    return {doubt.reason for doubt in run.doubts if doubt.lost}


@every("dtype", [nl.float32, nl.int32])
def test_rounded_values_of_another_tensor(dtype):
    def kernel(x):
        other = placed(dtype=dtype)
        scaled(placed(), loaded(placed(4096), x), 1 / 3)
        return stored(other)

    run, _, _ = exact_of(kernel)
    assert lost(run) == {FOREIGN}


def test_a_part_that_another_tensor_overwrote_with_exact_values():
    def kernel(x):
        first = placed()
        half = placed(shape=(16, 12))
        scaled(first, loaded(placed(4096), x), 1 / 3)
        nisa.memset(half, 2.0)
        return stored(first)

    run, output, got = exact_of(kernel)
    assert not run.doubts
    assert (output.value[:, :12] == 2.0).all()
    assert (output.error[:, :12] == 0.0).all()
    np.testing.assert_allclose(output.value[:, 12:], WIDE[:, 12:] * (1 / 3), rtol=1e-14)
    assert (got[:, :12] == 2.0).all()


def test_data_of_a_freed_tensor_are_foreign():
    def kernel(x):
        first = scaled(placed(), loaded(placed(4096), x), 1 / 3)
        del first
        gc.collect()
        return stored(placed())

    run, _, _ = exact_of(kernel)
    assert lost(run) == {FOREIGN}


def test_the_check_can_fail(monkeypatch):
    """Without the owners' numbers, another tensor's data passes for this tensor's."""

    def forgetful(self, tile):
        return np.ones(tile.shape, np.bool_)

    monkeypatch.setattr(ByteOwners, "own", forgetful)

    def kernel(x):
        first = scaled(placed(), loaded(placed(4096), x), 1 / 3)
        scaled(placed(), loaded(placed(4096), x), 1 / 7)
        return stored(first)

    run, output, got = exact_of(kernel)
    assert run.has_meaning
    assert (np.abs(got - output.value) > output.error).any()
