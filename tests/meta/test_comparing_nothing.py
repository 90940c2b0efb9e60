"""A harness that checks nothing looks like a right kernel: so to compare nothing is a failure.

``tests/plugin/test_running.py`` shows the same for whole runs of pytest.
"""

import pytest
from hypothesis import Phase, settings

from difftest.backends.base import Ran
from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.decorator import decorate
from difftest.harness.failures import DifferentialFailure, NothingComparedError
from difftest.harness.runner import Runner
from difftest.harness.spec import KernelSpec
from tests.meta import specs
from tests.meta.search import smallest_failure


def kernel(a_vec, b_vec):
    """Returns nothing."""


def test_a_kernel_and_a_reference_that_return_nothing():
    spec = KernelSpec(
        kernel=kernel,
        reference=lambda a_vec, b_vec: (),
        domain={"n": (1, 2)},
        inputs={"a_vec": "n", "b_vec": "n"},
    )
    failure = smallest_failure(spec)
    assert failure.verdicts["embedded"].kind == "empty"
    assert "no element was compared: the outputs are empty" in str(failure)


def test_a_kernel_that_returns_nothing():
    failure = smallest_failure(specs.naive(kernel))
    assert failure.verdicts["embedded"].kind == "outputs"
    assert "the kernel returned 0 outputs, the reference 1" in str(failure)


class Idle:
    """A backend that runs nothing."""

    name = description = "idle"

    def run(self, call):
        return Ran(())


def test_a_backend_that_runs_nothing():
    with pytest.raises(DifferentialFailure, match="the kernel returned 0 outputs"):
        run_one_case(lambda case: case.check(), Idle())


def test_a_test_that_checks_nothing():
    with pytest.raises(NothingComparedError, match=r"must call case\.check\(\)"):
        run_one_case(lambda case: None, EmbeddedSimulator())


def test_a_test_without_a_backend():
    with pytest.raises(NothingComparedError, match="compared nothing"):
        run_one_case(lambda case: case.check())


def run_one_case(function, *backends):
    once = settings(max_examples=1, phases=[Phase.generate], database=None)
    test = once(decorate(specs.naive(kernel), function))
    test(difftest_runner=Runner(backends))
