"""A case with and without its exact run: reference, simulation and comparison on small shapes."""

import contextlib
import dataclasses

import pytest

from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from tests.meta.campaign import drawn
from tests.meta.operators import OPERATORS

CASES = 25


@pytest.mark.parametrize("exact", [False, True], ids=["machine", "exact run"])
@pytest.mark.parametrize("name", OPERATORS)
def test_exact(benchmark, name, exact):
    """Without an exact run the reference is called for its magnitudes too, as it always was.

    Verdicts do not count: without the exact run many of these cases are red.
    """
    benchmark.group = f"exact: {name}"
    operator = OPERATORS[name]
    spec = dataclasses.replace(operator.spec(), exact=exact)
    runner = Runner((EmbeddedSimulator(),))
    found = drawn(spec, CASES)
    position = 0

    def one_case():
        nonlocal position
        with contextlib.suppress(DifferentialFailure):
            runner.check(spec, found[position % len(found)])
        position += 1

    benchmark.pedantic(one_case, rounds=len(found), warmup_rounds=3)
