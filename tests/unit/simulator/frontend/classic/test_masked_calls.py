"""A mask on every function that takes one: it keeps NumPy's result for the kept elements.

"All APIs accept an optional mask" (AWS ``nki.api.shared.rst`` at tag v2.26.0). Each call runs in
both modes, under boxes, a triangle, plain truth values, and a mask that keeps nothing.
"""

import numpy as np
from numpy.testing import assert_array_equal

from difftest.simulator import launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import written

ROWS = 32
COLUMNS = 16
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


# -- tiles of indices, products, loops -------------------------------------------------------------

FOUR = nl.arange(4)[:, None]
THREE = nl.arange(3)[None, :]
TABLE = np.arange(24, dtype=np.float32).reshape(8, 3) + 1


def both(kernel, *arrays):
    """Return a kernel's outputs, equal in both modes."""
    results = [
        launch(kernel, [a.copy() for a in arrays], plain=plain)
        for plain in (False, True)
    ]
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


K = 8
M = 4
N = 6
LEFT = np.arange(K * M, dtype=np.float32).reshape(K, M) % 7
RIGHT = np.arange(K * N, dtype=np.float32).reshape(K, N) % 5


@every("function", ["nisa.nc_matmul", "nl.matmul"])
def test_a_products_mask_says_by_its_shape_which_axis_it_limits(function):
    depth = nl.arange(K)[:, None]
    rows = nl.arange(M)[None, :]
    columns = nl.arange(N)[None, :]
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
            x = nl.load(left)
            y = nl.load(right)
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


def test_masked_out_elements_are_not_read():
    """Neither a value outside the function's range, nor what nothing has written."""

    def kernel():
        tile = nl.ndarray((4, 3), nl.float32)
        tile[0:3] = nl.ones((3, 3), nl.float32)
        tile[2] = nl.full((1, 3), -1.0, nl.float32)
        target = nl.zeros((4, 3), nl.float32)
        target[...] = nl.log(tile, mask=(FOUR <= THREE) & (FOUR < 2))
        return written(target)

    assert not both(kernel)[0].any()


def test_a_masked_call_that_makes_a_tile_is_not_like_one_into_a_tile():
    """The second is exact for integers that float32 has not, the first rounds them."""

    def kernel(x):
        tile = nl.load(x)
        i_p = nl.arange(4)[:, None]
        total = nl.zeros((4, 3), nl.int32)
        for i in nl.affine_range(2):
            total = nl.loop_reduce(tile, op=np.max, loop_indices=[i], mask=i_p <= THREE)
        part = tile[:, 0:2]
        two = nl.arange(2)[None, :]
        made = nl.maximum(part, part, mask=i_p <= two)
        return written(total[0:1, 0:1]), written(made[0:1, 0:1])

    exact, rounded = both(kernel, np.full((4, 3), 2**24 + 1, np.int32))
    assert (exact, rounded) == (2**24 + 1, 2**24)
