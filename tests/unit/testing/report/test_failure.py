from dataclasses import replace

from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Random, Zeros
from difftest.testing.report.failure import nearest_passing


def test_the_nearest_case_that_agrees():
    near, far, other = (case(n) for n in (9, 100, 8))
    other = replace(other, dtype="float16", data={"a": Random(1)})
    assert nearest_passing(case(8), [far, near, other]) == near
    assert nearest_passing(case(8), [far, other]) == far
    assert nearest_passing(case(8), []) is None


def case(n):
    return Case({"n": n}, "float32", {"a": Zeros()})
