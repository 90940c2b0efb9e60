"""Faults of AWS's own simulator that it corrected, release by release: this one is right.

Source: the public release notes of NKI for the Neuron SDK 2.30, 2.31 and 2.32. Some of the entries
are about arguments of the newer dialect; the tests show their meaning in the classic one.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import UnwrittenError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(kernel, *arrays):
    outputs = launch(kernel, arrays).outputs
    return outputs[0] if len(outputs) == 1 else outputs


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_release_2_30_iota_with_an_offset_of_the_loop():
    def kernel():
        out = nl.ndarray((3, 4), nl.int32, buffer=nl.shared_hbm)
        for i in nl.affine_range(3):
            nl.store(
                out[nl.ds(i, 1)], nisa.iota(10 * i + nl.arange(4)[None, :], nl.int32)
            )
        return out

    assert run(kernel).tolist() == [[10 * i + k for k in range(4)] for i in range(3)]


def test_release_2_30_affine_select_with_an_offset_of_the_loop():
    data = normal(4, 12)

    def kernel(x):
        out = nl.ndarray((4, 12), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:4, 0:4]
        for i in nl.affine_range(3):
            part = nl.ds(4 * i, 4)
            nl.store(
                out[:, part],
                nisa.affine_select(p >= 4 * i + f, nl.load(x[:, part]), 0.0),
            )
        return out

    rows, columns = np.mgrid[0:4, 0:12]
    assert_array_equal(run(kernel, data), np.where(rows >= columns, data, 0))


def test_release_2_31_an_accumulation_into_psum_that_nothing_wrote():
    """AWS's simulator warns of it; classic kernels that a device ran begin their groups so."""

    def kernel(a):
        tile = nl.load(a)
        total = nl.ndarray((16, 16), nl.float32, buffer=nl.psum)
        total += nisa.nc_matmul(tile, tile)
        return stored(nl.copy(total))

    data = RNG.integers(-4, 5, (16, 16)).astype(np.float32)
    assert_array_equal(run(kernel, data), data.T @ data)


def test_a_subtraction_from_unwritten_elements_is_rejected():
    def kernel(a):
        total = nl.ndarray((16, 16), nl.float32)
        total -= nl.load(a)

    with pytest.raises(
        UnwrittenError, match="reads only elements that were written before"
    ):
        launch(kernel, [normal(16, 16)])


def test_release_2_31_an_accumulating_scatter_meets_an_index_twice():
    table = normal(5, 4)
    rows = np.array([[3], [3], [0]], np.int32)

    def kernel(data: nt.mutable_tensor, places):
        target = data[nl.load(places), nl.arange(4)[None, :]]
        nisa.dma_copy(dst=target, src=nl.ones((3, 4), nl.float32), dst_rmw_op=np.add)
        return data

    expected = table.copy()
    expected[3] = (expected[3] + 1) + 1
    expected[0] += 1
    assert_array_equal(run(kernel, table.copy(), rows), expected)


TIES = np.array([[5, 1, 5, 3, 5, 2, 1, 0, 3, 4]], np.float32)


def test_release_2_32_match_replace_takes_the_first_of_equal_values():
    def kernel(x):
        tile = nl.load(x)
        places = nl.ndarray((1, 8), nl.uint32)
        replaced = nisa.nc_match_replace8(
            data=tile, vals=nisa.max8(src=tile), imm=-1.0, dst_idx=places
        )
        return stored(replaced), stored(places)

    replaced, places = run(kernel, TIES)
    assert places.tolist() == [[0, 2, 4, 9, 3, 8, 5, 1]]
    assert replaced.tolist() == [[-1, -1, -1, -1, -1, -1, 1, 0, -1, -1]]
