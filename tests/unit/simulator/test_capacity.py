"""The live tensors fit: bytes over whole quadrants, live from first write to last use."""

import numpy as np
import pytest

from difftest.simulator import LimitError, launch
from difftest.simulator.capacity import occupied_bytes
from difftest.simulator.dtypes import BFLOAT16, FLOAT32
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.trace import Allocation, Space
from tests.every import every

BANK = 512
"""float32 elements of a PSUM bank: eight banks are all there is."""


@every(
    "shape, dtype, axis, expected",
    [
        ((128, 10), FLOAT32, 0, 128 * 40),
        ((128, 10), BFLOAT16, 0, 128 * 20),
        ((32, 10), FLOAT32, 0, 32 * 40),
        ((33, 10), FLOAT32, 0, 64 * 40),
        ((1, 10), FLOAT32, 0, 32 * 40),
        ((3, 128, 10), FLOAT32, 1, 3 * 128 * 40),
    ],
)
def test_a_tensor_takes_whole_quadrants(shape, dtype, axis, expected):
    assert (
        occupied_bytes(Allocation(0, Space.SBUF, shape, dtype, axis, None), 32)
        == expected
    )


def banks(count):
    """Hold so many full PSUM banks at one time."""
    held = [nl.zeros((128, BANK), nl.float32, buffer=nl.psum) for _ in range(count)]
    for tile in held:
        nl.copy(tile[:, 0:1])


def test_eight_banks_fit_and_nine_do_not():
    launch(banks, [8])
    with pytest.raises(LimitError) as caught:
        launch(banks, [9])
    error = caught.value
    assert error.rule == "the tensors live at one time fit psum"
    assert error.received.startswith(
        "18432 bytes a partition in 9 live tensors; the largest: "
    )
    assert error.received.count("float32 in psum") == 3
    assert error.limit == "16384 bytes a partition (trn2)"
    assert "held = [nl.zeros((128, BANK)" in error.location.text


def test_banks_that_live_one_after_another_fit():
    """The list keeps them all; the last use of each precedes the write of the next."""

    def kernel():
        held = []
        for _ in range(20):
            tile = nl.zeros((128, BANK), nl.float32, buffer=nl.psum)
            nl.copy(tile[:, 0:1])
            held.append(tile)

    launch(kernel)


def test_blocks_of_a_psum_tensor_need_not_be_live_at_once():
    """AWS's attention tutorial has more blocks of a bank each than PSUM has banks."""

    def kernel(x):
        tile = nl.load(x)
        products = nl.ndarray(
            (9, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum
        )
        out = nl.ndarray((9, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        for block in nl.affine_range(9):
            products[block] = nisa.nc_matmul(tile[:, 0:128], tile)
            nl.store(out[block], products[block])
        return out

    x = np.zeros((128, 512), np.float32)
    assert launch(kernel, [x]).outputs[0].shape == (9, 128, 512)
