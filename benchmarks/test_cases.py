"""Cases a second of each Part 1 spec: data, reference, simulation and comparison."""

import importlib

import hypothesis
import pytest
from hypothesis import Phase, given, settings

from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.runner import Runner
from difftest.harness.strategies import cases

CASES = 40
TESTS = {
    "vector_add_naive": ("test_vector_add", "test_vector_add_naive"),
    "vector_add_tiled": ("test_vector_add", "test_vector_add_tiled"),
    "vector_add_stream": ("test_vector_add", "test_vector_add_stream"),
    "matrix_transpose": ("test_transpose", "test_matrix_transpose"),
    "nki_matmul_tiled_": ("test_matmul", "test_nki_matmul_tiled"),
}


def drawn_cases(spec):
    """The same cases each time."""
    drawn = []

    @hypothesis.seed(0)
    @settings(max_examples=CASES, phases=[Phase.generate], database=None, deadline=None)
    @given(cases(spec))
    def draw(case):
        drawn.append(case)

    draw()
    return drawn[:CASES]


@pytest.mark.benchmark(group="cases")
@pytest.mark.parametrize("name", TESTS)
def test_cases(benchmark, name):
    module, test = TESTS[name]
    spec = getattr(importlib.import_module(f"tests.kernels.{module}"), test).difftest.spec
    runner = Runner((EmbeddedSimulator(),))
    drawn = drawn_cases(spec)
    position = 0

    def one_case():
        nonlocal position
        runner.check(spec, drawn[position % len(drawn)])
        position += 1

    benchmark.pedantic(one_case, rounds=len(drawn), warmup_rounds=1)
