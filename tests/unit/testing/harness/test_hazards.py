import numpy as np

from difftest.analysis.finding import Finding, Severity
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Ones
from difftest.testing.harness.differential import evaluate_reference
from difftest.testing.harness.explanation import is_expected
from tests.every import every
from tests.unit.standin import add_spec


def finding(id):
    return Finding(
        id=id,
        severity=Severity.WARNING,
        happened="a value is not finite",
        rule="values are finite",
        locations=(),
        remedy="none",
    )


def reference_for(value, dtype):
    case = Case({"n": 2}, dtype, {"a": Fill(value, ()), "b": Ones()})
    return evaluate_reference(add_spec(dtypes=(dtype,)), case)


@every("id", ["infinity-made", "nan-made"])
def test_an_infinity_that_the_reference_wants_is_no_hazard(id):
    assert is_expected(reference_for(np.inf, "float32"), finding(id))
    assert not is_expected(reference_for(1.0, "float32"), finding(id))


def test_overflow_in_the_outputs_dtype_is_expected_too():
    spec = add_spec(
        reference=lambda a, b: 1e6 * a.astype(np.float64), dtypes=("float16",)
    )
    case = Case({"n": 2}, "float16", {"a": Ones(), "b": Ones()})
    assert is_expected(evaluate_reference(spec, case), finding("infinity-made"))


def test_no_other_hazard_is_excused_and_none_where_the_reference_refuses():
    assert not is_expected(reference_for(np.inf, "float32"), finding("program-race"))
    assert not is_expected(ValueError("refused"), finding("nan-made"))
