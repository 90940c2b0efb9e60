"""Tensor indirection of nc_matmul's and nc_matmul_mx's operands and destinations."""

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator import KernelError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.isa.arithmetic import IndirectionWarning
from difftest.simulator.machine import TRN3
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import raised, stored

RANDOM = np.random.default_rng(5)
LEFT = RANDOM.integers(-4, 4, (32, 32)).astype(ml_dtypes.bfloat16)
RIGHT = RANDOM.integers(-4, 4, (32, 6)).astype(ml_dtypes.bfloat16)
PLACES = np.array([7, 0, 3, 9, 2, 5])
"""The places of the product's columns, among 10."""
PRODUCT = LEFT.astype(np.float32).T @ RIGHT.astype(np.float32)


def index_of(places):
    """Offset i of each group of 32 partitions at index[i % 32, i // 32]."""
    index = np.zeros((32, 1), np.uint16)
    index[: len(places), 0] = places
    return index


def run(compute, *arrays):
    (result,) = launch(compute, arrays, machine=TRN3).outputs
    return result


@every(
    "commands, factor",
    [
        ((None,), 1),
        ((None, None), 2),
        ((False, False), 1),
        ((False, True), 2),
        ((False, None), 2),
    ],
)
@every("dtype", ["bfloat16", "float32"])
def test_a_product_is_scattered(commands, factor, dtype):
    def kernel(left, right, index):
        left, right, index = map(nl.load, (left, right, index))
        result = nl.full((32, 10), 100.0, getattr(nl, dtype), buffer=nl.psum)
        for accumulate in commands:
            view = result.indirect(index, len(PLACES))
            nisa.nc_matmul(view, left, right, accumulate=accumulate)
        return stored(result)

    expected = np.full((32, 10), 100, np.float32)
    expected[:, PLACES] = factor * PRODUCT
    if dtype == "float32":
        with pytest.warns(IndirectionWarning, match="scatters into float32"):
            result = run(kernel, LEFT, RIGHT, index_of(PLACES))
    else:
        result = run(kernel, LEFT, RIGHT, index_of(PLACES))
    np.testing.assert_array_equal(result.astype(np.float32), expected)


# -- MX --------------------------------------------------------------------------------------------

PACKED = RANDOM.integers(-2, 3, (32, 8, 4)).astype(ml_dtypes.float8_e5m2)
SCALES = RANDOM.integers(126, 129, (32, 8)).astype(np.uint8)
"""The first 4 rows of a quadrant count: one scale for each 8 partitions."""
CHOSEN = np.array([6, 1, 1, 4])


def mx(data):
    return data.view(np.uint32).view(np.uint32)[..., 0]


def mx_values(columns):
    """The values of the chosen columns of the MX operand: [partitions, columns, 4]."""
    factors = 2.0 ** (SCALES[np.arange(32) // 8].astype(np.float64) - 127)
    return (PACKED.astype(np.float64) * factors[..., None])[:, columns]


def mx_kernel(packed, scales, index, places):
    data = nl.ndarray((32, 8), nl.float8_e5m2_x4)
    nisa.dma_copy(data, packed.view(nl.float8_e5m2_x4))
    scale, index, places = map(nl.load, (scales, index, places))
    result = nl.ndarray((8, 10), nl.bfloat16, buffer=nl.psum)
    nisa.memset(result, 0)
    moving = data.indirect(index, len(CHOSEN)), scale.indirect(index, len(CHOSEN))
    into = result.indirect(places[0:8], len(CHOSEN))
    nisa.nc_matmul_mx(into, data, moving[0], scale, moving[1])
    return stored(result)


def test_an_mx_product_gathers_and_scatters():
    places = np.array([9, 0, 4, 2])
    result = run(mx_kernel, mx(PACKED), SCALES, index_of(CHOSEN), index_of(places))
    expected = np.zeros((8, 10))
    expected[:, places] = np.einsum(
        "pmk,pnk->mn", mx_values(np.arange(8)), mx_values(CHOSEN)
    )
    np.testing.assert_array_equal(
        result.astype(np.float32),
        expected.astype(ml_dtypes.bfloat16).astype(np.float32),
    )


def mx_operands():
    data = nl.ndarray((32, 8), nl.float8_e5m2_x4)
    nisa.memset(data, 0)
    scale = nl.ndarray((32, 8), nl.uint8)
    index = nl.zeros((32, 1), nl.uint16)
    nisa.memset(scale, 127)
    return data, scale, index


def one_without():
    data, scale, index = mx_operands()
    result = nl.ndarray((8, 4), nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(result, data, data.indirect(index, 4), scale, scale)


def by_two_indices():
    data, scale, index = mx_operands()
    other = nl.copy(index)
    result = nl.ndarray((8, 4), nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(
        result, data.indirect(index, 8), data, scale.indirect(other, 8), scale
    )


def in_a_tile():
    data, scale, index = mx_operands()
    pair = data.indirect(index, 4), scale.indirect(index, 4)
    result = nl.ndarray((8, 4), nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(
        result, data, pair[0], scale, pair[1], tile_position=(0, 0), tile_size=(32, 128)
    )


def transposing():
    left = nl.zeros((32, 32), nl.bfloat16)
    index = nl.zeros((32, 1), nl.uint16)
    result = nl.ndarray((32, 4), nl.bfloat16, buffer=nl.psum)
    nisa.nc_matmul(result, left, left.indirect(index, 4), is_transpose=True)


@every(
    "compute, text",
    [
        (one_without, "moving and its scales indirect by one index"),
        (by_two_indices, "stationary and its scales indirect by one index"),
        (in_a_tile, "takes no PE tile"),
        (transposing, "takes no indirect moving operand"),
    ],
)
def test_indirect_operands_that_no_product_takes_are_rejected(compute, text):
    assert text in raised(KernelError, compute, machine=TRN3)
