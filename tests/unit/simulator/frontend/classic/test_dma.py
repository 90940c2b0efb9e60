"""Loads and stores, and what they refuse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import in_psum, normal, on_tiles

A = normal(6, 4, 5)


@every("shape, loaded", [((7,), (7, 1)), ((7, 1), (7, 1)), ((4, 3, 2), (4, 3, 2)), ((1,), (1, 1))])
def test_a_loaded_tile_has_at_least_two_dimensions(shape, loaded):
    data = normal(*shape)
    assert_array_equal(on_tiles(lambda x: x, data), data.reshape(loaded), strict=True)


def test_a_load_may_cast():
    def kernel(x):
        out = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x, dtype=nl.bfloat16))
        return out

    result = launch(kernel, [A]).outputs[0]
    assert_array_equal(result, A.astype(ml_dtypes.bfloat16), strict=True)


STORED = {
    "a tile": (lambda x: x, A),
    "a tile in PSUM": (in_psum, A),
    "one partition": (lambda x: x[0:1], np.repeat(A[:1], 6, axis=0)),
    "one column": (lambda x: x[:, :, 0:1], np.repeat(A[:, :, :1], 5, axis=2)),
    "fewer dimensions": (lambda x: x[:, 0, :], np.repeat(A[:, :1], 4, axis=1)),
    "one element": (lambda x: x[0, 0, 0], np.full_like(A, A[0, 0, 0])),
    "another shape": (lambda x: x.reshape((6, 20)), A),
    "a number": (lambda x: 2.5, np.full_like(A, 2.5)),
    "an integer": (lambda x: 3, np.full_like(A, 3)),
    "a NumPy number": (lambda x: np.float64(2.5), np.full_like(A, 2.5)),
}


@every("value, expected", STORED.values())
def test_what_can_be_stored(value, expected):
    def kernel(x):
        out = nl.ndarray((6, 4, 5), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, value(nl.load(x)))
        return out

    assert_array_equal(launch(kernel, [A]).outputs[0], expected)


def test_stores_into_parts_and_rows():
    def kernel(x):
        out = nl.ndarray((6, 4, 5), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out[0:3], tile[3:6])
        nl.store(out[3:6, 0:4:2, 1], tile[0:3, 1:4:2, 2])
        nl.store(out[3:6, 0:4:2, nl.ds(2, 3)], 1.0)
        return out

    result = launch(kernel, [A])
    expected = np.full_like(A, np.nan)
    expected[0:3] = A[3:6]
    expected[3:6, 0:4:2, 1] = A[0:3, 1:4:2, 2]
    expected[3:6, 0:4:2, 2:5] = 1
    assert_array_equal(result.outputs[0], expected)
    assert_array_equal(result.unwritten[0], np.isnan(expected))


def sbuf(*shape):
    return nl.zeros(shape, nl.float32)


def hbm(*shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.hbm)


REFUSED = [
    (
        "a store into SBUF",
        lambda: nl.store(sbuf(4, 4), sbuf(4, 4)),
        "nl.store takes dst in hbm",
        "in sbuf",
    ),
    ("a store of HBM", lambda: nl.store(hbm(4, 4), hbm(4, 4)), "in sbuf or psum", "private_hbm"),
    (
        "a store of another row",
        lambda: nl.store(hbm(4, 4), sbuf(4, 3)),
        "nl.store's value has its target's shape",
        "target [4, 4], value [4, 3]",
    ),
    (
        "a text",
        lambda: nl.store(hbm(4, 4), "0"),
        "nl.store takes a tile as value",
        "str '0'",
    ),
    ("a copy of HBM", lambda: nl.copy(hbm(4, 4)), "nl.copy takes src in sbuf or psum", "hbm"),
    (
        "a broadcast that does not fit",
        lambda: nl.broadcast_to(sbuf(4, 3), shape=(4, 4)),
        "broadcast_to repeats dimensions of size 1",
        "[4, 3] float32 in sbuf to [4, 4]",
    ),
    (
        "a new partition dimension",
        lambda: nl.expand_dims(sbuf(4, 3), 0),
        "expand_dims takes an axis of 1 to 2",
        "axis=0",
    ),
    (
        "a transposed load of indices",
        lambda: nl.load_transpose2d(hbm(4, 4)[rows(), X]),
        "nl.load_transpose2d takes a tile as src",
        "IndexedTile",
    ),
    (
        "a copy to nowhere",
        lambda: nisa.dma_copy(dst=None, src=hbm(4, 4)),
        "dma_copy takes a tile as dst",
        "NoneType",
    ),
]
X = nl.arange(4)[None, :]


def rows():
    return nisa.iota(nl.arange(4)[:, None], nl.int32)


@every("use, rule, received", [row[1:] for row in REFUSED])
def test_what_is_refused(use, rule, received):
    def kernel():
        use()

    with pytest.raises(NkiError) as caught:
        launch(kernel)
    assert rule in caught.value.rule
    assert received in caught.value.received
