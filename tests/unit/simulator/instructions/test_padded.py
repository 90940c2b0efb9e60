"""Tiles of which a part is never written: harmless where it is not used, an error where it is.

Each kernel writes three rows (or columns) of a tile of eight, lets instructions compute on all of
it, and stores the rows that follow from what was written; one row more is an error.
"""

import numpy as np
import pytest

from difftest.simulator import TRN3, UnwrittenError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as today
from difftest.simulator.frontend.nki import language as today_nl
from difftest.simulator.frontend.nki.kernel import jit
from tests.every import every

MODES = every("plain", [False, True])
ROWS, COLUMNS, USED = 8, 16, 3
X = np.random.default_rng(3).standard_normal((USED, COLUMNS)).astype(np.float32)
F32, U8 = today_nl.float32, today_nl.uint8


# -- today's dialect -------------------------------------------------------------------------------


def new(shape, dtype=F32, buffer=today_nl.sbuf):
    return today_nl.ndarray(shape, dtype, buffer=buffer)


BORN = new.__code__.co_firstlineno + 1


def padded(x):
    """[8, 16] of which three rows are written."""
    tile = new((ROWS, x.shape[1]))
    today.dma_copy(tile[0:USED], x)
    return tile


def made(call, shape, *operands, dtype=F32, buffer=today_nl.sbuf, **options):
    """The destination of a call, which is its first argument."""
    dst = new(shape, dtype, buffer)
    call(dst, *operands, **options)
    return dst


def in_sbuf(tile):
    return made(today.tensor_copy, tile.shape, tile)


def activation_reduce(x):
    sums = new((ROWS, 1))
    made(today.activation_reduce, x.shape, today_nl.square, x, today_nl.add, sums)
    return sums


def through_the_registers(x):
    """Two reductions into the registers, which the second one reads."""
    sums, half = new((ROWS, 1)), COLUMNS // 2
    for part, command in ((0, "reset_reduce"), (half, "reduce")):
        made(
            today.activation,
            (ROWS, half),
            today_nl.copy,
            x[:, part : part + half],
            reduce_op=today_nl.add,
            reduce_res=sums if part else None,
            reduce_cmd=getattr(today.reduce_cmd, command),
        )
    return sums


def stationary(x):
    """The written rows turned into columns of the stationary operand: rows of the product."""
    turned = in_sbuf(made(today.nc_transpose, (COLUMNS, ROWS), x, buffer=today_nl.psum))
    ones = today_nl.ones((COLUMNS, 5), F32)
    total = new((ROWS, 5), F32, today_nl.psum)
    for _ in range(2):
        today.nc_matmul(total, turned, ones)
    return in_sbuf(total)


def moving(x):
    """The same of the moving operand, and back."""
    turned = made(today.nc_transpose, (COLUMNS, ROWS), x, buffer=today_nl.psum)
    product = made(
        today.nc_matmul,
        (5, ROWS),
        today_nl.ones((COLUMNS, 5), F32),
        in_sbuf(turned),
        buffer=today_nl.psum,
    )
    return in_sbuf(made(today.nc_transpose, (ROWS, 5), in_sbuf(product), buffer=today_nl.psum))


def scan(x):
    ones = today_nl.ones(x.shape, F32)
    return made(today.tensor_tensor_scan, x.shape, ones, x, 0.0, today_nl.multiply, today_nl.add)


def eight(x):
    return made(today.max8, (ROWS, 8), x)


def places(x):
    return made(today.nc_find_index8, (ROWS, 8), x, eight(x), dtype=today_nl.uint32)


def replaced(x):
    return made(today.nc_match_replace8, x.shape, x, eight(x), 0.0)


def statistics(x):
    return made(today.bn_aggr, (ROWS, 2), made(today.bn_stats, (ROWS, 6), x))


def scalar_reduce(x):
    sums = new((ROWS, 1))
    made(
        today.tensor_scalar_reduce, x.shape, x, today_nl.add, 1.0, today_nl.maximum, reduce_res=sums
    )
    return sums


def through_hbm(x):
    scratch = today_nl.ndarray(x.shape, F32, buffer=today_nl.private_hbm)
    today.dma_copy(scratch, x)
    return today_nl.load(scratch)


