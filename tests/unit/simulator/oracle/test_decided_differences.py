"""Past differences between the two modes, and the mode that was wrong."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import (
    BufferError,
    DtypeError,
    KernelError,
    LimitError,
    NkiError,
    ShapeError,
    UnwrittenError,
    launch,
)
from difftest.simulator.dtypes import from_bits
from difftest.simulator.entry import kernel as nki
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic import typing as nt
from tests.every import every
from tests.unit.simulator.on_tiles import on_tiles

ROWS = np.arange(24, dtype=np.float32).reshape(4, 6)
OUTSIDE = nl.mgrid[0:4, 0:6]
COLUMNS = nl.arange(6)[None, :]
MASK = OUTSIDE.p < 3


run = functools.partial(on_tiles, plain=True)
"""Return a computation's results for arrays as SBUF tiles, judged by the oracle."""
LARGE = np.array([[2**31 - 1, 5, 2**24 + 1]])


@every(
    "dtypes, result, expected",
    [
        (("int32", "int32"), "int32", [-(2**31), 6, 2**24 + 2]),
        (("int32", "uint32"), "int32", [-(2**31), 6, 2**24 + 2]),
        (("int32", "uint32"), "uint32", [2**31, 6, 2**24 + 2]),
        (("uint32", "int32"), "float32", [2**31, 6, 2**24]),
        (("int32", "int32"), "int16", [2**15 - 1, 6, 2**15 - 1]),
        (("int32", "int16"), "int32", [2**31 - 1, 6, 2**24]),
    ],
)
def test_integers_of_32_bits_wrap_where_all_are_of_32_bits(dtypes, result, expected):
    """Elsewhere float32 arithmetic rounds, and a cast saturates (v2.32.0, nisa.tensor_tensor)."""
    left, right = (
        values.astype(d)
        for values, d in zip((LARGE, LARGE * 0 + 1), dtypes, strict=True)
    )
    found = run(lambda x, y: nl.add(x, y, dtype=getattr(nl, result)), left, right)
    assert_array_equal(found.astype(np.float64), [expected])


def test_integers_of_32_bits_wrap_in_place():
    def update(x, y):
        x[...] += y
        return x

    one = np.ones((1, 3), np.uint32)
    found = run(update, LARGE.astype(np.int32), one)
    assert_array_equal(found, [[-(2**31), 6, 2**24 + 2]])


