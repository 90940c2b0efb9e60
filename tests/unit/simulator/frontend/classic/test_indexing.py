"""Accesses whose indices lie in a tile, against NumPy's fancy indexing."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import DtypeError, OutOfBoundsError, launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.expressions import arange
from difftest.simulator.frontend.classic.indexing import DynamicIndex
from difftest.simulator.trace import Space
from tests.every import every
from tests.unit.simulator.stored import stored

TABLE = np.arange(60, dtype=np.float32).reshape(10, 6)


def tile_of(values, dtype=np.int32):
    return stored(np.array(values, dtype), Space.SBUF)


@every("form", ["tile + index", "index + tile"])
def test_an_offset_in_a_tile_plus_an_affine_part(form):
    start, rows = tile_of([[3]]), 2 * arange(3)[:, None]
    item = start + rows if form == "tile + index" else rows + start
    assert isinstance(item, DynamicIndex)
    access = stored(TABLE)[item, arange(6)[None, :]]
    access._resolve(skip=False)
    assert_array_equal(access._elements(), TABLE[3:9:2])


def test_indices_are_integers():
    access = stored(TABLE)[tile_of([[3.0]], np.float32), arange(6)[None, :]]
    with pytest.raises(DtypeError, match="a tile of indices holds integers"):
        access._resolve(skip=False)


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
