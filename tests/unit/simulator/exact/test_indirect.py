"""Exact runs of what moves through tiles of indices: each place keeps, or gets, its own numbers."""

import numpy as np

from difftest.simulator import launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.unit.simulator.frontend.nki.kernels import stored

X = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
HERE, THERE = (
    np.array(numbers, np.int32)[:, None] for numbers in ((3, 99, 7, 5), (9, 2, 16, 15))
)
"""Indices of rows: the second row lacks a source, the third a destination."""


def scaled(x, factor):
    """A tensor in HBM with rounded numbers."""
    made = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(made, nl.load(x), nl.multiply, factor)
    return stored(made)


@jit
def moved(x, here, there):
    pattern = [[32, 4], [1, 32]]
    out = scaled(x, 0.7)
    source = scaled(x, 1 / 3)
    nisa.dma_copy(
        out.ap(pattern, vector_offset=nl.load(there)),
        source.ap(pattern, vector_offset=nl.load(here)),
        oob_mode=nisa.oob_mode.skip,
    )
    rows = source.ap(pattern, vector_offset=nl.load(here))
    whole = scaled(x[0:4], 0.7)
    nisa.dma_copy(whole, rows, oob_mode=nisa.oob_mode.skip)
    return out, whole


def test_rows_that_either_side_skips_keep_theirs():
    run = launch(moved, [X, HERE, THERE], exact=True).exact
    assert not run.doubts
    output, whole = run.outputs
    wide = X.astype(np.float64)
    expected = wide * 0.7
    expected[[9, 15]] = wide[[3, 5]] * (1 / 3)
    np.testing.assert_allclose(output.value, expected, rtol=1e-14)
    assert (output.error > 0).all()
    expected = wide[[3, 1, 7, 5]] * [[1 / 3], [0.7], [1 / 3], [1 / 3]]
    np.testing.assert_allclose(whole.value, expected, rtol=1e-14)


@jit
def summed(wide, ones, rows):
    pattern = [[32, 4], [1, 32]]
    whole = nl.load(ones)
    gathered = nl.load(ones)
    scattered = stored(nl.load(ones))
    picked, there = (
        x.ap(pattern, vector_offset=nl.load(rows)) for x in (wide, scattered)
    )
    for total, source in ((whole, wide), (gathered, picked), (there, wide)):
        nisa.dma_compute(total, [total, source], nl.add)
    return stored(whole), stored(gathered), scattered


def test_a_dma_rounds_wide_integers_that_it_adds():
    """To float32, and their sums: twice of 2**24 + 1 and 1, both times down."""
    arrays = np.full((4, 32), 2**24 + 1, np.int32), np.ones((4, 32), np.float32)
    result = launch(
        summed, [*arrays, np.arange(4, dtype=np.int32)[:, None]], exact=True
    )
    for got, output in zip(result.outputs, result.exact.outputs, strict=True):
        assert (got == 2**24).all()
        assert (output.value - got <= output.error).all()
