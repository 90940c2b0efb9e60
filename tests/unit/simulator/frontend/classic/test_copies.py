"""Copies and views."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from difftest.simulator import launch
from difftest.simulator.frontend.classic import language as nl
from tests.unit.simulator.on_tiles import normal, on_tiles

A = normal(6, 4, 5)


def test_views():
    def compute(x):
        whole = nl.broadcast_to(x[0:1, 0, :], shape=(6, 5))
        same = nl.broadcast_to(x, shape=(6, 4, 5))
        assert same is x
        lines = nl.expand_dims(x[:, 0, :], 2)
        both = nl.expand_dims(x[:, 0, :], [1, 3])
        last = nl.expand_dims(x[:, 0, :], -1)
        view = x.broadcast_to((6, 4, 5))
        free = x[:, :, 0:1].broadcast_to((6, 4, 3))
        assert [t.shape for t in (lines, both, last)] == [(6, 5, 1), (6, 1, 5, 1), (6, 5, 1)]
        return whole, nl.copy(lines), nl.copy(both), nl.copy(view), nl.add(free, 0.0)

    whole, lines, both, view, free = on_tiles(compute, A)
    assert_array_equal(whole, np.repeat(A[:1, 0], 6, axis=0))
    assert_array_equal(lines, A[:, 0, :, None])
    assert_array_equal(both, A[:, 0][:, None, :, None])
    assert_array_equal(view, A)
    assert_array_equal(free, np.repeat(A[:, :, :1], 3, axis=2))


def test_reshape_of_a_tile_is_a_view():
    def compute(x):
        flat = x.reshape((6, 20))
        flat[:, 0:5] = nl.zeros((6, 5), nl.float32)
        return x

    expected = A.copy()
    expected[:, 0] = 0
    assert_array_equal(on_tiles(compute, A), expected)


def test_reshape_of_hbm_is_a_view():
    def kernel(x):
        out = nl.ndarray((30, 4), nl.float32, buffer=nl.shared_hbm)
        turned = out.reshape((6, 5, 4))
        for i in range(5):
            nl.store(turned[:, i], nl.load(x.reshape((6, 4, 5))[:, :, i]))
        return out

    result = launch(kernel, [A.reshape(120)])
    assert_array_equal(result.outputs[0], A.transpose(0, 2, 1).reshape(30, 4))
    assert result.unwritten == (None,)


def test_a_view_of_hbm_as_another_dtype():
    def kernel(x):
        out = nl.ndarray(x.shape, nl.uint32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x.view(nl.uint32)))
        return out

    assert_array_equal(launch(kernel, [A]).outputs[0], A.view(np.uint32), strict=True)
