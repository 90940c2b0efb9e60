"""``tile[mask]``: masks between the brackets of a product's operands, also with a perf_mode.

Source: ``nki.api.shared.rst`` at tag v2.26.0, "NKI API Masking", operand masking.
"""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, OutOfBoundsError, RuleWarning, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import written

K = 8
M = 4
N = 6
LEFT = np.arange(K * M, dtype=np.float32).reshape(K, M) % 7
RIGHT = np.arange(K * N, dtype=np.float32).reshape(K, N) % 5


def in_both_modes(kernel, *arrays):
    fast, plain = (
        launch(kernel, arrays, plain=plain).outputs[0] for plain in (False, True)
    )
    assert_array_equal(fast, plain)
    return fast


NOTHING = np.s_[:]
OPERAND_MASKS = {  # name: masks of the stationary and the moving operand, and kept elements
    "contraction": (lambda k, m: k < 5, None, np.s_[:5], NOTHING, NOTHING),
    "stationary": (lambda k, m: m <= 2, None, NOTHING, np.s_[:3], NOTHING),
    "moving": (None, lambda k, n: n >= 2, NOTHING, NOTHING, np.s_[2:]),
    "both": (
        lambda k, m: (m < 3) & (k < 6),
        lambda k, n: (k > 1) & (n < 4),
        np.s_[2:6],
        np.s_[:3],
        np.s_[:4],
    ),
    "all": (lambda k, m: m < M, lambda k, n: n < N, NOTHING, NOTHING, NOTHING),
}


@every("function", ["nisa.nc_matmul", "nl.matmul", "transposed"])
@every("limited", OPERAND_MASKS)
def test_a_mask_between_a_products_operands_brackets(limited, function):
    """``nl.matmul(lhs_T[i_lhs_f <= 64], rhs[i_rhs_f <= 256], transpose_x=True)``, as AWS has it."""
    of_left, of_right, k, m, n = OPERAND_MASKS[limited]

    def kernel(left, right):
        x = nl.load(left)
        y = nl.load(right)
        depth = nl.arange(K)[:, None]
        rows = nl.arange(M)[None, :]
        if function == "transposed":
            depth = nl.arange(K)[None, :]
            rows = nl.arange(M)[:, None]
            x = nl.load(left[depth, rows])
        if of_left:
            x = x[of_left(depth, rows)]
        if of_right:
            y = y[of_right(nl.arange(K)[:, None], nl.arange(N)[None, :])]
        target = nl.zeros((M, N), nl.float32, buffer=nl.psum)
        if function == "nisa.nc_matmul":
            target[...] = nisa.nc_matmul(x, y)
        else:
            target += nl.matmul(x, y, transpose_x=function == "nl.matmul")
        return written(nl.copy(target))

    expected = np.zeros((M, N), np.float32)
    expected[m, n] = LEFT[k, m].T @ RIGHT[k, n]
    result = in_both_modes(kernel, LEFT, RIGHT)
    assert_array_equal(result, expected)


@every("columns", [N - 2, N - 1, N])
@every("begun", [False, True])
def test_a_masked_product_is_added_to_a_tile_that_ends_before_it(begun, columns):
    """The target leaves its tensor where the mask left the product out, and nowhere else."""

    def kernel(left, right):
        shape = (nl.par_dim(M), N - 1)
        total = nl.ndarray(shape, nl.float32, buffer=nl.psum)
        if begun:
            total[...] = nl.zeros((M, N - 1), nl.float32)
        n = nl.arange(N)[None, :]
        for _ in range(2):
            y = nl.load(right)[nl.arange(K)[:, None], n][n < columns]
            total[nl.arange(M)[:, None], n] += nisa.nc_matmul(nl.load(left), y)
        return written(nl.copy(total[:, 0 : N - 2]))

    if columns == N:
        with pytest.raises(OutOfBoundsError, match=f"index {N - 1} of {N - 1}"):
            launch(kernel, [LEFT, RIGHT])
        return
    expected = 2 * (LEFT.T @ RIGHT)[:, : N - 2]
    assert_array_equal(in_both_modes(kernel, LEFT, RIGHT), expected)
    (output,) = launch(kernel, [LEFT, RIGHT], exact=True).exact.outputs
    assert_array_equal(output.value, expected)


HALVES = np.arange(K * 2 * M, dtype=np.float32).reshape(K, 2, M) % 5 / 4
OTHERS = np.arange(K * 2 * N, dtype=np.float32).reshape(K, 2, N) % 3 / 4


@every("spelled", ["mask", "brackets"])
def test_masks_beside_a_perf_mode(spelled):
    def kernel(left, right):
        x = nl.load(left, dtype=nl.float8_e4m3)
        y = nl.load(right, dtype=nl.float8_e4m3)
        target = nl.zeros((M, N), nl.float32, buffer=nl.psum)
        k = nl.arange(K)[:, None, None]
        m = nl.arange(M)[None, :, None]
        mask = (k < 5) & (m > 0) & (nl.arange(N)[None, None, :] < 4)
        if spelled == "brackets":
            mask = None
            x = x[(k < 5) & (nl.arange(M)[None, None, :] > 0)]
            y = y[nl.arange(N)[None, None, :] < 4]
        target += nisa.nc_matmul(x, y, mask=mask, perf_mode="double_row_gen3")
        return written(nl.copy(target))

    expected = np.zeros((M, N), np.float32)
    expected[1:, :4] = np.einsum("kpm,kpn->mn", HALVES[:5, :, 1:], OTHERS[:5, :, :4])
    with pytest.warns(RuleWarning, match="perf_mode"):
        result = in_both_modes(kernel, HALVES, OTHERS)
    assert_array_equal(result, expected)


def of_one_row(x):
    tile = nl.load(x, dtype=nl.float8_e4m3)
    masked = tile[nl.arange(2)[None, :, None] < 1]
    nisa.nc_matmul(masked, tile, perf_mode="double_row_gen3")


def of_a_triangle(x):
    tile = nl.load(x)[:, 0]
    nisa.nc_matmul(tile[nl.arange(K)[:, None] <= nl.arange(M)[None, :]], tile)


def of_another_shape(x):
    tile = nl.load(x)[:, 0]
    nisa.nc_matmul(tile[nl.arange(M + 1)[None, :] < 2], tile)


def assigned(x):
    tile = nl.load(x)[:, 0]
    tile[nl.arange(K)[:, None] < 2] = 0.0


def of_another_function(x):
    tile = nl.load(x)[:, 0]
    nl.exp(tile[nl.arange(K)[:, None] < 2])


def loaded(x):
    nl.load(x[nl.arange(K)[:, None, None] < 2])


@pytest.mark.filterwarnings("ignore::difftest.simulator.RuleWarning")
@every("plain", [False, True])
@every(
    "kernel, text",
    [
        (of_one_row, "both rows|one of the two rows"),
        (of_a_triangle, "is a box"),
        (of_another_shape, "broadcasts? to"),
        (assigned, "assign"),
        (of_another_function, "tile as x"),
        (loaded, "takes src|tile as src"),
    ],
)
def test_a_masked_operand_is_no_ordinary_tile(kernel, text, plain):
    with pytest.raises(NkiError) as caught:
        launch(kernel, [HALVES], plain=plain, strictness="relaxed")
    assert re.search(text, str(caught.value))
