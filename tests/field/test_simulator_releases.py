"""What AWS had to correct in its own simulator, release by release, is right in this one.

Source: the public release notes of NKI for the Neuron SDK 2.30, 2.31 and 2.32. Some of the entries
are about arguments of the newer dialect; here is what they mean in the classic one.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import UnwrittenError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every

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


@every("source", [np.float32, np.int32])
def test_release_2_30_a_skipping_gather_casts(source):
    table = (100 * normal(6, 4)).astype(source)
    rows = np.array([[5], [-1], [6], [0]], np.int32)

    def kernel(data, places):
        tile = nl.full((4, 4), 7, nl.int32)
        x = nl.arange(4)[None, :]
        nisa.dma_copy(dst=tile, src=data[nl.load(places), x], oob_mode=nisa.oob_mode.skip)
        return stored(tile)

    expected = np.full((4, 4), 7)
    expected[[0, 3]] = np.rint(table[[5, 0]])
    assert_array_equal(run(kernel, table, rows), expected.astype(np.int32), strict=True)


def test_release_2_30_a_shuffle_leaves_partitions_alone():
    source, target = normal(32, 3), normal(32, 3)

    def kernel(src, dst):
        tile = nl.load(dst)
        nisa.nc_stream_shuffle(nl.load(src), tile, [255] * 31 + [0])
        return stored(tile)

    expected = target.copy()
    expected[31] = source[0]
    assert_array_equal(run(kernel, source, target), expected)


def test_release_2_30_and_2_31_matmuls_take_more_than_two_dimensions():
    stationary, moving = normal(16, 2, 3), normal(16, 4, 5)
    result = run(lambda a, b: stored(nisa.nc_matmul(nl.load(a), nl.load(b))), stationary, moving)
    expected = np.einsum("km,kxy->mxy", stationary.reshape(16, 6), moving)
    assert_allclose(result, expected, atol=1e-5)


def test_release_2_30_iota_with_an_offset_of_the_loop():
    def kernel():
        out = nl.ndarray((3, 4), nl.int32, buffer=nl.shared_hbm)
        for i in nl.affine_range(3):
            nl.store(out[nl.ds(i, 1)], nisa.iota(10 * i + nl.arange(4)[None, :], nl.int32))
        return out

    assert run(kernel).tolist() == [[10 * i + k for k in range(4)] for i in range(3)]


def test_release_2_30_affine_select_with_an_offset_of_the_loop():
    data = normal(4, 12)

    def kernel(x):
        out = nl.ndarray((4, 12), nl.float32, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:4, 0:4]
        for i in nl.affine_range(3):
            part = nl.ds(4 * i, 4)
            nl.store(out[:, part], nisa.affine_select(p >= 4 * i + f, nl.load(x[:, part]), 0.0))
        return out

    rows, columns = np.mgrid[0:4, 0:12]
    assert_array_equal(run(kernel, data), np.where(rows >= columns, data, 0))


def test_release_2_30_logical_and_of_numbers():
    values = np.array([[0, 0.5, -2, 0]], np.float32), np.array([[1, 2, 0, 0]], np.float32)

    def kernel(a, b):
        x, y = nl.load(a), nl.load(b)
        return stored(nisa.tensor_tensor(x, y, nl.logical_and)), stored(nl.logical_and(x, y))

    number, truth = run(kernel, *values)
    assert number.tolist() == [[0, 1, 0, 0]]
    assert truth.tolist() == [[False, True, False, False]]


def test_release_2_31_an_accumulation_into_psum_that_nothing_wrote():
    """AWS's simulator warns of it; classic kernels that a device ran begin their groups so."""

    def kernel(a):
        tile = nl.load(a)
        total = nl.ndarray((16, 16), nl.float32, buffer=nl.psum)
        total += nisa.nc_matmul(tile, tile)
        return stored(nl.copy(total))

    data = RNG.integers(-4, 5, (16, 16)).astype(np.float32)
    assert_array_equal(run(kernel, data), data.T @ data)


def test_a_subtraction_from_what_nothing_wrote_is_refused():
    def kernel(a):
        total = nl.ndarray((16, 16), nl.float32)
        total -= nl.load(a)

    with pytest.raises(UnwrittenError, match="reads only what was written before"):
        launch(kernel, [normal(16, 16)])


def test_release_2_31_an_accumulating_scatter_meets_an_index_twice():
    table, rows = normal(5, 4), np.array([[3], [3], [0]], np.int32)

    def kernel(data: nt.mutable_tensor, places):
        target = data[nl.load(places), nl.arange(4)[None, :]]
        nisa.dma_copy(dst=target, src=nl.ones((3, 4), nl.float32), dst_rmw_op=np.add)
        return data

    expected = table.copy()
    expected[3] = (expected[3] + 1) + 1
    expected[0] += 1
    assert_array_equal(run(kernel, table.copy(), rows), expected)


