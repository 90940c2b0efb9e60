"""The search for a failure: drawn cases of a spec on the embedded simulator, then shrinking."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import Phase, settings

from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.decorator import decorate
from difftest.harness.failures import DifferentialFailure
from difftest.harness.runner import Runner
from difftest.harness.spec import KernelSpec
from difftest.plugin.profiles import PROFILES


def first_failure(spec: KernelSpec, seed: int = 0) -> DifferentialFailure:
    """The spec's first failure, within the cases of the quick profile; shrinking takes longer."""
    return _failure(spec, seed, [Phase.generate])


def smallest_failure(spec: KernelSpec, seed: int = 0) -> DifferentialFailure:
    """What Hypothesis shrinks the spec's failure to, within the cases of the quick profile."""
    return _failure(spec, seed, [Phase.generate, Phase.shrink])


def _failure(spec: KernelSpec, seed: int, phases: list[Phase]) -> DifferentialFailure:

    def check(case):
        case.check()

    quick = settings(
        max_examples=PROFILES["quick"]["max_examples"],
        phases=phases,
        database=None,
        deadline=None,
    )
    test = quick(hypothesis.seed(seed)(decorate(spec, check)))
    with pytest.raises(DifferentialFailure) as caught:
        test(difftest_runner=Runner((EmbeddedSimulator(),)))
    return caught.value
