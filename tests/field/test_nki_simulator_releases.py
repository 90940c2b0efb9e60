"""Faults of `nki.simulate` that AWS corrected, release by release: this simulator is right.

Source: the public release notes of NKI 0.4, 0.5 and 0.6 (Neuron SDK 2.30 to 2.32), "Bug Fixes" and
what they call improvements of the simulator. `test_simulator_releases.py` has the same for the
classic dialect, where it applies.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import KernelError, ShapeError, launch
from difftest.simulator.entry.nki_kernel import simulate
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.instructions.matmul import AccumulationWarning
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, stored, values

RNG = np.random.default_rng(0)
BIG = np.array([[2**24 + 1, 2**31 - 1, -(2**31), 2**30 + 7]], np.int32)
"""Integers that float32 does not hold."""


# -- NKI 0.4, Neuron SDK 2.30 ----------------------------------------------------------------------


def test_0_4_a_dma_that_skips_keeps_the_bits_of_integers():
    table = np.concatenate([BIG, BIG + 1, BIG + 2])
    places = np.array([[2], [99], [0]], np.uint32)

    def kernel(data, index):
        rows = nl.load(index)
        out = nl.ndarray((3, 4), nl.int32)
        nisa.memset(out, 7)
        source = data.ap([[4, 3], [1, 4]], vector_offset=rows, indirect_dim=0)
        nisa.dma_copy(out, source, oob_mode=nisa.oob_mode.skip)
        return stored(out)

    expected = np.stack([table[2], [7] * 4, table[0]])
    assert_array_equal(simulate(kernel)(table, places), expected)


def test_0_4_a_shuffle_of_255_keeps_the_destination():
    source = values(32, 3)
    target = values(32, 3, seed=1)

    def compute(src, dst):
        nisa.nc_stream_shuffle(dst, src, [255] * 31 + [0])
        return dst

    expected = target.copy()
    expected[31] = source[0]
    assert_array_equal(on_nki_tiles(compute, source, target), expected)


@every("view", ["slice", "ap"])
def test_0_4_a_local_gather_into_a_view(view):
    data = values(16, 64)
    index = RNG.integers(0, 64, (16, 1)).astype(np.uint16)

    def compute(x, i):
        whole = nl.zeros((16, 20), nl.float32)
        part = (
            whole[:, 3:19]
            if view == "slice"
            else whole.ap([[20, 16], [1, 16]], offset=3)
        )
        nisa.local_gather(part, x, i, 1, 16)
        return whole

    result = on_nki_tiles(compute, data, index)
    assert_array_equal(result[:, 3:19], data[:, index[:, 0]])
    assert not result[:, :3].any()
    assert not result[:, 19:].any()


def test_0_4_and_0_5_a_matmul_takes_more_than_two_dimensions():
    stationary = values(16, 2, 3)
    moving = values(16, 4, 5)

    def compute(a, b):
        out = nl.ndarray((6, 4, 5), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, a, b)
        return out

    expected = np.einsum("km,kxy->mxy", stationary.reshape(16, 6), moving)
    assert_allclose(on_nki_tiles(compute, stationary, moving), expected, atol=1e-5)


def test_0_4_iota_and_affine_select_with_an_offset_in_a_register():
    data = values(4, 6)

    def kernel(x):
        counted = nl.ndarray((4, 6), nl.int32)
        kept = nl.ndarray((4, 6), nl.float32)
        register = nisa.register_alloc(3)
        nisa.iota(counted, [[1, 6]], offset=register, channel_multiplier=10)
        nisa.affine_select(
            kept,
            [[-1, 6]],
            1,
            nl.load(x),
            0.0,
            cmp_op=nl.greater_equal,
            offset=register,
        )
        nisa.register_move(register, 100)  # too late for both
        return stored(counted), stored(kept)

    counted, kept = simulate(kernel)(data)
    p, f = np.mgrid[0:4, 0:6]
    assert_array_equal(counted, 3 + 10 * p + f)
    assert_array_equal(kept, np.where(3 + p - f >= 0, data, 0))


def test_0_4_an_offset_in_the_variable_of_a_loop():
    def kernel():
        out = nl.ndarray((3, 4), nl.int32, buffer=nl.shared_hbm)
        row = nl.ndarray((1, 4), nl.int32)

        def body(i):
            nisa.iota(row, [[1, 4]], offset=i)
            nisa.dma_copy(out.ap([[4, 1], [1, 4]], scalar_offset=i), row)

        nl.fori_loop(0, 3, body)
        return out

    assert simulate(kernel)().tolist() == [[k + i for k in range(4)] for i in range(3)]


def test_0_4_logical_and_of_numbers():
    a = np.array([[0, 0.5, -2, 0]], np.float32)
    b = np.array([[1, 2, 0, 0]], np.float32)

    def compute(x, y):
        out = nl.ndarray((1, 4), nl.float32)
        nisa.tensor_tensor(out, x, y, nl.logical_and)
        return out, nl.logical_and(x, y)

    for result in on_nki_tiles(compute, a, b):
        assert result.tolist() == [[0, 1, 0, 0]]


def test_0_4_a_frozen_dataclass_of_nki_objects():
    @dataclass(frozen=True)
    class Sizes(nl.NKIObject):
        rows: int
        columns: int = 3

    def kernel(sizes):
        return stored(nl.ones((sizes.rows, sizes.columns), nl.float32))

    assert simulate(kernel)(Sizes(2)).shape == (2, 3)


def test_0_4_a_loop_s_variable_is_not_written():
    def kernel():
        nl.fori_loop(0, 2, lambda i: nisa.register_move(i, 5))

    with pytest.raises(KernelError, match="register_move got a loop's variable"):
        simulate(kernel)()


@every("engine, buffer", [(nisa.engine.tensor, nl.psum), (nisa.engine.vector, nl.sbuf)])
def test_0_4_a_transpose_runs_on_the_engine_that_it_names(engine, buffer):
    def kernel(x):
        out = nl.ndarray((6, 4), nl.float32, buffer=buffer)
        nisa.nc_transpose(out, nl.load(x), engine=engine)
        return stored(out)

    result = launch(kernel, [values(4, 6)])
    assert_array_equal(result.outputs[0], values(4, 6).T)
    (event,) = (one for one in result.trace.events if one.opcode == "nc_transpose")
    assert event.engine.value == engine.name


def test_0_4_device_print_of_a_tensor_of_one_dimension(capsys):
    def kernel(x):
        nl.device_print("row", x)
        return stored(nl.ones((2, 2), nl.float32))

    simulate(kernel)(np.arange(3, dtype=np.float32))
    assert capsys.readouterr().out.startswith("row [0. 1. 2.]")


def test_0_4_a_transpose_by_dma_has_the_rank_of_its_source():
    def compute(x):
        nisa.dma_transpose(nl.ndarray((8, 1, 4), x.dtype), x, axes=(3, 1, 2, 0))

    with pytest.raises(ShapeError):
        on_nki_tiles(compute, values(4, 1, 1, 8))


# -- NKI 0.5, Neuron SDK 2.31 ----------------------------------------------------------------------


def test_0_5_a_gather_that_transposes_leaves_skipped_elements():
    table = values(32, 16).astype(ml_dtypes.bfloat16)
    places = np.arange(16, dtype=np.uint32)[::-1, None].copy()
    places[5] = 1000

    def kernel(data, index):
        rows = nl.load(index)
        out = nl.full((16, 16), 3.0, nl.bfloat16)
        source = data.ap([[16, 16], [1, 16]], vector_offset=rows, indirect_dim=0)
        nisa.dma_transpose(out, source, axes=(1, 0), oob_mode=nisa.oob_mode.skip)
        return stored(out)

    expected = table[np.minimum(places[:, 0], 31)].T.copy()
    expected[:, 5] = 3
    assert_array_equal(simulate(kernel)(table, places), expected)


def test_0_5_accumulating_on_unwritten_elements_is_rejected():
    """AWS's simulator warns that the hardware's behaviour is undefined."""

    def compute(x):
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, x, x, accumulate=True)

    with pytest.raises(
        KernelError, match="nc_matmul was to add to elements that were never written"
    ):
        on_nki_tiles(compute, values(4, 8))


# -- NKI 0.6, Neuron SDK 2.32 ----------------------------------------------------------------------


@every("how", ["tensor_copy", "tensor_scalar", "activation", "dma_copy"])
def test_0_6_float32_to_integer_rounds_to_even_and_saturates(how):
    data = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 1e9, -1e9]], np.float32)

    def compute(x):
        out = nl.ndarray(x.shape, nl.int8)
        if how == "tensor_copy":
            nisa.tensor_copy(out, x)
        elif how == "tensor_scalar":
            nisa.tensor_scalar(out, x, nl.add, 0.0)
        elif how == "activation":
            nisa.activation(out, nl.copy, x)
        else:
            nisa.dma_copy(out, x)
        return out

    assert on_nki_tiles(compute, data).tolist() == [
        [0, 2, 2, 0, -2, 126, 127, 127, -128]
    ]


TIES = np.array([[5, 1, 5, 3, 5, 2, 1, 0, 3, 4]], np.float32)
"""Its eight largest are 5, 5, 5, 4, 3, 3, 2 and 1."""


def test_0_6_match_replace_goes_through_equal_values_in_reverse():
    def compute(x):
        largest = nl.ndarray((1, 8), nl.float32)
        places = nl.ndarray((1, 8), nl.uint32)
        out = nl.ndarray(x.shape, nl.float32)
        nisa.max8(largest, x)
        nisa.nc_match_replace8(out, x, largest, -1.0, dst_idx=places)
        return out, places

    replaced, places = on_nki_tiles(compute, TIES)
    assert replaced.tolist() == [[-1, -1, -1, -1, -1, -1, 1, 0, -1, -1]]
    assert places.tolist() == [[4, 2, 0, 9, 8, 3, 5, 1]]


def test_0_6_find_index_advances_over_equal_values_and_marks_missing_ones():
    wanted = np.array([[5, 5, 5, 5, 9, 3, 3, 0]], np.float32)

    def compute(x, y):
        places = nl.ndarray((1, 8), nl.uint32)
        nisa.nc_find_index8(places, x, y)
        return places

    nowhere = 2**32 - 1
    found = on_nki_tiles(compute, TIES, wanted).tolist()
    assert found == [[0, 2, 4, nowhere, nowhere, 3, 8, 7]]


def test_0_6_an_activation_reduces_into_a_part_of_its_dst():
    data = values(4, 6)

    def compute(x):
        whole = nl.zeros((4, 7), nl.float32)
        nisa.activation(
            whole,
            nl.square,
            x,
            reduce_op=nl.add,
            reduce_res=whole[:, 6:7],
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return whole

    wide = np.concatenate([data, values(4, 1, seed=3)], axis=1)
    result = on_nki_tiles(compute, wide)
    assert_array_equal(result[:, :6], np.square(data))
    assert_allclose(result[:, 6], np.square(wide).sum(1), rtol=1e-6)


def test_0_6_matmuls_accumulate_into_overlapping_parts_of_psum():
    """As a convolution does: shifted parts of one PSUM tile."""
    weights = values(3, 16, 8)
    rows = values(16, 10)

    def kernel(w, x):
        total = nl.ndarray((8, 12), nl.float32, buffer=nl.psum)
        image = nl.load(x)
        for k in range(3):
            nisa.nc_matmul(total[:, k : k + 10], nl.load(w[k]), image)
        return stored(total)

    expected = np.zeros((8, 12))
    for k in range(3):
        expected[:, k : k + 10] += weights[k].T.astype(np.float64) @ rows
    assert_allclose(simulate(kernel)(weights, rows), expected, atol=1e-5)


def test_0_6_accumulating_on_data_of_a_memset_warns():
    def compute(x):
        out = nl.zeros((8, 8), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, x, x, accumulate=True)
        return out

    with pytest.warns(AccumulationWarning, match="undefined"):
        on_nki_tiles(compute, values(4, 8))


@every("which", ["tensor_copy_predicated", "select_reduce"])
def test_0_6_operands_of_other_ranks_and_as_many_elements(which):
    data = values(4, 6)
    other = values(4, 2, 3, seed=1)
    predicate = (RNG.random((4, 2, 3)) < 0.5).astype(np.uint8)

    def compute(x, y, p):
        if which == "tensor_copy_predicated":
            nisa.tensor_copy_predicated(y, x, p)
        else:
            nisa.select_reduce(y, p, x, 0.0)
        return y

    false = other if which == "tensor_copy_predicated" else np.float32(0)
    expected = np.where(predicate, data.reshape(4, 2, 3), false)
    assert_array_equal(on_nki_tiles(compute, data, other, predicate), expected)


@every("dtype", [nl.float32, nl.bfloat16])
def test_0_6_the_float_for_false(dtype):
    data = values(4, 6)
    sentinel = float(np.finfo(np.float32).min)

    def compute(x):
        low = nl.full((4, 1), 2.0, nl.float32)
        high = nl.full((4, 1), 4.0, nl.float32)
        selected = nl.ndarray((4, 6), dtype)
        masked = nl.ndarray((4, 6), dtype)
        nisa.range_select(
            selected, x, nl.greater_equal, nl.less, low, high, on_false_value=sentinel
        )
        nisa.affine_select(masked, [[-1, 6]], 0, x, sentinel, nl.greater, offset=2)
        return selected, masked

    selected, masked = on_nki_tiles(compute, data)
    columns = np.arange(6)
    smallest = np.float32(sentinel)
    with np.errstate(over="ignore"):
        inside = np.where((columns >= 2) & (columns < 4), data, smallest).astype(dtype)
        before = np.where(columns < 2, data, smallest).astype(dtype)
    assert_array_equal(selected, inside, strict=True)
    assert_array_equal(masked, before, strict=True)


def test_0_6_tensor_scalar_reduce_keeps_its_register_without_reduce_res():
    first = values(4, 6)
    second = values(4, 6, seed=1)

    def compute(x, y):
        out = nl.ndarray((4, 6), nl.float32)
        total = nl.ndarray((4, 1), nl.float32)
        nisa.tensor_scalar_reduce(out, x, nl.multiply, 2.0, nl.add)
        nisa.tensor_scalar_reduce(
            out, y, nl.multiply, 2.0, nl.add, total, reduce_cmd=nisa.reduce_cmd.reduce
        )
        return total

    expected = 2 * (first.sum(1) + second.sum(1))
    assert_allclose(
        on_nki_tiles(compute, first, second)[:, 0], expected, rtol=1e-5, atol=1e-5
    )


@every("width, count", [(1, 16), (4, 8), (16, 3)])
def test_the_known_defect_of_local_gather_is_not_ours(width, count):
    """Up to 0.6 it ignored num_elem_per_idx for some sizes of the destination."""
    data = values(16, 64)
    index = RNG.integers(0, 48, (16, 1)).astype(np.uint16)

    def compute(x, i):
        out = nl.ndarray((16, count, width), nl.float32)
        nisa.local_gather(out, x, i, width, count)
        return out

    result = on_nki_tiles(compute, data, index)
    for k in range(count):
        start = int(index[k, 0])
        assert_array_equal(result[:, k], data[:, start : start + width])