def test_select_reduce_has_a_float_reduce_res():
    def select(x):
        total = nl.zeros((4, 1), nl.int32)
        nisa.select_reduce(
            dst=x,
            predicate=nl.less(x, 3),
            on_true=x,
            on_false=0.0,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return x

    with pytest.raises(DtypeError, match="reduce_res of certain dtypes"):
        run(select, ROWS)


@every(
    "error, compute",
    [
        (LimitError, lambda x: nisa.max8(src=x, mask=False)),
        (LimitError, lambda x: nisa.max8(src=x, mask=nl.mgrid[0:4, 0:6].x < 0)),
        (DtypeError, lambda x: nl.bitwise_and(x, 3, mask=False)),
        (ShapeError, lambda x: nisa.tensor_tensor(x, x[0:1], nl.add, mask=False)),
    ],
)
def test_a_mask_that_leaves_nothing_excuses_nothing(error, compute):
    with pytest.raises(error):
        run(compute, ROWS)


@every(
    "search",
    [
        lambda x, mask: nisa.max8(src=x, mask=mask),
        lambda x, mask: nisa.nc_find_index8(data=x, vals=nl.copy(x[:, 0:8]), mask=mask),
        lambda x, mask: nisa.nc_match_replace8(
            data=x, vals=nl.copy(x[:, 0:8]), imm=0.0, mask=mask
        ),
    ],
)
def test_a_mask_does_not_make_a_row_that_is_too_long_legal(search):
    """The rule also holds for the elements that the mask keeps, as for fewer than 8 elements."""
    data = np.arange(2 * 16385, dtype=np.float32).reshape(2, 16385)
    short = nl.arange(16385)[None, :] < 16
    assert run(lambda x: search(x[:, 0:16384], None), data).size
    with pytest.raises(LimitError, match="16384"):
        run(lambda x: search(x, short), data)


@every("reduce_op", [nl.add, nl.subtract])
def test_a_mask_that_leaves_nothing_leaves_the_reduction_out_too(reduce_op):
    """The tile can be stored: on a device it holds arbitrary data."""

    def kernel(x):
        total = nl.ndarray((4, 1), nl.float32)
        nisa.tensor_scalar_reduce(
            data=nl.load(x),
            op0=nl.add,
            operand0=1.0,
            reduce_op=reduce_op,
            reduce_res=total,
            mask=False,
        )
        out = nl.ndarray((4, 1), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    assert np.isnan(launch(nki.jit(kernel), [ROWS.copy()], plain=True).outputs[0]).all()


def test_a_mask_does_not_make_a_row_of_bn_stats_legal():
    data = np.zeros((2, 513), np.float32)
    with pytest.raises(LimitError, match="at most 512"):
        run(lambda x: nisa.bn_stats(x, mask=nl.arange(513)[None, :] < 9), data)


def test_a_parameter_is_not_written_under_a_mask_that_leaves_nothing_either():
    def kernel(x: nt.tensor):
        nl.store(x, 1, mask=False)
        return x

    with pytest.raises(KernelError, match="does not write to its parameters"):
        launch(nki.jit(kernel), [ROWS.copy()], plain=True)


def test_dropout_draws_for_the_box_that_holds_its_mask():
    def drop(x):
        i = nl.mgrid[0:4, 0:6]
        tile = nl.zeros((4, 6), nl.float32)
        tile[...] = nisa.dropout(x, 0.5, mask=(i.x <= i.p) & (i.p < 3))
        return tile

    box = np.random.default_rng(0).random((3, 3), np.float32) >= 0.5
    expected = np.zeros((4, 6), np.float32)
    expected[:3, :3] = np.where(np.tri(3) > 0, box * (ROWS[:3, :3] + 1), 0)
    assert_array_equal(run(drop, ROWS + 1), expected)


@every("source", [np.float64, np.float32, np.int32])
def test_a_constant_of_tfloat32_is_rounded_by_the_host(source):
    values = np.array([[1.0, -3.0, 1 / 3, 2049.0]]).astype(source)

    def kernel():
        return nl.shared_constant(values, nl.tfloat32)

    (found,) = launch(kernel, plain=True).outputs
    step = np.exp2(np.floor(np.log2(np.abs(np.where(values == 0, 1, values)))) - 10)
    assert_array_equal(from_bits(found, found.dtype), np.rint(values / step) * step)


def test_a_dma_leaves_bits_that_tfloat32_has_not():
    """Only an engine rounds the bits off."""

    def kernel(x, by_engine):
        tile = nl.load(x.view(nl.tfloat32))
        out = nl.ndarray(x.shape, nl.tfloat32, buffer=nl.shared_hbm)
        nl.store(out, nisa.tensor_copy(tile) if by_engine else tile)
        return out

    bits = np.array([[0x3F800001, 0x3F801000]], np.int32)
    for by_engine, expected in ((False, bits), (True, [[0x3F800000, 0x3F800000]])):
        (left,) = launch(kernel, [bits, by_engine], plain=True).outputs
        assert_array_equal(left.view(np.int32), expected)


def test_a_bool_is_a_uint8_to_bitvec_operators():
    """1 is shifted by 2, not by True; and 2 >> True is 1."""
    bits = np.array([[True, False]])
    table = {
        (lambda x: 2 >> x): [1, 2],
        (lambda x: x << 7): [128, 0],
        (lambda x: x & 2): [0, 0],
        (lambda x: x | 2): [3, 2],
        (
            lambda x: nisa.tensor_tensor(
                x, nl.full((1, 2), 2, nl.int32), nl.right_shift
            )
        ): [0, 0],
    }
    for compute, expected in table.items():
        assert_array_equal(run(compute, bits), [expected])


def test_bitvec_operators_keep_the_low_bits():
    """They do not cast, so that nothing saturates."""
    values = np.array([[254, 7]], np.uint8)
    found = run(lambda x: nl.bitwise_or(x, x, dtype=nl.int8), values)
    assert_array_equal(found, np.array([[-2, 7]], np.int8), strict=True)
    found = run(
        lambda x: nisa.tensor_partition_reduce(nl.bitwise_or, x, dtype=nl.int8), values
    )
    assert_array_equal(found, [[-2, 7]])
    found = run(
        lambda x: nisa.tensor_reduce(nl.bitwise_or, x, axis=1, dtype=nl.int8), values
    )
    assert_array_equal(found, [[-1]])


def test_an_element_of_a_tile_is_transposed_by_dma():
    found = run(lambda x: nisa.dma_transpose(x[2, 3]), ROWS)
    assert_array_equal(found, [[15.0]])
    found = run(lambda x: nisa.dma_transpose(x[2]), ROWS)
    assert_array_equal(found, ROWS[2][:, None])


def test_a_reduction_into_its_own_data_comes_after_the_result():
    """nl.copy hands the data on as they are: the sums, written first, would be among them."""

    def both(x):
        copied = nisa.activation_reduce(
            nl.copy, x, reduce_op=np.add, reduce_res=x[:, 0:1], dtype=nl.int32
        )
        return nl.add(copied, 0)

    assert_array_equal(run(both, ROWS), ROWS)


def test_the_registers_belong_to_the_engine_for_all_partitions():
    def add_up(x):
        total = nl.zeros((4, 1), nl.float32)
        nisa.activation(
            nl.copy, x, reduce_op=np.add, reduce_cmd=nisa.reduce_cmd.reset_reduce
        )
        nisa.activation(
            nl.copy,
            x[0:2],
            reduce_op=np.add,
            reduce_cmd=nisa.reduce_cmd.reduce,
            reduce_res=total[0:2],
        )
        return total

    expected = np.where(np.arange(4) < 2, 2 * ROWS.sum(axis=1), 0)[:, None]
    assert_array_equal(run(add_up, ROWS), expected)


def test_a_program_of_a_grid_begins_with_registers_of_its_own():
    def kernel(x):
        out = nl.ndarray((2, nl.par_dim(4), 1), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.sbuf)
        adds = {"reduce_op": np.add, "reduce_cmd": nisa.reduce_cmd.reduce}
        nisa.activation(nl.copy, nl.load(x), reduce_res=total, **adds)
        nl.store(out[nl.program_id(0)], total)
        return out

    found = launch(kernel, (ROWS,), grid=(2,), plain=True).outputs[0]
    assert_array_equal(found, [ROWS.sum(axis=1)[:, None]] * 2)


def test_a_product_is_added_to_integers_in_float32():
    def add(x):
        total = nl.ndarray((1, 2), nl.uint32, buffer=nl.psum)
        total[...] = x
        ones = nl.ones((1, 2), nl.float32)
        total += nisa.nc_matmul(ones[:, 0:1], ones)
        return nl.copy(total)

    found = run(add, np.array([[2**31 - 2, 46162864]], np.uint32))
    assert_array_equal(found, [[2**31, 46162864]])


def test_masked_out_elements_may_be_outside_a_vector_with_a_hole():
    def add(x):
        vector = nl.ndarray((4, 1), nl.float32, buffer=nl.sbuf)
        vector[0:3] = nl.copy(x[0:3, 0:1])
        row = nl.arange(4)[:, None]
        made = nl.zeros((4, 6), nl.float32)
        made[...] = nisa.tensor_scalar(
            x, np.add, vector[row + 1, 0], mask=OUTSIDE.p < 2
        )
        return made[0:2]

    assert_array_equal(run(add, ROWS), ROWS[0:2] + ROWS[1:3, 0:1])


def test_an_infinity_may_be_added_up_in_rows_that_indices_name():
    """Whoever looks for its origin finds no tile there."""

    def kernel(x: nt.mutable_tensor):
        row = nisa.iota(nl.arange(2)[:, None] * 0, dtype=nl.int32)
        nl.atomic_rmw(x[row, COLUMNS], nl.load(x)[0:2], op=np.add)

    array = np.full((4, 6), 3e38, np.float32)
    launch(kernel, (array,), plain=True)
    assert np.isinf(array[0]).all()


def test_a_masked_dma_takes_a_view_of_its_destinations_shape():
    def copy(x):
        tile = nl.zeros((4, 4), nl.float32)
        source = x.reshape((4, 2, 3))[:, :, 0:2]
        nisa.dma_copy(dst=tile, src=source, mask=nl.arange(4)[:, None] < 3)
        return tile

    with pytest.raises(ShapeError, match="reshape of a slice"):
        run(copy, ROWS)


@every("returned", ["unwritten", "on chip"])
def test_the_error_of_an_invalid_result_names_the_line_that_made_it(returned):
    def kernel(x):
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)  # made here
        tile = nl.load(x)  # and here
        return out if returned == "unwritten" else tile

    with pytest.raises(NkiError) as refused:
        launch(kernel, [ROWS], plain=True, strictness="documented")
    assert isinstance(refused.value, UnwrittenError) == (returned == "unwritten")
    assert "here" in refused.value.location.text


def test_a_copy_to_an_offset_has_its_sources_shape():
    def copy(x):
        tile = nl.zeros((4, 6), nl.float32)
        place = OUTSIDE.x + nl.zeros((1, 1), nl.int32)
        nisa.tensor_copy_dynamic_dst(dst=tile[OUTSIDE.p, place], src=x[0:1])
        return tile

    with pytest.raises(ShapeError, match="takes operands of one shape"):
        run(copy, ROWS)


def test_the_gpsimd_engine_reads_no_vector_in_psum():
    def power(x):
        return nisa.tensor_scalar(
            x, nl.power, nl.zeros((4, 1), nl.float32, buffer=nl.psum)
        )

    with pytest.raises(BufferError, match="GpSimd"):
        run(power, ROWS)


def filled(**arguments):
    """A copy of the tile, with -1 where a mask leaves it out."""

    def compute(x):
        tile = nl.full((4, 6), -1, nl.float32, buffer=nl.sbuf)
        tile[...] = nl.copy(x, **{name: make() for name, make in arguments.items()})
        return tile

    return compute


ROW, COLUMN = np.mgrid[0:4, 0:6]
MADE_OUTSIDE = {
    "an index": (lambda x: nl.copy(x[OUTSIDE.p, 5 - OUTSIDE.x]), ROWS[:, ::-1]),
    "beside one of the kernel": (
        lambda x: nl.copy(x[nl.arange(4)[:, None], COLUMNS]),
        ROWS,
    ),
    "added to one of the kernel": (
        lambda x: nl.copy(x[OUTSIDE.p, 2 * nl.mgrid[0:4, 0:6].x - OUTSIDE.x]),
        ROWS,
    ),
    "a slice": (lambda x: nl.copy(x[:, nl.ds(1, 2)]), ROWS[:, 1:3]),
    "a mask": (filled(mask=lambda: MASK), np.where(ROW < 3, ROWS, -1)),
    "a mask and one of the kernel": (
        filled(mask=lambda: MASK & (nl.mgrid[0:4, 0:6].x > 1)),
        np.where((ROW < 3) & (COLUMN > 1), ROWS, -1),
    ),
    "compared with one of the kernel": (
        filled(mask=lambda: OUTSIDE.p <= nl.mgrid[0:4, 0:6].x),
        np.where(ROW <= COLUMN, ROWS, -1),
    ),
    "one of the kernel compared with it": (
        filled(mask=lambda: nl.mgrid[0:4, 0:6].p == OUTSIDE.x),
        np.where(ROW == COLUMN, ROWS, -1),
    ),
    "iota": (lambda x: nisa.iota(6 * OUTSIDE.p + COLUMNS, dtype=nl.float32), ROWS),
    "affine_select": (
        lambda x: nisa.affine_select(pred=MASK, on_true_tile=x, on_false_value=-1.0),
        np.where(ROW < 3, ROWS, -1),
    ),
    "an offset beside a tile": (
        lambda x: nisa.tensor_copy_dynamic_src(
            x[OUTSIDE.p, 0 * OUTSIDE.x + nl.full((1, 1), 2, nl.int32)]
        ),
        np.repeat(ROWS[:, 2:3], 6, axis=1),
    ),
}


@every("use", MADE_OUTSIDE)
def test_an_index_or_mask_made_outside_the_kernel(use):
    compute, expected = MADE_OUTSIDE[use]
    assert_array_equal(run(compute, ROWS), expected)
