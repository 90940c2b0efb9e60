"""The project's kernels whose footprint depends on their sizes are run where a memory is full."""

import pytest
from hypothesis import settings

from difftest.analysis.placement import footprint_of
from difftest.simulator.entry.install import embedded
from difftest.simulator.machine import TRN2
from difftest.testing.backends.base import Completed, Rejected
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.harness import edges
from difftest.testing.harness.bound_case import specs_by_kernel
from difftest.testing.harness.edges import filling_cases, run_recorded
from difftest.testing.harness.runner import Runner

with embedded():
    from tests.kernels import test_conv2d, test_tutorial_matmul, test_vector_add

WORK = -(-50 * edges.WORK_OF_A_CASE // settings.default.max_examples)
"""The work of the profile with 50 cases: a profile of fewer cases leaves out such long fills."""


@pytest.mark.parametrize(
    "test",
    [
        test_vector_add.test_vector_add_stream,
        test_tutorial_matmul.test_matmul_hoisted,
        test_conv2d.test_fused_conv2d_maxpool,
    ],
    ids=["vector_add_stream", "matmul_hoisted", "fused_conv2d_maxpool"],
)
def test_a_kernel_meets_a_full_sbuf(test, monkeypatch):
    monkeypatch.setattr(edges, "WORK_OF_A_CASE", WORK)
    runner = Runner((EmbeddedSimulator(),))
    spec = specs_by_kernel(test.difftest.spec)[-1]
    outcomes = {}

    def run(one, case):
        outcomes[case.label()] = run_recorded(runner, runner.backends[0], one, case)
        return outcomes[case.label()]

    found = list(filling_cases(spec, run))
    (under,) = [outcomes[one.case.label()] for one in found if "just under" in one.why]
    (over,) = [outcomes[one.case.label()] for one in found if "just over" in one.why]
    assert isinstance(under, Completed)
    assert under.trace is not None
    assert footprint_of(under.trace, TRN2)[0] > 0.9 * TRN2.sbuf_usable_bytes
    assert (
        isinstance(over, Rejected)
        or footprint_of(over.trace, TRN2)[0] > TRN2.sbuf_usable_bytes
    )
