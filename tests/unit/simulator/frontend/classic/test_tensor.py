"""Tensors as kernels handle them: operators, assignment, accumulation, views."""

from __future__ import annotations

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

A, B = normal(6, 8), normal(6, 8, seed=1)


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


REFUSED = [
    (
        "an assignment to HBM",
        lambda x, t: assigned(t, x),
        "tensors in HBM are written by DMA",
        "assignment to t [6, 8] float32 in shared_hbm",
    ),
    (
        "an assignment of HBM",
        lambda x, t: assigned(x, t),
        "assignment takes its value in sbuf or psum",
        "its value = t [6, 8] float32 in shared_hbm",
    ),
    (
        "another number of columns",
        lambda x, t: assigned(x, x[:, 0:3]),
        "an assignment's value has its target's shape, or repeats along free dimensions",
        "target [6, 8], value [6, 3]",
    ),
    (
        "other partitions",
        lambda x, t: assigned(x, x[0:1]),
        "an assignment's value has its target's shape, or repeats along free dimensions",
        "target [6, 8], value [1, 8]",
    ),
    (
        "more than the target",
        lambda x, t: assigned(x[:, 0:1], x),
        "an assignment's value has its target's shape, or repeats along free dimensions",
        "target [6, 1], value [6, 8]",
    ),
    (
        "a target beyond the tile",
        lambda x, t: assigned(x[:, 4:12], x),
        "an access stays inside its tensor",
        "indices 4 to 11 on axis 1",
    ),
    ("an index", lambda x, t: assigned(x, X), "an index is not a tile", "Index(shape=(1, 8)"),
    (
        "indices in a tile on the right",
        lambda x, t: assigned(x, x[P, nl.copy(x[:, 0:1], dtype=nl.int32)]),
        "a tile of indices on a side of '=' is not a copy that the engines make",
        "indexed by a tile",
    ),
    (
        "indices in a tile on the left",
        lambda x, t: x.__setitem__((P, nl.copy(x[:, 0:1], dtype=nl.int32)), 1.0),
        "a tile of indices on a side of '=' is not a copy that the engines make",
        "indexed by a tile",
    ),
    (
        "an array",
        lambda x, t: assigned(x, np.zeros((6, 8))),
        "assignment takes a tile as its value",
        "ndarray",
    ),
    ("None", lambda x, t: operator.eq(x, None), "nl.equal takes a tile as y", "NoneType None"),
    (
        "a copy to nowhere",
        lambda x, t: nisa.dma_copy(dst=None, src=t),
        "dma_copy takes a tile as dst",
        "NoneType",
    ),
    (
        "arithmetic in HBM",
        lambda x, t: t + 1.0,
        "nl.add takes x in sbuf or psum",
        "x = t [6, 8] float32 in shared_hbm",
    ),
    (
        "the other dialect",
        lambda x, t: todays.add(x, x),
        "nki's compiler refuses",
        "nki's add in a kernel of neuronxcc.nki",
    ),
]


@every("use, rule, received", [row[1:] for row in REFUSED])
def test_what_is_refused(use, rule, received):
    def kernel(t):
        use(nl.load(t), t)

    with pytest.raises(NkiError) as caught:
        launch(kernel, [A])
    assert rule in caught.value.rule
    assert received in caught.value.received


def test_numpys_functions_do_not_take_tiles():
    """NumPy says so itself; it does not loop over the tile for ever."""
    for function in (np.exp, np.sum, np.add.reduce):
        with pytest.raises(TypeError, match="NumPy computes nothing of a tensor; nki"):
            on_tiles(function, A)
    for function in (np.sort, np.ravel, np.array, float):
        with pytest.raises(KernelError, match="a tile is no array") as caught:
            on_tiles(function, A)
        assert caught.value.location.text.startswith("results = compute("), "not a line of NumPy's"
