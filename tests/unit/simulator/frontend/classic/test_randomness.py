"""Random values repeat."""

from __future__ import annotations

from numpy.testing import assert_array_equal

from difftest.simulator.frontend.classic import language as nl
from tests.unit.simulator.on_tiles import normal, on_tiles

DATA = normal(4, 6)


def test_random_values_repeat_with_their_seed():
    def compute(_):
        first = nl.rand((64, 128))
        nl.random_seed(3)
        second = nl.rand((64, 128))
        nl.random_seed(nl.full((1, 1), 3, nl.int32))
        return first, second, nl.rand((64, 128)), nl.rand((64, 128), nl.bfloat16)

    first, second, third, narrow = on_tiles(compute, DATA)
    assert_array_equal(second, third)
    assert (first != second).any()
    assert ((first >= 0) & (first < 1)).all()
    assert abs(first.mean() - 0.5) < 0.02
    assert str(narrow.dtype) == "bfloat16"
    assert_array_equal(first, on_tiles(compute, DATA)[0])
