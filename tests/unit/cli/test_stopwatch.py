import tracemalloc

import numpy as np
import pytest

from difftest.cli.bench import measure_call


def test_every_run_is_counted_and_timed():
    calls = []
    measurement = measure_call(lambda: calls.append(len(calls)))
    # One run for memory, then rounds of 1, 2, 5, 10, ... runs; the last round counts.
    assert len(calls) > measurement.runs >= 1
    assert measurement.seconds > 0


def test_memory_is_the_most_held_at_once():
    held = 2**20

    def twice():
        for _ in range(2):
            np.empty(held, np.uint8)

    measurement = measure_call(twice)
    assert held <= measurement.peak_bytes < 2 * held


def test_an_error_in_the_function_leaves_no_tracing_behind():
    with pytest.raises(ZeroDivisionError):
        measure_call(lambda: 1 // 0)
    assert not tracemalloc.is_tracing()
