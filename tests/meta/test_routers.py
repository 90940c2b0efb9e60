"""A router that decides by rounded logits: never red when right, red when wrong."""

import itertools

import numpy as np
import pytest

from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Random
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from tests.kernels.budget import NIGHTLY
from tests.meta.routers import BUGS, RIGHT, routed, router_of
from tests.meta.search import judged

SEEDS = range(10 if NIGHTLY else 3)
CASES = 500 if NIGHTLY else 20


def spec_of(bug=RIGHT, reference=routed):
    return KernelSpec(
        kernel=router_of(bug),
        reference=reference,
        domain={"D": sizes(1, 128), "T": sizes(1, 128), "E": sizes(8, 64)},
        inputs={"tokens": "D T", "gate": "D E"},
        dtypes=("float32", "bfloat16"),
        output_dtype=("uint32", "float32"),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_router_is_never_red(seed):
    assert judged(spec_of(), seed, cases=CASES) is None


@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_router_is_red(bug):
    assert all(judged(spec_of(bug), seed, cases=20) is not None for seed in range(3))


def equal_experts(tokens, gate, *, last):
    """The reference of a gate whose experts repeat; it takes the last of equal logits, or not."""
    experts = gate.shape[1]
    order = range(experts)[::-1] if last else range(experts)
    turned = gate[:, list(order)]
    places, weights = routed(tokens, turned)
    return np.asarray(order)[places].astype(np.uint32), weights


def test_a_reference_may_break_ties_otherwise():
    """All experts are equally good: the test is green, and the weights are compared."""
    for last, dtype in itertools.product((False, True), ("float32", "bfloat16")):
        spec = spec_of(
            reference=lambda tokens, gate, last=last: equal_experts(
                tokens, gate, last=last
            )
        )
        sizes_of = {"D": 100, "T": 64, "E": 32}
        case = Case(sizes_of, dtype, {"tokens": Random(1), "gate": Fill(0.37)})
        (verdict,) = Runner((EmbeddedSimulator(),)).check(spec, case).values()
        assert isinstance(verdict, Match)
        assert (verdict.elements, verdict.nonfinite) == (64 * 2, 64 * 2)
