"""Softmax, norms, rope, attention and their kin, with nothing said of their rounding.

Correct kernels are never red; planted errors are found within 50 drawn cases, by the question that
they are an answer to. The nightly profile draws 1,000 cases of each correct kernel.
"""

import pytest
from hypothesis import settings

from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Iota, Outliers, Random
from difftest.testing.contract.structured import Uniform
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Inconclusive, Match
from tests.meta import operators
from tests.meta.campaign import examined
from tests.meta.operators import OPERATORS

NIGHTLY = settings.get_current_profile_name() == "nightly"
CASES = 1000 if NIGHTLY else 25
PLANTED = [
    (operator, kernel, question)
    for operator in OPERATORS.values()
    for kernel, question in operator.planted.items()
]


def has_huge_scores(case):
    """Return whether an operand's products keep no digit after the point.

    A score is then unsure by more than 1. By the bounds, so is the largest score less
    itself: they do not relate the two numbers.
    """
    recipes = case.data.values()
    sizes = [
        abs(one)
        for each in recipes
        if isinstance(each, Outliers)
        for one in each.values
    ]
    sizes += [
        max(-each.low, each.high) for each in recipes if isinstance(each, Uniform)
    ]
    limit = 2**8 if case.dtype == "float16" else 2**14  # its squares overflow
    return max(sizes, default=0.0) > limit or any(
        isinstance(each, Iota) for each in recipes
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_a_correct_kernel_is_never_red(name):
    findings = examined(OPERATORS[name].spec(), CASES)
    assert findings.first is None, findings.first[2]
    # Where scores are very large, every digit of their softmax is unsure. In float16's variance,
    # an eighth of the cases overflow.
    huge = sum(map(has_huge_scores, findings.unsure))
    assert huge <= (
        CASES // 3 if name in ("attention", "variance") else CASES * 2 // 25
    )
    assert findings.counts["match"] > (CASES - huge) * 0.9


@pytest.mark.parametrize(
    ("operator", "kernel", "question"),
    PLANTED,
    ids=[kernel.__name__ for _, kernel, _ in PLANTED],
)
def test_a_planted_error_is_found(operator, kernel, question):
    findings = examined(operator.spec(kernel), 50, until_red=True)
    assert findings.first is not None
    assert findings.first[1] == question


def test_the_instruction_that_lost_the_digits_is_named():
    spec = OPERATORS["product"].spec(operators.product_in_bfloat16)
    deep = Case({"K": 512, "M": 4, "N": 4}, "float32", {"a": Random(1), "b": Random(2)})
    with pytest.raises(DifferentialFailure) as failure:
        Runner((EmbeddedSimulator(),), verbose=True).check(spec, deep)
    lines = [line.strip() for line in str(failure.value).splitlines()]
    (because,) = [line for line in lines if line.startswith("because:")]
    assert "tensor_tensor(add) lost most digits at operators.py:" in because
    assert "total = nl.add(total, partial, dtype=narrow)" in because
    assert any("is rounded into bfloat16" in line for line in lines)


def test_a_cancellation_is_named():
    """E[x**2] - E[x]**2 of a row far from 0: correct, and no digit of it is sure."""
    spec = OPERATORS["variance"].spec(operators.variance_of_moments)
    far = Case({"P": 4, "N": 64}, "float32", {"x": Uniform(1, 10_000.0, 10_001.0)})
    (verdict,) = Runner((EmbeddedSimulator(),)).check(spec, far).values()
    assert isinstance(verdict, Inconclusive)
    assert verdict.reason.startswith("no digit of output 0 is sure")
    for low, sure in ((-0.5, True), (30.0, False)):
        case = Case({"P": 4, "N": 64}, "float32", {"x": Uniform(1, low, low + 1)})
        runner = Runner((EmbeddedSimulator(),))
        (verdict,) = runner.check(spec, case).values()
        assert isinstance(verdict, Match) == sure, low
        (steady,) = runner.check(OPERATORS["variance"].spec(), case).values()
        assert isinstance(steady, Match), low
    assert verdict.reason.startswith(
        "few digits of output 0 are sure: rounding may change the "
    )
    # each case's is one
    assert set(runner.tally.reasons) == {f"variance_of_moments: {verdict.reason}"}
