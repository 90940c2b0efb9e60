"""Accesses whose indices lie in a tile, against NumPy's fancy indexing."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import (
    DtypeError,
    KernelError,
    OutOfBoundsError,
    RuleWarning,
    ShapeError,
    launch,
)
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.expressions import arange
from difftest.simulator.frontend.classic.indexing import DynamicIndex
from difftest.simulator.trace import Space
from tests.every import every
from tests.unit.simulator.on_tiles import written
from tests.unit.simulator.stored import stored

TABLE = np.arange(60, dtype=np.float32).reshape(10, 6)


def tile_of(values, dtype=np.int32):
    return stored(np.array(values, dtype), Space.SBUF)


@every("form", ["tile + index", "index + tile"])
def test_an_offset_in_a_tile_plus_an_affine_part(form):
    start = tile_of([[3]])
    rows = 2 * arange(3)[:, None]
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
    assert (
        caught.value.received
        == "indices 4 to 11 on axis 0 of x [8, 6] float32 in shared_hbm"
    )


NUMBERS = np.array([[2, 0, 1]], np.int32)
BESIDE = {  # how a kernel reads, with the number that the tile holds in its place
    "whole axes": (lambda x, n: x[n, :, :], (3, 4, 5)),
    "behind": (lambda x, n: x[:, n], (4, 3)),
    "between": (lambda x, n: x[:, n, 1:5:2], (4, 3, 5)),
    "with ...": (lambda x, n: x[n, ...], (3, 4, 5)),
    "with ... before": (lambda x, n: x[..., n], (4, 5, 3)),
    "fewer indices": (lambda x, n: x[n, 1:3], (3, 4, 5)),
    "beside an integer": (lambda x, n: x[1, n, 0:2, :], (2, 3, 4, 5)),
    "five ranks": (lambda x, n: x[n, :, 0, 1:3, :], (3, 4, 2, 5, 6)),
}


@every("name", BESIDE)
def test_an_element_of_a_tile_beside_slices_names_what_its_number_does(name):
    read, shape = BESIDE[name]
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    def kernel(x, numbers):
        tile = nl.load(numbers)
        results = []
        for column in range(3):
            loaded = nl.load(read(x, tile[0, column]))
            copied = nl.zeros(loaded.shape, nl.float32)
            nisa.dma_copy(dst=copied, src=read(x, tile[0, column]))
            results += [written(loaded), written(copied)]
        return tuple(results)

    for plain in (False, True):
        with pytest.warns(RuleWarning, match="slices and index expressions at once"):
            outputs = launch(kernel, [data, NUMBERS], plain=plain).outputs
        for number, output in zip(np.repeat(NUMBERS[0], 2), outputs, strict=True):
            expected = read(data, int(number))
            np.testing.assert_array_equal(output, expected.reshape(output.shape))
            assert output.ndim == max(expected.ndim, 2)
    with pytest.raises(KernelError, match="do not mix"):
        launch(kernel, [data, NUMBERS], strictness="documented")


@pytest.mark.filterwarnings("ignore:a tensor was indexed with slices")
@every("plain", [False, True])
def test_a_store_to_an_element_beside_slices(plain):
    def kernel(rows, numbers):
        out = nl.ndarray((3, 4, 5), nl.float32, buffer=nl.shared_hbm)
        for page in range(3):
            nl.store(out[page], nl.zeros((4, 5), nl.float32))
        tile = nl.load(numbers)
        nl.store(out[tile[0, 0], :, 1:3], nl.load(rows))
        return out

    rows = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
    expected = np.zeros((3, 4, 5), np.float32)
    expected[2, :, 1:3] = rows
    (result,) = launch(kernel, [rows, NUMBERS], plain=plain).outputs
    np.testing.assert_array_equal(result, expected)


@pytest.mark.filterwarnings("ignore:a tensor was indexed with slices")
@every(
    "key, error",
    [
        (lambda tile: np.s_[tile[0, 0], 0:5], OutOfBoundsError),
        (lambda tile: np.s_[tile[0, 0], 2:2], ShapeError),
        (lambda tile: np.s_[tile, :], KernelError),
        (lambda tile: np.s_[tile[0, 0], :, nl.arange(5)[None, :]], KernelError),
        (lambda tile: np.s_[tile[0, 0], None, :], KernelError),
        (lambda tile: np.s_[tile[0, 0], :, :, :], ShapeError),
    ],
)
def test_a_tile_among_slices_must_be_one_element(key, error):
    def kernel(x, numbers):
        nl.load(x[key(nl.load(numbers))])

    for plain in (False, True):
        with pytest.raises(error):
            launch(kernel, [np.zeros((3, 4, 5), np.float32), NUMBERS], plain=plain)