def turned_by_dma(x):
    return made(today.dma_transpose, x.shape, made(today.dma_transpose, x.shape[::-1], x))


def by_a_predicate(x):
    positive = made(today.tensor_scalar, x.shape, x, today_nl.greater, 0.0, dtype=today_nl.uint8)
    kept = today_nl.zeros(x.shape, F32)
    today.tensor_copy_predicated(kept, x, positive)
    return kept


TODAYS = {
    "activation_reduce": (activation_reduce, lambda x: (x**2).sum(1, keepdims=True)),
    "registers": (through_the_registers, lambda x: x.sum(1, keepdims=True)),
    "nc_matmul's stationary": (stationary, lambda x: 2 * np.tile(x.sum(1, keepdims=True), 5)),
    "nc_matmul's moving": (moving, lambda x: np.tile(x.sum(1, keepdims=True), 5)),
    "scan": (scan, lambda x: np.cumsum(x, 1)),
    "max8": (eight, lambda x: -np.sort(-x, 1)[:, :8]),
    "nc_find_index8": (places, lambda x: np.argsort(-x, 1)[:, :8]),
    "nc_match_replace8": (replaced, lambda x: np.where(x >= -np.sort(-x, 1)[:, 7:8], 0, x)),
    "bn_stats": (statistics, lambda x: np.stack([x.mean(1), x.var(1)], 1)),
    "tensor_scalar_reduce": (scalar_reduce, lambda x: x.max(1, keepdims=True) + 1),
    "private HBM": (through_hbm, lambda x: x),
    "dma_transpose": (turned_by_dma, lambda x: x),
    "tensor_copy_predicated": (by_a_predicate, lambda x: np.maximum(x, 0)),
    "tensor_reduce": (
        lambda x: made(today.tensor_reduce, (ROWS, 1), today_nl.add, x, 1),
        lambda x: x.sum(1, keepdims=True),
    ),
    "tensor_scalar": (
        lambda x: made(today.tensor_scalar, x.shape, x, today_nl.multiply, 2.0),
        lambda x: 2 * x,
    ),
}


def stored(result, used):
    out = today_nl.ndarray((used, *result.shape[1:]), result.dtype, buffer=today_nl.shared_hbm)
    today.dma_copy(out, result[0:used])  # the use
    return out


