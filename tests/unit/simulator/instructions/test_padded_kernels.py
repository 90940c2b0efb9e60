"""Whole kernels on padded tiles, as their authors write them, and ones that are wrong by a step."""

import numpy as np
import pytest

from difftest.inspection import Inspector
from difftest.simulator import UnwrittenError, launch
from difftest.simulator.frontend.classic import isa as classic_nisa
from difftest.simulator.frontend.classic import language as classic_nl
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.kernel import jit
from difftest.simulator.witness import witnessing
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
    """40 queries and 70 keys in tiles of 128; the last ``summed`` columns are no keys."""
    queries, keys, width = q.shape[0], k.shape[0], q.shape[1]
    tiles = [new(128, width) for _ in range(3)]
    for tile, given in zip(tiles, (q, k, v), strict=True):
        nisa.dma_copy(tile[0 : given.shape[0]], given)
    scores = new(128, 128, buffer=nl.psum)
    nisa.nc_matmul(scores, turned(tiles[0]), turned(tiles[1]))
    weights, total, scale = new(128, 128), new(128, 1), new(128, 1)
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
    shares, mixed, result = new(128, 128), new(128, width, buffer=nl.psum), new(128, width)
    nisa.tensor_scalar(shares, weights, nl.multiply, scale)
    nisa.nc_matmul(mixed, turned(shares)[0:keys], tiles[2][0:keys])
    nisa.tensor_copy(result, mixed)
    out = nl.ndarray((queries, width), F32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, result[0:queries])
    return out


@MODES
@every("summed", [0, 1])
def test_attention(plain, summed):
    q, k, v = (RNG.standard_normal((rows, 64)).astype(np.float32) for rows in (40, 70, 70))
    if summed:
        with pytest.raises(UnwrittenError):
            launch(attention, [q, k, v, summed], plain=plain)
        return
    (output,) = launch(attention, [q, k, v, summed], plain=plain).outputs
    weights = np.exp(q @ k.T * 0.125)
    expected = weights / weights.sum(1, keepdims=True) @ v
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@MODES
@every("buffer", [nl.shared_hbm, nl.private_hbm])
@every("rows", [10, 11])
def test_scratch_that_is_padded(plain, buffer, rows):
    """What leaves the kernel is judged, not where it went on its way."""

    @jit
    def kernel(x):
        tile, scratch = new(16, 12), nl.ndarray((16, 12), F32, buffer=buffer)
        nisa.dma_copy(tile[0:10], x)
        nisa.dma_copy(scratch, tile)
        back = new(16, 12)
        nisa.dma_copy(back, scratch)
        out = nl.ndarray((rows, 12), F32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, back[0:rows])  # the use
        return out

    x = RNG.standard_normal((10, 12)).astype(np.float32)
    if rows == 10:
        np.testing.assert_array_equal(launch(kernel, [x], plain=plain).outputs[0], x)
        return
    with pytest.raises(UnwrittenError, match="the kernel returned what nothing") as caught:
        launch(kernel, [x], plain=plain)
    assert caught.value.location.text.endswith("# the use")


@MODES
def test_an_output_that_is_overwritten_in_time(plain):
    @jit
    def kernel(x):
        tile, out = new(16, 12), nl.ndarray((16, 12), F32, buffer=nl.shared_hbm)
        nisa.dma_copy(tile[0:10], x)
        nisa.dma_copy(out, tile)
        nisa.dma_copy(out[10:16], tile[0:6])
        return out

    x = RNG.standard_normal((10, 12)).astype(np.float32)
    (output,) = launch(kernel, [x], plain=plain).outputs
    np.testing.assert_array_equal(output, np.concatenate([x, x[0:6]]))


@MODES
def test_an_output_that_is_stored_as_other_bits(plain):
    @jit
    def kernel(x):
        tile, out = new(16, 12), nl.ndarray((16, 12), F32, buffer=nl.shared_hbm)
        nisa.dma_copy(tile[0:10], x)
        nisa.dma_copy(out.view(nl.int16), tile.view(nl.int16))
        return out

    with pytest.raises(UnwrittenError, match="the kernel returned what nothing had written"):
        launch(kernel, [np.ones((10, 12), np.float32)], plain=plain)


@MODES
def test_an_argument_in_place_is_an_output(plain):
    @jit
    def kernel(x, result):
        tile = new(16, 12)
        nisa.dma_copy(tile[0:10], x)
        nisa.dma_copy(result, tile)  # the use

    x = np.ones((10, 12), np.float32)
    result = np.zeros((16, 12), np.float32)
    with pytest.raises(UnwrittenError) as caught:
        launch(kernel, [x, result], plain=plain)
    assert caught.value.location.text.endswith("# the use")
    assert (result == 0).all()


def triangle(below):
    def kernel(x):
        out = classic_nl.ndarray((20, 1), x.dtype, buffer=classic_nl.shared_hbm)
        p, f, one = (
            classic_nl.arange(32)[:, None],
            classic_nl.arange(32)[None, :],
            classic_nl.arange(1)[None, :],
        )
        tile = classic_nl.load(x[p, f], mask=(p < 20) & (f < 20))
        sums = classic_nl.sum(tile, axis=1, mask=(f <= p + below) & (p < 20))
        classic_nl.store(out[p, one], sums, mask=p < 20)
        return out

    return kernel


def contraction(masks):
    """200 rows in two tiles of 128, the second one of 72."""

    def kernel(a, b):
        out = classic_nl.ndarray((9, 30), a.dtype, buffer=classic_nl.shared_hbm)
        p = classic_nl.arange(128)[:, None]
        total = classic_nl.zeros((9, 30), classic_nl.float32, buffer=classic_nl.psum)
        for number in classic_nl.affine_range(2):
            mask = 128 * number + p < 200
            left, right = (
                classic_nl.load(
                    each[128 * number + p, classic_nl.arange(each.shape[1])[None, :]], mask=mask
                )
                for each in (a, b)
            )
            if masks:
                left, right = left[mask], right[mask]
            total += classic_nisa.nc_matmul(left, right)
        classic_nl.store(out, classic_nl.copy(total))
        return out

    return kernel


CLASSIC = {
    "a triangle": (triangle(0), triangle(4), [(20, 20)]),
    "a contraction": (contraction(True), contraction(False), [(200, 9), (200, 30)]),
}


@every("name", CLASSIC)
def test_masks(name):
    """The correct kernel has no finding, the other one names the load."""
    correct, wrong, shapes = CLASSIC[name]
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    for kernel, expected in ((correct, []), (wrong, ["uninitialised-output"])):
        inspector = Inspector()
        with witnessing(inspector):
            launch(kernel, arrays)
        found = [one for one in inspector.findings if one.id.startswith("uninitialised")]
        assert [one.id for one in found] == expected
    assert "it comes from [" in found[0].happened