def test_release_2_32_float32_to_integer_rounds_to_even_and_saturates():
    values = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 1e9, -1e9]], np.float32)
    result = run(lambda x: stored(nl.copy(nl.load(x), dtype=nl.int8)), values)
    assert result.tolist() == [[0, 2, 2, 0, -2, 126, 127, 127, -128]]


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


def test_release_2_32_find_index_advances_over_equal_values():
    def kernel(x):
        tile = nl.load(x)
        return stored(nisa.nc_find_index8(data=tile, vals=nisa.max8(src=tile)))

    assert run(kernel, TIES).tolist() == [[0, 2, 4, 9, 3, 8, 5, 1]]


def test_release_2_32_an_activation_may_reduce_into_a_part_of_what_it_wrote():
    data = normal(4, 6)

    def kernel(x):
        target = nl.ndarray((4, 7), nl.float32)
        target[:, 0:6] = nisa.activation_reduce(
            nl.square, nl.load(x), reduce_op=np.add, reduce_res=target[:, 6:7]
        )
        return stored(target)

    result = run(kernel, data)
    assert_array_equal(result[:, :6], np.square(data))
    assert_allclose(result[:, 6], np.square(data).sum(1), rtol=1e-6)


def test_release_2_32_accumulations_into_overlapping_parts_of_psum():
    """As a convolution does: shifted parts of one PSUM tile."""
    weights, rows = normal(3, 16, 8), normal(16, 10)

    def kernel(w, x):
        total = nl.zeros((8, 12), nl.float32, buffer=nl.psum)
        image = nl.load(x)
        for k in nl.affine_range(3):
            total[:, nl.ds(k, 10)] += nisa.nc_matmul(nl.load(w[k]), image)
        return stored(total)

    expected = np.zeros((8, 12))
    for k in range(3):
        expected[:, k : k + 10] += weights[k].T.astype(np.float64) @ rows
    assert_allclose(run(kernel, weights, rows), expected, atol=1e-5)


@every("which", ["tensor_copy_predicated", "select_reduce"])
def test_release_2_32_a_predicate_of_another_rank(which):
    data, other = normal(4, 6), normal(4, 6)
    predicate = (RNG.random((4, 2, 3)) < 0.5).astype(np.uint8)

    def kernel(x, y, p):
        target, true, chosen = nl.load(y), nl.load(x), nl.load(p)
        if which == "tensor_copy_predicated":
            nisa.tensor_copy_predicated(src=true, dst=target, predicate=chosen)
        else:
            nisa.select_reduce(dst=target, predicate=chosen, on_true=true, on_false=0.0)
        return stored(target)

    false = other if which == "tensor_copy_predicated" else np.float32(0)
    expected = np.where(predicate.reshape(4, 6), data, false)
    assert_array_equal(run(kernel, data, other, predicate), expected)


@every("dtype", [nl.float32, nl.bfloat16])
def test_release_2_32_the_float_that_stands_for_false(dtype):
    data = normal(4, 6)
    smallest = np.array(nl.fp32.min, np.float32)

    def kernel(x):
        low, high = nl.full((4, 1), 2, nl.float32), nl.full((4, 1), 4, nl.float32)
        selected = nisa.range_select(
            on_true_tile=nl.load(x),
            comp_op0=np.greater_equal,
            comp_op1=np.less,
            bound0=low,
            bound1=high,
            dtype=dtype,
        )
        f = nl.mgrid[0:4, 0:6].x
        return stored(selected), stored(nisa.affine_select(f < 2, nl.load(x), nl.fp32.min))

    selected, masked = run(kernel, data)
    columns = np.arange(6)
    inside = (columns >= 2) & (columns < 4)
    with np.errstate(over="ignore"):
        expected = np.where(inside, data, smallest).astype(dtype)
    assert_array_equal(selected, expected, strict=True)
    assert_array_equal(masked, np.where(columns < 2, data, smallest), strict=True)


@every("width, count", [(1, 8), (4, 8), (16, 3)])
def test_the_known_defect_of_local_gather_is_not_ours(width, count):
    """It ignored num_elem_per_idx for some sizes of the destination."""
    data, index = normal(16, 64), RNG.integers(0, 48, (16, 1)).astype(np.uint16)
    result = run(
        lambda x, i: stored(nisa.local_gather(nl.load(x), nl.load(i), width, count)), data, index
    )
    for k in range(count):
        start = int(index[k, 0])
        assert_array_equal(result[:, k], data[:, start : start + width])


def test_narrow_inputs_of_the_gpsimd_engine_keep_their_values():
    data = normal(16, 8).astype(ml_dtypes.bfloat16)
    result = run(lambda x: stored(nisa.tensor_copy(nl.load(x), engine=nisa.gpsimd_engine)), data)
    assert_array_equal(result, data, strict=True)
