import numpy as np
import pytest

import difftest
from difftest import Case, DifferentialFailure, KernelSpec, Ones
from difftest.harness.explicit import CaseError
from difftest.harness.verdict import Match
from difftest.simulator.frontend.install import embedded


def spec_of(name):
    with embedded():
        from kernels.classic.vector_add import vector_add_naive
    return KernelSpec(
        kernel=vector_add_naive,
        reference=lambda a, b: a.astype(np.float64) + (b if name == "sum" else 2 * b),
        domain={"n": (8,)},
        inputs={"a_vec": "n", "b_vec": "n"},
    )


@pytest.mark.parametrize(
    "case",
    [
        {"n": 8},
        Case({"n": 8}, "float32", {"a_vec": Ones(), "b_vec": Ones()}),
        '{"values":{"n":8},"dtype":"float32","data":{"a_vec":"iota","b_vec":"ones"}}',
    ],
    ids=["values", "Case", "JSON"],
)
def test_a_case_in_each_form(case):
    verdict = difftest.check(spec_of("sum"), case)
    assert isinstance(verdict, Match)
    assert verdict.elements == 8


def test_a_disagreement_is_the_report_of_pytest():
    with pytest.raises(DifferentialFailure, match="first wrong: output 0 at"):
        difftest.check(spec_of("another"), {"n": 8})


@pytest.mark.parametrize("case", [None, {}, {"m": 3}, "{"])
def test_what_is_no_case(case):
    with pytest.raises(CaseError, match="received"):
        difftest.check(spec_of("sum"), case)
