"""Accesses whose indices lie in a tile, against NumPy's fancy indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from difftest.simulator import DtypeError, OutOfBoundsError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.expressions import arange
from difftest.simulator.frontend.classic.indexing import DynamicIndex
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.trace import Space
from tests.every import every
from tests.unit.simulator.stored import stored

TABLE = np.arange(60, dtype=np.float32).reshape(10, 6)


def tile_of(values, dtype=np.int32):
    return stored(np.array(values, dtype), Space.SBUF)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 2))
def test_rows_named_by_a_column(rows, step, start):
    index = tile_of([[row] for row in rows])
    columns = start + step * np.arange((6 - start + step - 1) // step)
    access = stored(TABLE)[index, start + step * arange(len(columns))[None, :]]
    assert isinstance(access, IndirectTile)
    _, inside = access._resolve(skip=False)
    assert inside.all()
    assert_array_equal(access._elements(), TABLE[np.array(rows)[:, None], columns])
    assert access.shape == (len(rows), len(columns))


@given(st.lists(st.integers(-3, 12), min_size=1, max_size=8))
def test_what_leaves_the_tensor(rows):
    access = stored(TABLE)[tile_of([[row] for row in rows]), arange(6)[None, :]]
    wrong = [k for k, row in enumerate(rows) if not 0 <= row < 10]
    _, inside = access._resolve(skip=True)
    assert_array_equal(inside, np.repeat([[0 <= row < 10] for row in rows], 6, axis=1))
    if wrong:
        with pytest.raises(OutOfBoundsError) as caught:
            access._resolve(skip=False)
        assert caught.value.received == (
            f"index [{rows[wrong[0]]}, 0] into t [10, 6] float32 in shared_hbm, "
            f"at element [{wrong[0]}, 0]"
        )
        assert caught.value.limit == "[9, 5]"


@every("form", ["tile + index", "index + tile"])
def test_an_offset_in_a_tile_plus_an_affine_part(form):
    start, rows = tile_of([[3]]), 2 * arange(3)[:, None]
    item = start + rows if form == "tile + index" else rows + start
    assert isinstance(item, DynamicIndex)
    access = stored(TABLE)[item, arange(6)[None, :]]
    access._resolve(skip=False)
    assert_array_equal(access._elements(), TABLE[3:9:2])


def test_integers_beside_a_tile_of_indices():
    block = np.arange(120, dtype=np.float32).reshape(2, 10, 6)
    access = stored(block)[1, tile_of([[4], [2]]), arange(6)[None, :]]
    access._resolve(skip=False)
    assert_array_equal(access._elements(), block[1, [4, 2]])


def test_the_tiles_of_indices_are_read_too():
    index, offset = tile_of([[3]]), tile_of([[1]])
    access = stored(TABLE)[index + arange(3)[:, None], offset]
    assert access._index_tiles == (index, offset)
    assert all(isinstance(tile, Tensor) for tile in access._index_tiles)
    assert repr(access) == "t [10, 6] float32 in shared_hbm indexed by a tile, shape [3, 1]"
    assert access.size == 3


def test_indices_are_integers():
    access = stored(TABLE)[tile_of([[3.0]], np.float32), arange(6)[None, :]]
    with pytest.raises(DtypeError, match="a tile of indices holds integers"):
        access._resolve(skip=False)


def test_rows_that_were_never_written():
    table = stored(TABLE, written=False)
    table[0:5]._mark()
    for rows, missing in (([[4]], 0), ([[4], [5]], 6)):
        access = table[tile_of(rows), arange(6)[None, :]]
        access._resolve(skip=False)
        unwritten = access._unwritten()
        assert (0 if unwritten is None else unwritten.sum()) == missing


def test_a_scatter_marks_what_it_writes():
    table = stored(TABLE, written=False)
    access = table[tile_of([[4], [11], [2]]), 2 * arange(3)[None, :]]
    access._resolve(skip=True)
    access._mark()
    expected = np.zeros((10, 6), bool)
    expected[[2, 4], ::2] = True
    assert_array_equal(~table._unwritten(), expected)


@every("direction", ["gather", "scatter"])
def test_a_part_that_leaves_its_tensor_is_not_indexed_by_a_tile(direction):
    """The part's own bounds hold before its indices do."""

    def kernel(x, rows):
        place = nl.load(rows)
        part = x[4:12][place[nl.arange(3)[:, None], 0], nl.arange(6)[None, :]]
        if direction == "gather":
            nl.load(part)
        else:
            nl.store(part, 0.0)

    rows = np.array([[0], [6], [1]], np.int32)
    with pytest.raises(OutOfBoundsError) as caught:
        launch(kernel, [np.ones((8, 6), np.float32), rows])
    assert caught.value.received == "indices 4 to 11 on axis 0 of x [8, 6] float32 in shared_hbm"


def test_a_gather_stays_inside_its_destination():
    def kernel(x, rows):
        tile = nl.ndarray((8, 6), nl.float32)
        p, f = nl.arange(3)[:, None], nl.arange(6)[None, :]
        nisa.dma_copy(dst=tile[6 + p, f], src=x[nl.load(rows)[p, 0], f])

    with pytest.raises(OutOfBoundsError, match="indices 6 to 8 on axis 0"):
        launch(kernel, [np.ones((8, 6), np.float32), np.zeros((3, 1), np.int32)])
