"""Tiles with an unwritten part: harmless if it is not used, an error if it is.

Each kernel writes three rows (or columns) of a tile of eight, lets instructions compute on all of
it, and stores the rows that depend only on written ones. One more row is an error.
"""

import numpy as np
import pytest

from difftest.simulator import TRN3, UnwrittenError, launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as today
from difftest.simulator.frontend.nki import language as today_nl
from tests.every import every

MODES = every("plain", [False, True])
ROWS = 8
COLUMNS = 16
USED = 3
X = np.random.default_rng(3).standard_normal((USED, COLUMNS)).astype(np.float32)
F32 = today_nl.float32
U8 = today_nl.uint8


# -- the current dialect ---------------------------------------------------------------------------


def new(shape, dtype=F32, buffer=today_nl.sbuf):
    return today_nl.ndarray(shape, dtype, buffer=buffer)


def padded(x):
    """Return [8, 16] with three written rows."""
    tile = new((ROWS, x.shape[1]))
    today.dma_copy(tile[0:USED], x)
    return tile


def made(call, shape, *operands, dtype=F32, buffer=today_nl.sbuf, **options):
    """Return the destination, the call's first argument, after the call."""
    dst = new(shape, dtype, buffer)
    call(dst, *operands, **options)
    return dst


def in_sbuf(tile):
    return made(today.tensor_copy, tile.shape, tile)


def stored(result, used):
    out = today_nl.ndarray(
        (used, *result.shape[1:]), result.dtype, buffer=today_nl.shared_hbm
    )
    today.dma_copy(out, result[0:used])  # the use
    return out


# -- what cannot be unused -------------------------------------------------------------------------


def test_the_error_names_the_tensor_that_was_never_written_and_its_first_reader():
    @jit
    def kernel(x):
        lanes = today_nl.ndarray((ROWS, COLUMNS), F32)  # the allocation
        today.dma_copy(lanes[0:USED], x)
        doubled = made(today.tensor_scalar, lanes.shape, lanes, today_nl.multiply, 2.0)
        sums = new((ROWS, 1))
        made(
            today.activation_reduce,
            lanes.shape,
            today_nl.exp,
            doubled,
            today_nl.add,
            sums,
        )
        return stored(sums, USED + 1)

    with pytest.raises(UnwrittenError) as caught:
        launch(kernel, [X])
    text = str(caught.value)
    assert "1 of 4 elements" in text
    assert "the first at [3, 0]" in text
    assert "they came from [3:8, 0:16] of tensor " in text
    assert (
        "lanes = today_nl.ndarray((ROWS, COLUMNS), F32)  # the allocation, read by"
        in text
    )
    assert "read by tensor_scalar at" in text


@MODES
@every("accumulate", [None, True])
def test_a_product_that_is_overwritten_is_no_part_of_the_sum(plain, accumulate):
    @jit
    def kernel(x, again):
        whole = today_nl.ones((COLUMNS, ROWS), F32)
        ones = today_nl.ones((COLUMNS, 5), F32)
        turned = in_sbuf(
            made(today.nc_transpose, (COLUMNS, ROWS), padded(x), buffer=today_nl.psum)
        )
        total = new((ROWS, 5), F32, today_nl.psum)
        today.nc_matmul(total, turned, ones)
        today.nc_matmul(total, whole, ones, accumulate=again)
        return stored(in_sbuf(total), ROWS)

    (output,) = launch(kernel, [X, False], plain=plain).outputs
    assert (output == COLUMNS).all()
    with pytest.raises(UnwrittenError):
        launch(kernel, [X, accumulate], plain=plain)


@MODES
@every("use", ["index", "register"])
def test_an_index_and_a_register_are_uses(use, plain):
    @jit
    def kernel(x):
        numbers = new((ROWS, 1), today_nl.int32)
        today.memset(numbers[0:2], 1)
        copied = made(today.tensor_copy, numbers.shape, numbers, dtype=today_nl.int32)
        if use == "register":
            register = today.register_alloc()
            today.register_load(register, copied[2:3])  # the line
        else:
            rows = new((ROWS, COLUMNS))
            view = [[COLUMNS, ROWS], [1, COLUMNS]]
            today.dma_copy(rows, x.ap(view, vector_offset=copied))  # the line
        return x

    with pytest.raises(UnwrittenError) as caught:
        launch(kernel, [X], plain=plain)
    assert caught.value.location.text.endswith("# the line")


@every("side", ["stationary", "moving"])
@every("extra", [0, 1])
def test_padded_columns_of_an_mx_product(side, extra):
    """Seven of ten packed columns are written, so seven rows or columns are defined."""
    written = 7
    packed = 10
    x = np.random.default_rng(0).standard_normal((32, 4 * written)).astype(np.float16)
    x4 = today_nl.float8_e4m3fn_x4

    def quantized(source):
        data = new((32, source.shape[1] // 4), x4)
        scale = new((4, source.shape[1] // 4), U8)
        today.quantize_mx(dst=data, src=source, dst_scale=scale)
        return data, scale

    @jit
    def kernel(x, stored_columns):
        tile = new((32, 4 * packed), today_nl.float16)
        today.dma_copy(tile[:, 0 : 4 * written], x)
        lacking = quantized(tile)
        whole = quantized(today_nl.load(x[:, 0:24]))
        (left, left_scale), (right, right_scale) = (
            (lacking, whole) if side == "stationary" else (whole, lacking)
        )
        product = new((left.shape[1], right.shape[1]), F32, today_nl.psum)
        for _ in range(2):
            today.nc_matmul_mx(product, left, right, left_scale, right_scale)
        kept = in_sbuf(product)
        kept = (
            kept[0:stored_columns]
            if side == "stationary"
            else kept[:, 0:stored_columns]
        )
        return stored(kept, kept.shape[0])

    if extra:
        with pytest.raises(UnwrittenError, match="read by quantize_mx at"):
            launch(kernel, [x, written + 1], machine=TRN3)
        return
    (output,) = launch(kernel, [x, written], machine=TRN3).outputs
    assert output.size == 6 * written
    assert np.isfinite(output).all()
