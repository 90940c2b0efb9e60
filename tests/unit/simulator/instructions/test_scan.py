from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

A, B, START = normal(4, 9), normal(4, 9, seed=1), normal(4, 1, seed=2)


def scanned(a, b, start, op0, op1, reverse0=False, reverse1=False):
    """The documentation's definition, column by column."""
    state, columns = start, []
    for k in range(a.shape[1]):
        left, right = (state, a[:, k]) if reverse0 else (a[:, k], state)
        partial = op0(left, right)
        left, right = (b[:, k], partial) if reverse1 else (partial, b[:, k])
        state = op1(left, right)
        columns.append(state)
    return np.stack(columns, axis=1)


def test_the_state_is_not_rounded():
    a, b = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    result = on_tiles(lambda x, y: nisa.tensor_tensor_scan(x, y, 0, np.multiply, np.add), a, b)
    wide = scanned(a.astype(np.float32), b.astype(np.float32), np.float32(0), np.multiply, np.add)
    assert_array_equal(result, wide.astype(ml_dtypes.bfloat16), strict=True)
    state, rounded = np.zeros(4, ml_dtypes.bfloat16), []
    for k in range(9):
        state = (a[:, k].astype(np.float32) * state + b[:, k]).astype(ml_dtypes.bfloat16)
        rounded.append(state)
    assert (np.stack(rounded, 1) != result).any()


def test_statistics():
    """Even and odd elements apart, then together; slices of any length aggregate."""
    data = normal(4, 700) + 3
    whole, parts = on_tiles(_statistics, data)
    assert_allclose(whole[:, 0], 256)
    assert_allclose(whole[:, 1], data[:, 0:512:2].mean(1), rtol=1e-5)
    assert_allclose(whole[:, 2], data[:, 0:512:2].var(1) * 256, rtol=1e-4)
    assert_allclose(whole[:, 3], 256)
    assert_allclose(whole[:, 4], data[:, 1:512:2].mean(1), rtol=1e-5)
    assert_allclose(whole[:, 5], data[:, 1:512:2].var(1) * 256, rtol=1e-4)
    assert_allclose(parts, np.stack([data.mean(1), data.var(1)], 1), rtol=1e-5)


def _statistics(x):
    stats = nl.ndarray((4, 12), nl.float32)
    stats[:, 0:6] = nisa.bn_stats(x[:, 0:512])
    stats[:, 6:12] = nisa.bn_stats(x[:, 512:700])
    return nisa.bn_stats(x[:, 0:512]), nisa.bn_aggr(stats)


@every("probability", [0.0, 1.0])
def test_dropout_of_nothing_and_of_everything(probability):
    result = on_tiles(lambda x: nisa.dropout(x, probability), A)
    assert_array_equal(result, A * (1 - probability))


def test_dropout_keeps_about_its_share_and_repeats_itself():
    ones = np.ones((64, 256), np.float32)
    column = np.linspace(0, 1, 64, dtype=np.float32)[:, None]
    first, second = (on_tiles(nisa.dropout, ones, column) for _ in range(2))
    assert_array_equal(first, second)
    assert set(np.unique(first)) == {0, 1}
    assert abs(first.mean(1) - (1 - column[:, 0])).max() < 0.15
    seeded = on_tiles(lambda x, p: (nl.random_seed(7), nisa.dropout(x, p))[1], ones, column)
    assert (seeded != first).any()
