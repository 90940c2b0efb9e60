"""A mask on every function that takes one: what it keeps is what NumPy computes of that alone.

"All APIs accept an optional mask" (AWS ``nki.api.shared.rst`` at tag v2.26.0). Each call runs in
both modes, under boxes, a triangle, plain truth values, and a mask that keeps nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import written

ROWS, COLUMNS = 32, 16
DATA = np.random.default_rng(3).permutation(ROWS * COLUMNS).astype(np.float32)
DATA = DATA.reshape(ROWS, COLUMNS) - 100
P, X = np.mgrid[0:ROWS, 0:COLUMNS]
MASKS = {  # name: what makes NKI's mask of two indices, NumPy's bools
    "columns": (lambda p, x: x >= 4, X >= 4),
    "rows": (lambda p, x: p < 20, P < 20),
    "a box": (lambda p, x: (p >= 3) & (p < 31) & (x >= 2) & (x < 12), np.zeros(0)),
    "a triangle": (lambda p, x: x + 8 >= p, X + 8 >= P),
    "all": (lambda p, x: x < COLUMNS, X < COLUMNS),
    "nothing": (lambda p, x: x < 0, X < 0),
    "True": (lambda p, x: True, X >= 0),
    "False": (lambda p, x: np.False_, X < 0),
}
MASKS["a box"] = (MASKS["a box"][0], (P >= 3) & (P < 31) & (X >= 2) & (X < 12))
LEFT_OUT = -7.0
FLOAT32_MIN = np.finfo(np.float32).min


def grid():
    return nl.mgrid[0:ROWS, 0:COLUMNS]


def column(value=0.0, dtype=nl.float32):
    return nl.full((ROWS, 1), value, dtype)


def kept_of(values, chosen):
    """Values where they were written, else what the target held."""
    return np.where(chosen, values, np.float32(LEFT_OUT))


def folded(ufunc, chosen, initial):
    """A reduction of the chosen elements of each row, and where there are any."""
    total = ufunc.reduce(DATA, axis=1, keepdims=True, where=chosen, initial=initial)
    return kept_of(total, chosen.any(axis=1, keepdims=True))


def each_row(chosen, compute, width):
    """``compute`` of the chosen elements of each row that has any."""
    result = np.full((ROWS, width), LEFT_OUT, np.float32)
    for p in range(ROWS):
        if chosen[p].any():
            result[p] = compute(DATA[p][chosen[p]])
    return result


def into(shape, dtype=nl.float32):
    """A tile that holds what a mask should leave alone."""
    return nl.full(shape, LEFT_OUT, dtype)


def assigned(shape, value):
    target = into(shape)
    target[...] = value
    return target


def predicate():
    p, x = grid()
    return nl.multiply(nisa.iota(x, nl.int32), 0, dtype=nl.uint8), nisa.iota(p, nl.int32)


def selected_between(tile, mask):
    into_row = into((ROWS, 1))
    result = nisa.range_select(
        on_true_tile=tile,
        comp_op0=np.greater_equal,
        comp_op1=np.less,
        bound0=column(3.0),
        bound1=column(11.0),
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=into_row,
        mask=mask,
    )
    return assigned((ROWS, COLUMNS), result), into_row


def between(chosen):
    values = np.where((X >= 3) & (X < 11), DATA, FLOAT32_MIN)
    largest = np.max(values, axis=1, keepdims=True, where=chosen, initial=FLOAT32_MIN)
    return kept_of(values, chosen), kept_of(largest, chosen.any(axis=1, keepdims=True))


def reduced_activation(tile, mask):
    total = into((ROWS, 1))
    result = nisa.activation_reduce(nl.copy, tile, reduce_op=np.add, reduce_res=total, mask=mask)
    return assigned((ROWS, COLUMNS), result), total


def reduced_scalar(tile, mask):
    total = into((ROWS, 1))
    result = nisa.tensor_scalar_reduce(
        data=tile, op0=np.multiply, operand0=2.0, reduce_op=np.add, reduce_res=total, mask=mask
    )
    return assigned((ROWS, COLUMNS), result), total


def selected_reduce(tile, mask):
    chosen = nl.full((ROWS, COLUMNS), 1, nl.uint8)
    target, largest = into((ROWS, COLUMNS)), into((ROWS, 1))
    nisa.select_reduce(
        dst=target,
        predicate=chosen,
        on_true=tile,
        on_false=0.0,
        reduce_res=largest,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        mask=mask,
    )
    return target, largest


def copied_where(tile, mask):
    target = into((ROWS, COLUMNS))
    ones = nl.full((ROWS, COLUMNS), 1, nl.uint8)
    nisa.tensor_copy_predicated(src=tile, dst=target, predicate=ones, mask=mask)
    return target


def shuffled(tile, mask):
    target = into((ROWS, COLUMNS))
    nisa.nc_stream_shuffle(tile, target, [31 - k for k in range(32)], mask=mask)
    return target


def replaced(tile, mask):
    places = nl.full((ROWS, 8), 99, nl.uint32)
    largest = nisa.max8(src=tile, mask=mask)
    result = nisa.nc_match_replace8(data=tile, vals=largest, imm=5000.0, dst_idx=places, mask=mask)
    return assigned((ROWS, COLUMNS), result), places


def without_largest(chosen):
    result, places = kept_of(DATA, chosen), np.full((ROWS, 8), 99, np.uint32)
    for p in range(ROWS):
        if chosen[p].any():
            columns = np.flatnonzero(chosen[p])
            order = np.argsort(-DATA[p][columns])[:8]
            result[p, columns[order]] = 5000.0
            places[p] = order
    return result, places


def at_an_offset(tile, mask):
    offset = nisa.memset((1, 1), 0, nl.int32)
    p, x = grid()
    read = nisa.tensor_copy_dynamic_src(tile[p, x + offset], mask=mask)
    target = into((ROWS, COLUMNS))
    nisa.tensor_copy_dynamic_dst(dst=target[p, x + offset], src=tile, mask=mask)
    return assigned((ROWS, COLUMNS), read), target


def turned_on_chip(tile, mask):
    return (
        assigned((COLUMNS, ROWS), nisa.nc_transpose(tile, mask=mask)),
        assigned((COLUMNS, ROWS), nl.transpose(tile, mask=mask)),
        assigned((COLUMNS, ROWS), nisa.dma_transpose(tile, mask=mask)),
    )


def scanned(tile, mask):
    zeros = nl.zeros((ROWS, COLUMNS), nl.float32)
    made = nisa.tensor_tensor_scan(tile, zeros, 0.0, op0=np.maximum, op1=np.add, mask=mask)
    return assigned((ROWS, COLUMNS), made)


def running_largest(chosen):
    seen = np.maximum(np.maximum.accumulate(np.where(chosen, DATA, 0.0), axis=1), 0.0)
    return kept_of(seen, chosen)


def summed(op):
    return lambda t, m: assigned((ROWS, 1), nisa.tensor_reduce(op, t, axis=1, mask=m))


def across(t, m):
    return assigned((1, COLUMNS), nisa.tensor_partition_reduce(nl.max, t, mask=m))


CALLS = {  # name: what a tile and a mask give, what NumPy does of the chosen elements
    "tensor_reduce add": (summed(np.add), lambda c: folded(np.add, c, 0)),
    "tensor_reduce max": (summed(np.max), lambda c: folded(np.maximum, c, -np.inf)),
    "tensor_reduce min": (summed(np.min), lambda c: folded(np.minimum, c, np.inf)),
    "tensor_reduce subtract": (
        summed(np.subtract),
        lambda c: each_row(c, lambda row: row[0] - row[1:].sum(), 1),
    ),
    "tensor_partition_reduce": (
        across,
        lambda c: kept_of(
            np.max(DATA, axis=0, keepdims=True, where=c, initial=-np.inf),
            c.any(axis=0, keepdims=True),
        ),
    ),
    "nl.sum": (
        lambda t, m: assigned((ROWS, 1), nl.sum(t, axis=1, mask=m)),
        lambda c: folded(np.add, c, 0),
    ),
    "max8": (
        lambda t, m: assigned((ROWS, 8), nisa.max8(src=t, mask=m)),
        lambda c: each_row(c, lambda row: np.sort(row)[::-1][:8], 8),
    ),
    "nc_match_replace8": (replaced, without_largest),
    "activation_reduce": (
        reduced_activation,
        lambda c: (kept_of(DATA, c), folded(np.add, c, 0)),
    ),
    "tensor_scalar_reduce": (
        reduced_scalar,
        lambda c: (
            kept_of(2 * DATA, c),
            each_row(c, lambda row: (2 * row).sum(), 1),
        ),
    ),
    "select_reduce": (
        selected_reduce,
        lambda c: (kept_of(DATA, c), folded(np.maximum, c, -np.inf)),
    ),
    "range_select": (selected_between, between),
    "affine_select": (
        lambda t, m: assigned(
            (ROWS, COLUMNS), nisa.affine_select(grid()[0] >= grid()[1], t, -1.0, mask=m)
        ),
        lambda c: kept_of(np.where(P >= X, DATA, -1), c),
    ),
    "iota": (
        lambda t, m: assigned((ROWS, COLUMNS), nisa.iota(grid()[1] * 2 + 1, nl.int32, mask=m)),
        lambda c: kept_of(X * 2 + 1, c),
    ),
    "tensor_copy_predicated": (copied_where, lambda c: kept_of(DATA, c)),
    "nc_stream_shuffle": (shuffled, lambda c: kept_of(DATA[::-1], c)),
    "tensor_copy_dynamic": (at_an_offset, lambda c: (kept_of(DATA, c), kept_of(DATA, c))),
    "transposes": (turned_on_chip, lambda c: (kept_of(DATA, c).T,) * 3),
    "tensor_tensor_scan": (scanned, running_largest),
}
TOO_FEW = ("max8", "nc_match_replace8")
"""They take 8 elements a partition and more: some of these masks leave a row fewer."""


def run(compute, mask, plain):
    def kernel(tensor):
        results = compute(nl.load(tensor), mask(*grid()))
        return tuple(map(written, results if isinstance(results, tuple) else (results,)))

    return launch(kernel, [DATA], plain=plain).outputs


@every("plain", [False, True])
@every("mask", MASKS)
@every("name", CALLS)
def test_a_mask_keeps_what_the_instruction_makes_of_the_rest_alone(name, mask, plain):
    compute, expected = CALLS[name]
    make, chosen = MASKS[mask]
    counts = chosen.sum(axis=1)
    if name in TOO_FEW and ((counts > 0) & (counts < 8)).any():
        with pytest.raises(NkiError, match="8 to 16384"):
            run(compute, make, plain)
        return
    wanted = expected(chosen)
    results = run(compute, make, plain)
    for got, want in zip(results, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert_array_equal(got, want)


# -- tiles of indices, products, loops -------------------------------------------------------------

FOUR, THREE = nl.arange(4)[:, None], nl.arange(3)[None, :]
TABLE = np.arange(24, dtype=np.float32).reshape(8, 3) + 1


def both(kernel, *arrays):
    """What a kernel returns, the same in both modes."""
    results = [launch(kernel, [a.copy() for a in arrays], plain=plain) for plain in (False, True)]
    for fast, plain in zip(results[0].outputs, results[1].outputs, strict=True):
        assert_array_equal(fast, plain)
    return results[0].outputs


def test_a_masked_load_reads_no_index_that_it_leaves_out():
    """Row 9 is out of bounds, and so is the unwritten index of the last row."""

    def kernel(table):
        places = nl.ndarray((4, 1), nl.int32)
        places[0:3] = nisa.iota(nl.arange(3)[:, None] * 4 + 1, nl.int32)
        tile = nl.zeros((4, 3), nl.float32)
        tile[...] = nl.load(table[places, THREE], mask=FOUR < 2)
        return written(tile)

    (result,) = both(kernel, TABLE)
    assert_array_equal(result, np.vstack([TABLE[[1, 5]], np.zeros((2, 3), np.float32)]))


def test_a_masked_store_and_an_addition_at_indices():
    def kernel(table):
        places = nisa.iota(FOUR * 2, nl.int32)
        out = nl.ndarray((8, 3), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(table))
        ones = nl.ones((4, 3), nl.float32)
        nl.store(out[places, THREE], ones, mask=(FOUR >= 1) & (THREE < 2))
        nl.atomic_rmw(out[places, THREE], ones, op=np.add, mask=FOUR < 1)
        nisa.dma_copy(dst=out[places, THREE], src=nl.zeros((4, 3), nl.float32), mask=THREE > 1)
        return out

    expected = TABLE.copy()
    expected[2::2, :2] = 1
    expected[0] += 1
    expected[::2, 2] = 0
    (result,) = both(kernel, TABLE)
    assert_array_equal(result, expected)


K, M, N = 8, 4, 6
LEFT = np.arange(K * M, dtype=np.float32).reshape(K, M) % 7
RIGHT = np.arange(K * N, dtype=np.float32).reshape(K, N) % 5


@every("function", ["nisa.nc_matmul", "nl.matmul"])
def test_a_products_mask_says_by_its_shape_which_axis_it_limits(function):
    depth, rows, columns = nl.arange(K)[:, None], nl.arange(M)[None, :], nl.arange(N)[None, :]
    of_three = (nl.arange(M)[None, :, None] >= 2) & (nl.arange(N)[None, None, :] < 3)
    masks = {
        "contraction": (depth < 5, np.s_[:5], np.s_[:], np.s_[:]),
        "stationary": (rows < 3, np.s_[:], np.s_[:3], np.s_[:]),
        "moving": (columns >= 2, np.s_[:], np.s_[:], np.s_[2:]),
        "two": ((depth >= 1) & (columns < 4), np.s_[1:], np.s_[:], np.s_[:4]),
        "three": (of_three, np.s_[:], np.s_[2:], np.s_[:3]),
    }
    for mask, k, m, n in masks.values():

        def kernel(left, right, mask=mask):
            x, y = nl.load(left), nl.load(right)
            target = nl.zeros((M, N), nl.float32, buffer=nl.psum)
            if function == "nl.matmul":
                target += nl.matmul(x, y, transpose_x=True, mask=mask)
            else:
                target[...] = nisa.nc_matmul(x, y, mask=mask)
            return written(nl.copy(target))

        expected = np.zeros((M, N), np.float32)
        expected[m, n] = LEFT[k, m].T @ RIGHT[k, n]
        (result,) = both(kernel, LEFT, RIGHT)
        assert_array_equal(result, expected)


def test_accumulation_begins_in_a_new_tile():
    """``psum += nc_matmul`` and ``nl.loop_reduce`` into tiles that nothing has written."""

    def kernel(left, right):
        x, y = nl.load(left), nl.load(right)
        psum = nl.ndarray((M, N), nl.float32, buffer=nl.psum)
        largest = nl.ndarray((K, N), nl.float32)
        for i in nl.affine_range(3):
            psum += nisa.nc_matmul(x, y)
            largest = nl.loop_reduce(y * (i + 1), op=np.maximum, loop_indices=[i])
        return written(nl.copy(psum)), written(largest)

    product, largest = both(kernel, LEFT, RIGHT)
    assert_array_equal(product, 3 * (LEFT.T @ RIGHT))
    assert_array_equal(largest, 3 * RIGHT)


def test_the_first_product_of_a_group_does_not_accumulate():
    def kernel(left, right):
        psum = nl.ndarray((M, N), nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(2):
            psum += nisa.nc_matmul(nl.load(left), nl.load(right))
        return written(nl.copy(psum))

    events = launch(kernel, [LEFT, RIGHT]).trace.events
    products = [event for event in events if event.opcode == "nc_matmul"]
    assert [event.attributes.accumulate for event in products] == [False, True]


def test_a_masked_loop_reduce_leaves_the_rest_of_its_tile_alone():
    def kernel(right):
        y = nl.load(right)
        total = nl.zeros((K, N), nl.float32)
        fresh = nl.ndarray((K, N), nl.float32)
        for i in nl.affine_range(2):
            mask = nl.arange(N)[None, :] < 4
            total = nl.loop_reduce(y, op=np.add, loop_indices=[i], mask=mask)
            fresh = nl.loop_reduce(y, op=np.add, loop_indices=[i], mask=mask)
        kept = nl.zeros((K, N), nl.float32)
        kept[:, 0:4] = nl.copy(fresh[:, 0:4])
        return written(total), written(kept)

    for result in both(kernel, RIGHT):
        assert_array_equal(result, np.where(np.arange(N) < 4, 2 * RIGHT, 0))


def test_a_mask_that_is_a_truth_value_seeds_or_does_not():
    def kernel():
        nl.random_seed(1)
        first = nl.rand((4, 4))
        nl.random_seed(1, mask=False)
        second = nl.rand((4, 4))
        nl.random_seed(1, mask=True)
        return written(first), written(second), written(nl.rand((4, 4)))

    first, second, third = both(kernel)
    assert_array_equal(first, third)
    assert (first != second).any()


def test_what_a_mask_leaves_out_is_not_read():
    """Neither a value outside the function's range, nor what nothing has written."""

    def kernel():
        tile = nl.ndarray((4, 3), nl.float32)
        tile[0:3] = nl.ones((3, 3), nl.float32)
        tile[2] = nl.full((1, 3), -1.0, nl.float32)
        target = nl.zeros((4, 3), nl.float32)
        target[...] = nl.log(tile, mask=(FOUR <= THREE) & (FOUR < 2))
        return written(target)

    assert not both(kernel)[0].any()
