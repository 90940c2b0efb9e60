"""Whole kernels on padded tiles, as authors write them, and kernels that are off by one step."""

import numpy as np
import pytest

from difftest.simulator import UnwrittenError, launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every

MODES = every("plain", [False, True])
RNG = np.random.default_rng(5)
F32 = nl.float32


def new(*shape, buffer=nl.sbuf):
    return nl.ndarray(shape, F32, buffer=buffer)


def turned(tile):
    """Through PSUM, as the Tensor Engine does it."""
    product = new(*tile.shape[::-1], buffer=nl.psum)
    nisa.nc_transpose(product, tile)
    made = new(*tile.shape[::-1])
    nisa.tensor_copy(made, product)
    return made


@jit
def attention(q, k, v, summed):
    """Run 40 queries and 70 keys in tiles of 128; the last ``summed`` columns are not keys."""
    queries = q.shape[0]
    keys = k.shape[0]
    width = q.shape[1]
    tiles = [new(128, width) for _ in range(3)]
    for tile, given in zip(tiles, (q, k, v), strict=True):
        nisa.dma_copy(tile[0 : given.shape[0]], given)
    scores = new(128, 128, buffer=nl.psum)
    nisa.nc_matmul(scores, turned(tiles[0]), turned(tiles[1]))
    weights = new(128, 128)
    total = new(128, 1)
    scale = new(128, 1)
    counted = keys + summed
    nisa.activation_reduce(
        weights[:, 0:counted],
        nl.exp,
        scores[:, 0:counted],
        scale=0.125,
        reduce_op=nl.add,
        reduce_res=total,
    )
    nisa.reciprocal(scale, total)
    shares = new(128, 128)
    mixed = new(128, width, buffer=nl.psum)
    result = new(128, width)
    nisa.tensor_scalar(shares, weights, nl.multiply, scale)
    nisa.nc_matmul(mixed, turned(shares)[0:keys], tiles[2][0:keys])
    nisa.tensor_copy(result, mixed)
    out = nl.ndarray((queries, width), F32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, result[0:queries])
    return out


@MODES
@every("summed", [0, 1])
def test_attention_on_padded_rows_is_right_unless_padding_is_summed(plain, summed):
    q, k, v = (
        RNG.standard_normal((rows, 64)).astype(np.float32) for rows in (40, 70, 70)
    )
    if summed:
        with pytest.raises(UnwrittenError):
            launch(attention, [q, k, v, summed], plain=plain)
        return
    (output,) = launch(attention, [q, k, v, summed], plain=plain).outputs
    weights = np.exp(q @ k.T * 0.125)
    expected = weights / weights.sum(1, keepdims=True) @ v
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@MODES
def test_an_output_that_is_stored_as_other_bits(plain):
    @jit
    def kernel(x):
        tile = new(16, 12)
        out = nl.ndarray((16, 12), F32, buffer=nl.shared_hbm)
        nisa.dma_copy(tile[0:10], x)
        nisa.dma_copy(out.view(nl.int16), tile.view(nl.int16))
        return out

    with pytest.raises(
        UnwrittenError, match="the kernel returned elements that were never written"
    ):
        launch(kernel, [np.ones((10, 12), np.float32)], plain=plain)
