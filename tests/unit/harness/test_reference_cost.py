import tracemalloc

import numpy as np

from difftest.harness.reference_cost import MOST_BYTES, MOST_SECONDS, foreseen, measured
from tests.every import every


def test_the_memory_of_an_array_is_measured():
    assert 8_000_000 <= measured(lambda: np.ones(1_000_000)).bytes < 8_100_000


def test_a_square_matrix_is_foreseen_and_not_made():
    cost = foreseen(lambda n: lambda: np.ones((n, n)), 53_248, 1)
    assert MOST_BYTES < cost.bytes < 2 * 8 * 53_248**2
    assert not cost.is_bearable
    assert "GiB" in str(cost)


def test_nested_loops_are_foreseen():
    def loops(n):
        return lambda: sum(0 for _ in range(n) for _ in range(n))

    cost = foreseen(loops, 10**6, 1)
    assert cost.seconds > MOST_SECONDS
    assert not cost.is_bearable
    assert str(cost).endswith(" s")


@every("step", [1, 128, 1000])
def test_a_vector_is_bearable(step):
    sizes = []

    def vector(n):
        sizes.append(n)
        return lambda: np.ones(n)

    cost = foreseen(vector, 1000 * step, step)
    assert cost.is_bearable
    assert len(set(sizes)) == 2
    assert all(size % step == 0 for size in sizes)
    assert 1000 * step < cost.bytes < 16 * 1000 * step


def test_a_small_call_is_not_tried_first():
    assert foreseen(lambda n: lambda: 1 / 0, 200, 1).is_bearable


def test_a_program_that_traces_its_memory_goes_on_tracing():
    tracemalloc.start()
    try:
        assert 8_000_000 <= measured(lambda: np.ones(1_000_000)).bytes < 8_100_000
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
