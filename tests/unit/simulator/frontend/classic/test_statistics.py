"""Means, variances and softmax against NumPy's."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

A = normal(6, 4, 5)


@every("axis", [1, 2, (1, 2), -1])
def test_mean_along_axes(axis):
    result = on_tiles(lambda x: nl.mean(x, axis=axis), A)
    wanted = A.astype(np.float64).mean(axis)
    assert_allclose(result, wanted.reshape(result.shape), rtol=1e-5, atol=1e-7)
    kept = on_tiles(lambda x: nl.mean(x, axis=axis, keepdims=True), A)
    assert kept.shape == A.mean(axis, keepdims=True).shape


def test_var_and_softmax_along_axes():
    var, softmax, narrow = on_tiles(
        lambda x: (
            nl.var(x, axis=[1, 2]),
            nl.softmax(x, axis=[1, 2]),
            nl.softmax(x, axis=-1, dtype=nl.bfloat16),
        ),
        A,
    )
    wide = A.astype(np.float64)
    assert_allclose(var[:, 0], wide.var((1, 2)), rtol=1e-5)
    shares = np.exp(wide)
    assert_allclose(softmax, shares / shares.sum((1, 2), keepdims=True), rtol=1e-5)
    assert_allclose(narrow.astype(np.float64), shares / shares.sum(2, keepdims=True), rtol=4e-3)


def test_softmax_of_large_values():
    result = on_tiles(lambda x: nl.softmax(x, axis=1), np.array([[1000, 1000, -1000]], np.float32))
    assert result.tolist() == [[0.5, 0.5, 0]]
