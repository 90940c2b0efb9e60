"""nl.loop_reduce: the tile on the left of its assignment is where it reduces into."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import KernelError, NkiError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.unit.simulator.on_tiles import normal, on_tiles

DATA = normal(4, 3, 5)


def into_a_name(x):
    total = nl.zeros((4, 5), nl.float32)
    for i in nl.affine_range(3):
        total = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i])
    return total


def into_a_tile(x):
    total = nl.zeros((4, 5), nl.float32)
    for i in nl.affine_range(3):
        total[...] = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i], dtype=nl.float32)
    return total


def into_a_part(x):
    total = nl.zeros((4, 2, 5), nl.float32)
    for i in nl.affine_range(3):
        total[:, 1, :] = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=[i])
    return nl.copy(total[:, 1, :])


def into_an_annotated_name(x):
    total = nl.zeros((4, 5), nl.float32)
    for i in nl.affine_range(3):
        total: object = nl.loop_reduce(x[:, i, :], op=np.add, loop_indices=i)
    return total


def over_several_lines(x):
    totals = [nl.zeros((4, 5), nl.float32)]
    for i in nl.affine_range(3):
        totals[0] = nl.loop_reduce(
            x[:, i, :],
            op=np.add,
            loop_indices=[i],
        )
    return totals[0]


FORMS = [into_a_name, into_a_tile, into_a_part, into_an_annotated_name, over_several_lines]


@pytest.mark.parametrize("compute", FORMS, ids=lambda form: form.__name__)
def test_the_destination(compute):
    expected = np.zeros((4, 5), np.float32)
    for i in range(3):
        expected = expected + DATA[:, i]
    assert_array_equal(on_tiles(compute, DATA), expected, strict=True)


def test_the_maximum_over_two_loops():
    def compute(x):
        peak = nl.full((4, 1), -9, nl.float32)
        for i in nl.affine_range(3):
            for j in nl.affine_range(5):
                peak = nl.loop_reduce(x[:, i, j], op=np.max, loop_indices=[i, j])
        return peak

    assert_array_equal(on_tiles(compute, DATA), DATA.max((1, 2))[:, None])


def test_products_reduce_into_sbuf():
    stationary, moving = normal(3, 8, 4), normal(3, 8, 5, seed=1)

    def kernel(a, b):
        total = nl.zeros((4, 5), nl.bfloat16, buffer=nl.sbuf)
        for k in nl.affine_range(3):
            product = nisa.nc_matmul(nl.load(a[k]), nl.load(b[k]))
            total = nl.loop_reduce(product, op=np.add, loop_indices=[k], dtype=nl.bfloat16)
        out = nl.ndarray((4, 5), nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    result = launch(kernel, [stationary, moving]).outputs[0].astype(np.float64)
    assert_allclose(result, np.einsum("kpm,kpn->mn", stationary, moving), rtol=0.05, atol=0.05)
    total = np.zeros((4, 5), ml_dtypes.bfloat16)
    for a, b in zip(stationary, moving, strict=True):
        total = (total.astype(np.float32) + a.T @ b).astype(ml_dtypes.bfloat16)
    assert_allclose(result, total.astype(np.float64), rtol=0.01)


def without_assignment(x):
    nl.loop_reduce(x, op=np.add, loop_indices=[0])


def into_a_new_name(x):
    fresh = nl.loop_reduce(x, op=np.add, loop_indices=[0])
    return nl.copy(fresh)


def into_a_number(x):
    total = 0
    total = nl.loop_reduce(x, op=np.add, loop_indices=[0])
    return nl.copy(total)


@pytest.mark.parametrize("compute", [without_assignment, into_a_new_name, into_a_number])
def test_without_a_destination(compute):
    with pytest.raises(KernelError, match="reduces into the tile on the left of its assignment"):
        on_tiles(compute, DATA[:, 0])


def with_a_mask(x):
    total = nl.zeros((4, 5), nl.float32)
    total = nl.loop_reduce(x, op=np.add, loop_indices=[0], mask=nl.arange(5)[None, :] < 2)
    return nl.copy(total)


def with_another_dtype(x):
    total = nl.zeros((4, 5), nl.float32)
    total = nl.loop_reduce(x, op=np.add, loop_indices=[0], dtype=nl.bfloat16)
    return nl.copy(total)


@pytest.mark.parametrize(
    ("compute", "rule"),
    [(with_a_mask, "takes no mask here"), (with_another_dtype, "its destination's dtype")],
)
def test_what_is_refused(compute, rule):
    with pytest.raises(NkiError, match=rule):
        on_tiles(compute, DATA[:, 0])
