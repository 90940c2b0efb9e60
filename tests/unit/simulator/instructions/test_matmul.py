"""nc_matmul and nc_transpose: float32 products and sums, and the limits of the PE array."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, Space, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.products import product
from tests.every import every
from tests.unit.simulator.on_tiles import in_psum, normal, on_tiles


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


def multiplied(stationary, moving):
    """Return the Tensor Engine's product of two arrays."""
    return on_tiles(lambda x, y: nl.copy(nisa.nc_matmul(x, y)), stationary, moving)


def test_a_product_of_subnormal_numbers_among_others_has_the_same_bits():
    stationary = normal(128, 16)
    moving = normal(128, 64)
    for numbers in (stationary, moving):
        numbers[::8] *= 2.0**-127
        assert_array_equal(multiplied(stationary, moving), product(stationary, moving))
    for up, down in ((60, 55), (100, -64), (120, -64)):
        large = stationary * np.float32(2.0**up)
        small = np.where(
            moving[:, :1] < 0, moving * np.float32(2.0**down), np.float32(1e-40)
        )
        assert_array_equal(multiplied(large, small), product(large, small))


def sbuf(*shape, dtype=nl.float32):
    return nl.zeros(shape, dtype)


def accumulated(shape):
    total = nl.zeros(shape, nl.float32, buffer=nl.psum)
    total += nisa.nc_matmul(sbuf(8, shape[0]), sbuf(8, shape[1]))


def across_banks():
    total = nl.zeros((8, 1024), nl.float32, buffer=nl.psum)
    total[:, 256:768] += nisa.nc_matmul(sbuf(8, 8), sbuf(8, 512))


REFUSED = {
    ("nc_matmul takes a tile as stationary", "float "): lambda: nisa.nc_matmul(
        1.0, sbuf(16, 16)
    ),
    (
        "a matmul accumulates inside one PSUM bank",
        "tile [8, 512] float32 in psum: bytes 1024 to 3071 of the partition",
    ): lambda: accumulated((8, 512)) or across_banks(),
    ("nc_matmul writes dst of shape [8, 20]", "dst = tile [8, 16]"): (
        lambda: nl.zeros((8, 16), nl.float32, buffer=nl.psum).__iadd__(
            nisa.nc_matmul(sbuf(8, 8), sbuf(8, 20))
        )
    ),
    ("nc_matmul's PE tiling: both are set, each (row, column)", "tile_position=()"): (
        lambda: nisa.nc_matmul(sbuf(16, 16), sbuf(16, 16), tile_size=(32, 32))
    ),
    (
        "a product's mask says by its indices' shape which operand's free axis it limits",
        "indices of shape [1, 16]; both operands have 16 elements a partition",
    ): lambda: nisa.nc_matmul(
        sbuf(16, 16), sbuf(16, 16), mask=nl.arange(16)[None, :] < 4
    ),
    ("nl.transpose takes two dimensions", "tile [16, 4, 2] float32 in sbuf"): (
        lambda: nl.transpose(sbuf(16, 4, 2))
    ),
}
"""Rejected uses, by the rule and the received value."""


@every("said, use", REFUSED.items())
def test_misuse_of_a_matmul_is_rejected(said, use):
    rule, received = said
    with pytest.raises(NkiError) as caught:
        launch(use)
    assert rule in (caught.value.rule, caught.value.happened)
    assert received in caught.value.received
    banks = "banks of 2048 bytes (512 float32, nl.tile_size.psum_fmax)"
    assert caught.value.limit == (banks if "PSUM bank" in rule else None)
