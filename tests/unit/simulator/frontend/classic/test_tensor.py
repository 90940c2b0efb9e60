"""Tensors as kernels handle them: operators, assignment, accumulation, views."""

import functools
import operator

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import KernelError, NkiError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import language as todays
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

A = normal(6, 8)
B = normal(6, 8, seed=1)


def test_astype_and_the_properties():
    def compute(x):
        narrow = x.astype(nl.bfloat16)
        assert (x.shape, x.ndim, x.size, x.itemsize) == ((6, 8), 2, 48, 4)
        assert (narrow.dtype, narrow.itemsize) == (nl.bfloat16, 2)
        assert x.assert_shape((6, 8)) is x
        return narrow

    assert_array_equal(on_tiles(compute, A), A.astype(ml_dtypes.bfloat16), strict=True)


X = nl.arange(8)[None, :]
P = nl.arange(6)[:, None]


def assigned(target, value):
    target[...] = value


REFUSED = {
    "tensors in HBM are written by DMA": {
        "assignment to t [6, 8] float32 in shared_hbm": lambda x, t: assigned(t, x),
    },
    "assignment takes its value in sbuf or psum": {
        "its value = t [6, 8] float32 in shared_hbm": lambda x, t: assigned(x, t),
    },
    "an assignment's value has its target's shape, or repeats along free dimensions": {
        "target [6, 8], value [6, 3]": lambda x, t: assigned(x, x[:, 0:3]),
        "target [6, 8], value [1, 8]": lambda x, t: assigned(x, x[0:1]),
        "target [6, 1], value [6, 8]": lambda x, t: assigned(x[:, 0:1], x),
    },
    "an access stays inside its tensor": {
        "indices 4 to 11 on axis 1": lambda x, t: assigned(x[:, 4:12], x),
    },
    "an index is not a tile": {"Index(shape=(1, 8)": lambda x, t: assigned(x, X)},
    "a tile of indices on a side of '=' is not a copy that the engines make": {
        "indexed by a tile": lambda x, t: assigned(
            x, x[P, nl.copy(x[:, 0:1], dtype=nl.int32)]
        ),
        "tile [6, 8] float32 in sbuf indexed by": (
            lambda x, t: x.__setitem__((P, nl.copy(x[:, 0:1], dtype=nl.int32)), 1.0)
        ),
    },
    "assignment takes a tile as its value": {
        "ndarray": lambda x, t: assigned(x, np.zeros((6, 8)))
    },
    "nl.equal takes a tile as y": {"NoneType None": lambda x, t: operator.eq(x, None)},
    "dma_copy takes a tile as dst": {
        "NoneType": lambda x, t: nisa.dma_copy(dst=None, src=t)
    },
    "nl.add takes x in sbuf or psum": {
        "x = t [6, 8] float32 in shared_hbm": lambda x, t: t + 1.0
    },
    "nki's compiler rejects": {
        "nki's add in a kernel of neuronxcc.nki": lambda x, t: todays.add(x, x),
    },
}
"""By the rule, the received value and the use that it rejects."""


@every(
    "rule, received, use",
    [(r, *one) for r, uses in REFUSED.items() for one in uses.items()],
)
def test_misuse_of_a_tensor_is_rejected(rule, received, use):
    def kernel(t):
        use(nl.load(t), t)

    with pytest.raises(NkiError) as caught:
        launch(kernel, [A])
    assert rule in caught.value.rule
    assert received in caught.value.received


def test_numpys_functions_do_not_take_tiles():
    """Nor do they loop over the tile for ever. The line is the kernel's, not NumPy's."""
    one = A[0, 0]
    refused = {np.exp: "np.exp of", np.sum: "np.add.reduce of"}
    refused |= {lambda x: np.add.outer(one, x): "np.add.outer of"}
    refused |= {lambda x: np.add(one, x, dtype=np.float16): "np.add of"}
    refused |= dict.fromkeys((np.sort, np.mean, np.array, float), "used as")
    for function, received in refused.items():
        with pytest.raises(KernelError, match="a tile is no array") as caught:
            on_tiles(function, A)
        assert received in caught.value.received
        assert caught.value.location.file in (on_tiles.__code__.co_filename, __file__)
    for name in ("sub", "lt", "le", "gt", "ge", "eq", "ne"):  # which are the tile's own
        called = functools.partial(getattr(operator, name), one)
        assert_array_equal(on_tiles(called, A), called(A))


def test_pow_with_a_modulus_is_one_clear_error():
    # as Python 3.14 calls it
    for compute in (
        lambda x: pow(x, 2, 5),
        lambda x: x.__rpow__(2, 5),
    ):
        with pytest.raises(KernelError, match="without a modulus"):
            on_tiles(compute, A)
