"""The search for a failure: drawn cases of a spec on the embedded simulator, then shrinking."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import Phase, settings

from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.profiles import PROFILES
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Verdict


def smallest_failure(spec: KernelSpec, seed: int = 0) -> DifferentialFailure:
    """Return the failure that Hypothesis shrinks to, within the cases of the ci profile."""
    with pytest.raises(DifferentialFailure) as caught:
        _search(
            spec, seed, PROFILES["ci"]["max_examples"], Phase.generate, Phase.shrink
        )
    return caught.value


def judged(spec: KernelSpec, seed: int, *, cases: int) -> Verdict | None:
    """The first wrong verdict among as many cases, not shrunk; None if there is none."""
    try:
        _search(spec, seed, cases, Phase.generate)
    except DifferentialFailure as failure:
        return failure.verdicts["embedded"]
    return None


def _search(spec: KernelSpec, seed: int, cases: int, *phases: Phase) -> None:
    def check(case):
        case.check()

    chosen = settings(
        max_examples=cases, phases=phases, database=None, deadline=None, backend=BACKEND
    )
    test = chosen(hypothesis.seed(seed)(decorate(spec, check)))
    test(difftest_runner=Runner((EmbeddedSimulator(),)))
