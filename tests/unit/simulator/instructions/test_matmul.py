"""nc_matmul and nc_transpose: float32 products and sums, and the limits of the PE array."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import NkiError, Space, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.matmul import nc_matmul
from tests.every import every
from tests.unit.simulator.on_tiles import in_psum, normal, on_tiles

FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2]
floats = every("dtype", FLOATS)


@floats
def test_the_sum_is_accumulated_in_float32(dtype):
    """In the narrow type 128 products of about 1 would lose most of their bits."""
    stationary, moving = normal(128, 64, dtype=dtype), normal(128, 200, dtype=dtype, seed=1)
    result = on_tiles(nisa.nc_matmul, stationary, moving)
    exact = stationary.astype(np.float64).T @ moving.astype(np.float64)
    assert result.dtype == np.float32
    assert_allclose(result, exact, rtol=0, atol=2e-5)


def test_tfloat32_operands():
    stationary, moving = normal(32, 16), normal(32, 8, seed=1)

    def compute(x, y):
        return nisa.nc_matmul(nl.copy(x, dtype=nl.tfloat32), nl.copy(y, dtype=nl.tfloat32))

    result = on_tiles(compute, stationary, moving)
    assert_allclose(result, stationary.T @ moving, rtol=0, atol=1e-2)
    assert abs(result - stationary.T @ moving).max() > 1e-5


def test_hints_and_pe_tiles_change_no_value():
    stationary, moving = normal(32, 32), normal(32, 64, seed=1)
    plain, hinted, tiled = on_tiles(
        lambda x, y: (
            nisa.nc_matmul(x, y),
            nisa.nc_matmul(
                x, y, is_stationary_onezero=True, is_moving_onezero=True, is_transpose=True
            ),
            nisa.nc_matmul(x, y, tile_position=(32, 64), tile_size=(32, 32)),
        ),
        *(stationary, moving),
    )
    assert_array_equal(plain, hinted)
    assert_array_equal(plain, tiled)


@every("form", ["+=", "[...] +=", "[:, :] +=", "= a + b"])
def test_products_accumulate_in_psum(form):
    stationary, moving = normal(3, 16, 8), normal(3, 16, 20, seed=1)

    def kernel(x, y):
        total = nl.zeros((8, 20), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(3):
            product = nisa.nc_matmul(nl.load(x[k]), nl.load(y[k]))
            if form == "+=":
                total += product
            elif form == "[...] +=":
                total[...] += product
            elif form == "[:, :] +=":
                total[:, :] += product
            else:
                total[...] = nl.add(total, product)
        out = nl.ndarray((8, 20), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    (result,) = launch(kernel, [stationary, moving]).outputs
    assert_allclose(result, np.einsum("bkm,bkn->mn", stationary, moving), atol=1e-5)


def test_each_bank_of_a_large_tile_accumulates():
    stationary, moving = normal(16, 8), normal(16, 512, seed=1)

    def compute(x, y):
        total = nl.zeros((8, 2, 512), nl.float32, buffer=nl.psum)
        total[:, 1, :] += nisa.nc_matmul(x, y)
        total[:, 0, 256:512] += nisa.nc_matmul(x, y[:, 0:256])
        return total

    expected = np.zeros((8, 2, 512), np.float32)
    expected[:, 1] = stationary.T @ moving
    expected[:, 0, 256:] = expected[:, 1, :256]
    assert_allclose(on_tiles(compute, stationary, moving), expected, atol=1e-5)


def test_nc_transpose_on_the_vector_engine_takes_psum_and_stays_in_sbuf():
    data = normal(32, 8)

    def compute(x):
        turned = nisa.nc_transpose(in_psum(x))
        named = nisa.nc_transpose(x, engine=nisa.vector_engine)
        assert turned._space is named._space is Space.SBUF
        assert nisa.nc_transpose(x)._space is Space.PSUM
        return turned, named

    for result in on_tiles(compute, data):
        assert_array_equal(result, data.T)


@every("dtype", [nl.float32, nl.bfloat16, nl.float16])
def test_the_instruction_itself_rounds_once_into_any_destination(dtype):
    """A part of a tensor, another dtype, a mask: the newer dialects name the destination."""
    stationary, moving = normal(16, 8), normal(16, 20, seed=1)
    chosen = np.arange(20)[None, :] % 3 > 0

    def compute(x, y):
        whole = nl.zeros((8, 20), dtype, buffer=nl.psum)
        part = nl.zeros((8, 30), dtype, buffer=nl.psum)
        masked = nl.ones((8, 20), dtype, buffer=nl.psum)
        for dst, where in ((whole, None), (part[:, 5:25], None), (masked, chosen)):
            gate.issue(nc_matmul, (x, y), (False, (), (), "none"), dst=dst, where=where)
        return whole, part, masked

    product = (stationary.T @ moving).astype(dtype)
    whole, part, masked = on_tiles(compute, stationary, moving)
    assert_array_equal(whole, product, strict=True)
    assert_array_equal(part[:, 5:25], product, strict=True)
    assert not part[:, :5].any()
    assert not part[:, 25:].any()
    assert_array_equal(masked, np.where(chosen, product, np.ones(1, dtype)), strict=True)


def sbuf(*shape, dtype=nl.float32):
    return nl.zeros(shape, dtype)


def accumulated(shape):
    total = nl.zeros(shape, nl.float32, buffer=nl.psum)
    total += nisa.nc_matmul(sbuf(8, shape[0]), sbuf(8, shape[1]))


def across_banks():
    total = nl.zeros((8, 1024), nl.float32, buffer=nl.psum)
    total[:, 256:768] += nisa.nc_matmul(sbuf(8, 8), sbuf(8, 512))


REFUSED = [
    (
        "no tiles",
        lambda: nisa.nc_matmul(1.0, sbuf(16, 16)),
        "nc_matmul takes a tile as stationary",
        "float ",
        None,
    ),
    (
        "more than a bank",
        lambda: accumulated((8, 512)) or across_banks(),
        "a matmul accumulates inside one PSUM bank",
        "tile [8, 512] float32 in psum: bytes 1024 to 3071 of the partition",
        "banks of 2048 bytes (512 float32, nl.tile_size.psum_fmax)",
    ),
    (
        "another shape to accumulate into",
        lambda: nl.zeros((8, 16), nl.float32, buffer=nl.psum).__iadd__(
            nisa.nc_matmul(sbuf(8, 8), sbuf(8, 20))
        ),
        "a matmul accumulates into a tile of its result's shape",
        "target [8, 16], product [8, 20]",
        None,
    ),
    (
        "a PE tile without position",
        lambda: nisa.nc_matmul(sbuf(16, 16), sbuf(16, 16), tile_size=(32, 32)),
        "nc_matmul's PE tiling: both are set, each (row, column)",
        "tile_position=()",
        None,
    ),
    (
        "a mask that may be either operand's",
        lambda: nisa.nc_matmul(sbuf(16, 16), sbuf(16, 16), mask=nl.arange(16)[None, :] < 4),
        "a product's mask says by its indices' shape which operand's free axis it limits",
        "indices of shape [1, 16]; both operands have 16 elements a partition",
        None,
    ),
    (
        "nl.transpose of three dimensions",
        lambda: nl.transpose(sbuf(16, 4, 2)),
        "nl.transpose takes two dimensions",
        "tile [16, 4, 2] float32 in sbuf",
        None,
    ),
]


@every("use, rule, received, limit", [row[1:] for row in REFUSED])
def test_what_is_refused(use, rule, received, limit):
    with pytest.raises(NkiError) as caught:
        launch(use)
    assert rule in (caught.value.rule, caught.value.happened)
    assert received in caught.value.received
    assert caught.value.limit == limit
