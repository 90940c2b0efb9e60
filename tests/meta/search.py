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


def smallest_failure(spec: KernelSpec, seed: int = 0) -> DifferentialFailure:
    """What Hypothesis shrinks the spec's failure to, within the cases of the ci profile."""

    def check(case):
        case.check()

    drawn = settings(
        max_examples=PROFILES["ci"]["max_examples"],
        phases=[Phase.generate, Phase.shrink],
        database=None,
        deadline=None,
    )
    test = drawn(hypothesis.seed(seed)(decorate(spec, check)))
    with pytest.raises(DifferentialFailure) as caught:
        test(difftest_runner=Runner((EmbeddedSimulator(),)))
    return caught.value