@MODES
@every("name", TODAYS)
def test_padded_rows_of_todays_dialect(name, plain):
    compute, expected = TODAYS[name]

    @jit
    def kernel(x, used):
        return stored(compute(padded(x)), used)

    (output,) = launch(kernel, [X, USED], plain=plain).outputs
    np.testing.assert_allclose(output, expected(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(UnwrittenError) as caught:
        launch(kernel, [X, USED + 1], plain=plain)
    assert caught.value.location.text.endswith("# the use")
    if not plain:
        born = "return today_nl.ndarray(shape, dtype, buffer=buffer), "
        assert "they came from [" in str(caught.value)
        assert f"float32 in sbuf, made at {__file__}:{BORN}: {born}" in str(caught.value)


# -- the classic dialect ---------------------------------------------------------------------------


def half(x):
    tile = nl.ndarray((ROWS, x.shape[1]), x.dtype)
    tile[0:USED] = nl.load(x)
    return tile


def classic_sums(x):
    sums = nl.ndarray((ROWS, 1), x.dtype)
    nisa.activation_reduce(nl.square, x, reduce_op=np.add, reduce_res=sums)
    return sums


def classic_product(x):
    turned = nl.copy(nisa.nc_transpose(x))
    total = nl.zeros((ROWS, 5), nl.float32, buffer=nl.psum)
    for _ in range(2):
        total += nisa.nc_matmul(turned, nl.ones((COLUMNS, 5), nl.float32))
    return nl.copy(total)


def classic_begun(x):
    """A sum that the first product begins."""
    turned = nl.copy(nisa.nc_transpose(x))
    total = nl.ndarray((ROWS, 5), nl.float32, buffer=nl.psum)
    for _ in range(2):
        total += nisa.nc_matmul(turned, nl.ones((COLUMNS, 5), nl.float32))
    return nl.copy(total)


def by_the_index(x):
    index = nl.mgrid[0:ROWS, 0:COLUMNS]
    return nisa.affine_select(pred=index.p < USED, on_true_tile=x, on_false_value=-7.0)


CLASSIC = {
    "activation_reduce": (classic_sums, lambda x: (x**2).sum(1, keepdims=True)),
    "nc_matmul": (classic_product, lambda x: 2 * np.tile(x.sum(1, keepdims=True), 5)),
    "nc_matmul that begins": (classic_begun, lambda x: 2 * np.tile(x.sum(1, keepdims=True), 5)),
    "scan": (
        lambda x: nisa.tensor_tensor_scan(
            nl.ones(x.shape, nl.float32), x, 0.0, np.multiply, np.add
        ),
        lambda x: np.cumsum(x, 1),
    ),
    "max8": (lambda x: nisa.max8(src=x), lambda x: -np.sort(-x, 1)[:, :8]),
    "sum": (lambda x: nl.sum(x, axis=1), lambda x: x.sum(1, keepdims=True)),
    "softmax": (
        lambda x: nl.softmax(x, axis=1),
        lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    ),
    "where": (
        lambda x: nl.where(nl.greater(x, 0.0), x, 0.0, dtype=nl.float32),
        lambda x: np.maximum(x, 0),
    ),
}


@MODES
@every("name", CLASSIC)
def test_padded_rows_of_the_classic_dialect(name, plain):
    compute, expected = CLASSIC[name]

    def kernel(x, used):
        result = compute(half(x))
        out = nl.ndarray((used, *result.shape[1:]), result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result[0:used])
        return out

    (output,) = launch(kernel, [X, USED], plain=plain).outputs
    np.testing.assert_allclose(output, expected(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(UnwrittenError):
        launch(kernel, [X, USED + 1], plain=plain)


@MODES
@every("rows", [USED, USED + 1])
def test_a_select_by_the_index_takes_padding_away(plain, rows):
    def kernel(x):
        tile = nl.ndarray((ROWS, COLUMNS), x.dtype)
        tile[0:USED] = nl.load(x)
        index = nl.mgrid[0:ROWS, 0:COLUMNS]
        kept = nisa.affine_select(pred=index.p < rows, on_true_tile=tile, on_false_value=-7.0)
        out = nl.ndarray((ROWS, COLUMNS), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, kept)
        return out

    if rows == USED:
        (output,) = launch(kernel, [X], plain=plain).outputs
        np.testing.assert_array_equal(output[:USED], X)
        assert (output[USED:] == -7).all()
    else:
        with pytest.raises(UnwrittenError):
            launch(kernel, [X], plain=plain)


# -- what cannot be unused -------------------------------------------------------------------------


@MODES
@every("use", ["contraction", "partitions", "row"])
def test_where_no_element_of_the_result_is_left_the_instruction_raises(use, plain):
    @jit
    def kernel(x):
        tile = padded(x)
        if use == "contraction":
            total = new((COLUMNS, 5), F32, today_nl.psum)
            today.nc_matmul(total, tile, today_nl.ones((ROWS, 5), F32))  # the line
        elif use == "partitions":
            total = new((1, COLUMNS))
            today.tensor_partition_reduce(total, today_nl.add, tile)  # the line
        else:
            row = new((1, COLUMNS))
            today.dma_copy(row[:, 1:COLUMNS], x[0:1, 1:COLUMNS])
            today.tensor_reduce(new((1, 1)), today_nl.add, row, 1)  # the line

    with pytest.raises(UnwrittenError) as caught:
        launch(kernel, [X], plain=plain)
    assert caught.value.location.text.endswith("# the line")


def test_the_error_names_the_tensor_that_was_never_written_and_its_first_reader():
    @jit
    def kernel(x):
        lanes = today_nl.ndarray((ROWS, COLUMNS), F32)  # the allocation
        today.dma_copy(lanes[0:USED], x)
        doubled = made(today.tensor_scalar, lanes.shape, lanes, today_nl.multiply, 2.0)
        sums = new((ROWS, 1))
        made(today.activation_reduce, lanes.shape, today_nl.exp, doubled, today_nl.add, sums)
        return stored(sums, USED + 1)

    with pytest.raises(UnwrittenError) as caught:
        launch(kernel, [X])
    text = str(caught.value)
    assert "1 of 4 elements" in text
    assert "the first at [3, 0]" in text
    assert "they came from [3:8, 0:16] of tensor " in text
    assert "lanes = today_nl.ndarray((ROWS, COLUMNS), F32)  # the allocation, read by" in text
    assert "read by tensor_scalar at" in text


@MODES
def test_registers_that_were_reset_hold_what_was_written(plain):
    @jit
    def kernel(x, command):
        sums = new((ROWS, 1))
        for source in (padded(x), today_nl.ones((ROWS, COLUMNS), F32)):
            made(
                today.activation,
                source.shape,
                today_nl.copy,
                source,
                reduce_op=today_nl.add,
                reduce_res=sums,
                reduce_cmd=getattr(today.reduce_cmd, command),
            )
        return stored(sums, ROWS)

    (output,) = launch(kernel, [X, "reset_reduce"], plain=plain).outputs
    assert (output == COLUMNS).all()
    with pytest.raises(UnwrittenError):
        launch(kernel, [X, "reduce"], plain=plain)


@MODES
@every("accumulate", [None, True])
def test_a_product_that_is_overwritten_is_no_part_of_the_sum(plain, accumulate):
    @jit
    def kernel(x, again):
        whole = today_nl.ones((COLUMNS, ROWS), F32)
        ones = today_nl.ones((COLUMNS, 5), F32)
        turned = in_sbuf(made(today.nc_transpose, (COLUMNS, ROWS), padded(x), buffer=today_nl.psum))
        total = new((ROWS, 5), F32, today_nl.psum)
        today.nc_matmul(total, turned, ones)
        today.nc_matmul(total, whole, ones, accumulate=again)
        return stored(in_sbuf(total), ROWS)

    (output,) = launch(kernel, [X, False], plain=plain).outputs
    assert (output == COLUMNS).all()
    with pytest.raises(UnwrittenError):
        launch(kernel, [X, accumulate], plain=plain)


@MODES
@every("masked", [False, True])
def test_a_sum_of_products_stays_lost_and_names_what_was_never_written(masked, plain):
    def kernel(x):
        out = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
        padded = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
        padded[:USED, :] = nl.load(x)
        total = nl.ndarray((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.psum)
        total[...] = nl.copy(padded)
        depth, rows = nl.arange(USED)[:, None], nl.arange(ROWS)[None, :]
        left, mask = nl.load(x)[depth, rows], rows < ROWS - 1 if masked else None
        for _ in range(2):
            total += nisa.nc_matmul(left, nl.load(x), mask=mask)
        nl.store(out, total)
        return out

    with pytest.raises(UnwrittenError, match=r"they came from \[3:8, 0:16\] of tensor 2 "):
        launch(kernel, (X,), plain=plain)


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
    """Of ten packed columns seven are written: as many rows or columns of the product are sure."""
    written, packed = 7, 10
    x = np.random.default_rng(0).standard_normal((32, 4 * written)).astype(np.float16)
    x4 = today_nl.float8_e4m3fn_x4

    def quantized(source):
        data, scale = new((32, source.shape[1] // 4), x4), new((4, source.shape[1] // 4), U8)
        today.quantize_mx(dst=data, src=source, dst_scale=scale)
        return data, scale

    @jit
    def kernel(x, stored_columns):
        tile = new((32, 4 * packed), today_nl.float16)
        today.dma_copy(tile[:, 0 : 4 * written], x)
        lacking, whole = quantized(tile), quantized(today_nl.load(x[:, 0:24]))
        (left, left_scale), (right, right_scale) = (
            (lacking, whole) if side == "stationary" else (whole, lacking)
        )
        product = new((left.shape[1], right.shape[1]), F32, today_nl.psum)
        for _ in range(2):
            today.nc_matmul_mx(product, left, right, left_scale, right_scale)
        kept = in_sbuf(product)
        kept = kept[0:stored_columns] if side == "stationary" else kept[:, 0:stored_columns]
        return stored(kept, kept.shape[0])

    if extra:
        with pytest.raises(UnwrittenError, match="read by quantize_mx at"):
            launch(kernel, [x, written + 1], machine=TRN3)
        return
    (output,) = launch(kernel, [x, written], machine=TRN3).outputs
    assert output.size == 6 * written
    assert np.isfinite(output).all()
