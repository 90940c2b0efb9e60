"""Iterations of ``affine_range`` that touch elements through indices and masks."""

import numpy as np
import pytest

from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.unit.analysis.detectors.kernels import found_in, normal, output

COLUMNS = 128


def by_way_of(scratch_row, chosen):
    """Each iteration stores 4 rows to scratch in HBM and reads them back, by indices or a mask."""

    def kernel(a, places):
        out = output(a)
        scratch = nl.ndarray((16, COLUMNS), dtype=a.dtype, buffer=nl.hbm)
        line = nl.arange(4)[:, None]
        column = nl.arange(COLUMNS)[None, :]
        for i in nl.affine_range(2):
            mine = a[4 * i + line, column]
            if chosen == "indices":
                held = nl.load(places)
                at = nl.add(held, scratch_row(i), dtype=nl.int32)
                nl.store(scratch[at, column], nl.load(mine))
                nl.store(out[4 * i + line, column], nl.load(scratch[at, column]))
            else:
                mask = column >= line
                into = scratch[scratch_row(i) + line, column]
                tile = nl.zeros((4, COLUMNS), a.dtype)
                nl.store(into, nl.load(mine), mask=mask)
                tile[...] = nl.load(into, mask=mask)
                nl.store(out[4 * i + line, column], tile)
        return out

    return kernel


@pytest.mark.parametrize("chosen", ["indices", "mask"])
def test_scratch_that_each_iteration_fills_and_reads_back_in_part(chosen):
    """In order, and in any other serial order, each iteration reads its own write."""
    arrays = [normal(8, COLUMNS), np.int32([[0], [2], [1], [3]])]
    shared = by_way_of(lambda i: 0, chosen)
    own = by_way_of(lambda i: 4 * i, chosen)
    assert found_in(shared, arrays) == [("affine-rewritten", "error")]
    assert found_in(own, arrays) == []


def test_an_interleaved_mask_gives_each_iteration_elements_of_its_own():
    def kernel(a):
        out = output(a)
        scratch = nl.ndarray((4, COLUMNS), dtype=a.dtype, buffer=nl.hbm)
        line = nl.arange(4)[:, None]
        column = nl.arange(COLUMNS)[None, :]
        for i in nl.affine_range(2):
            mask = column >= line if i else column < line
            nl.store(scratch[line, column], nl.load(a), mask=mask)
            nl.store(
                out[line, column], nl.load(scratch[line, column], mask=mask), mask=mask
            )
        return out

    assert found_in(kernel, [normal(4, COLUMNS)]) == []


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([0, 2, 4, 6, 1, 3, 5, 6], [("affine-carried", "error")]),
        ([0, 2, 4, 6, 1, 3, 5, 7], []),
    ],
    ids=["one-row-by-two", "rows-apart"],
)
def test_rows_that_are_read_changed_and_written_by_indices(rows, found):
    def kernel(table, places):
        column = nl.arange(COLUMNS)[None, :]
        for i in nl.affine_range(2):
            at = nl.load(places[i])
            nl.store(table[at, column], nl.add(nl.load(table[at, column]), 1.0))
        return table

    arrays = [normal(8, COLUMNS), np.int32(rows).reshape(2, 4, 1)]
    assert found_in(kernel, arrays) == found


@pytest.mark.parametrize(
    "begun", [nl.zeros, nl.ndarray], ids=["on-zeros", "on-a-new-tensor"]
)
def test_loop_reduce_is_made_to_go_on_from_iteration_to_iteration(begun):
    def kernel(reduces):
        def body(a):
            out = nl.ndarray((4, 2), dtype=a.dtype, buffer=nl.shared_hbm)
            total = begun((4, 2), dtype=a.dtype, buffer=nl.sbuf)
            for i in nl.affine_range(4):
                tile = nl.load(a[:, nl.ds(2 * i, 2)])
                if reduces:
                    total[...] = nl.loop_reduce(tile, op=np.max, loop_indices=[i])
                else:
                    total[...] = nl.subtract(tile, tile if i == 0 else total)
            nl.store(out, total)
            return out

        return body

    assert found_in(kernel(reduces=True), [normal(4, 8)]) == []
    assert found_in(kernel(reduces=False), [normal(4, 8)]) == [
        ("affine-carried", "error")
    ]


@pytest.mark.parametrize(
    ("left", "found"),
    [(1, []), (2, [("affine-written-twice", "error")])],
    ids=["one", "both"],
)
def test_products_with_a_mask(left, found):
    """A sum on a new tensor in PSUM begins with the first product that there is."""

    def kernel(a):
        out = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(a)
        row = nl.arange(16)[:, None]
        for _ in nl.sequential_range(1):
            total = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
            for i in nl.affine_range(2):
                made = nisa.nc_matmul(tile, tile, mask=row >= 16 * (2 - left) * (1 - i))
                if left == 1:
                    total += made
                else:
                    total[...] = nl.copy(made)
            nl.store(out, nl.copy(total))
        return out

    assert found_in(kernel, [normal(16, 16)]) == found
