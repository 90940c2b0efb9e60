"""Decorated tests that are called without pytest."""

import traceback
from datetime import timedelta

import hypothesis
import pytest
from hypothesis import settings

from difftest.simulator.entry.install import embedded
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.direct_call import check
from difftest.testing.harness.failures import (
    DifferentialFailure,
    HazardFailure,
    NothingComparedError,
)
from difftest.testing.harness.verdict import Match

with embedded():
    import neuronxcc.nki.language as nl

FEW = settings(max_examples=8, database=None)


def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, x.shape[0], 4):
        last = min(first + 4, x.shape[0])
        nl.store(out[first:last], nl.load(x[first:last]))
    return out


def shifted(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + 1)
    return out


def written_twice(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in nl.affine_range(2):
        nl.store(out, nl.load(x))
    return out


def made(kernel, function=lambda case: case.check(), asked=FEW, **more):
    fields = {"domain": {"n": sizes(1, 9)}, "inputs": {"x": "n 1"}, **more}
    spec = KernelSpec(kernel=kernel, reference=lambda x: x, **fields)
    return asked(decorate(spec, function))


def test_a_call_runs_the_drawn_cases_and_counts_them():
    tally = made(copied)()
    ((key, row),) = tally.rows.items()
    assert key == ("copied", "embedded")
    assert row.cases == row.exact + row.inconclusive > 4
    assert tally.inferred == set()


def test_a_call_takes_the_fixtures_of_its_function():
    seen = []

    def test_copied(case, factor):
        seen.append(factor)
        case.check()

    test = made(copied, test_copied)
    test(factor=3)
    assert set(seen) == {3}
    with pytest.raises(TypeError, match="factor"):
        test()


def test_a_failure_is_minimal_and_has_neither_notes_nor_frames_of_the_package():
    with pytest.raises(DifferentialFailure) as caught:
        made(shifted)()
    failure = caught.value
    assert failure.case.values == {"n": 1}
    assert failure.minimal
    assert "written by:" in str(failure)
    assert getattr(failure, "__notes__", []) == []
    frames = [frame.name for frame in traceback.extract_tb(failure.__traceback__)]
    assert len(frames) == 3, frames  # this test, the call and the run of the test


def test_hazards_fail_a_call():
    with pytest.raises(HazardFailure, match="affine-written-twice") as caught:
        made(written_twice)()
    assert caught.value.minimal == "no case with smaller n fails"


def test_the_case_of_a_hazard_stays_if_the_settings_leave_shrinking_out():
    drawn_only = settings(FEW, phases=[hypothesis.Phase.generate])
    with pytest.raises(HazardFailure) as caught:
        made(written_twice, asked=drawn_only)()
    assert caught.value.minimal == ""


def test_a_call_that_proves_too_little_fails():
    with pytest.raises(
        NothingComparedError, match="no case runs a loop over sizes twice"
    ):
        made(copied, domain={"n": sizes(1, 4)})()


def test_a_kernel_whose_branches_an_earlier_call_covered_is_traced_again():
    made(copied, asked=settings(FEW, max_examples=60))()
    with pytest.raises(NothingComparedError, match="proves too little"):
        made(copied, domain={"n": sizes(1, 4)})()


@pytest.mark.parametrize(("given", "expected"), [(200, None), (9000, 9000)])
def test_the_deadline_of_hypothesis_is_dropped_and_another_kept(given, expected):
    test = made(copied, asked=settings(FEW, deadline=given))
    test()
    kept = test._hypothesis_internal_use_settings.deadline
    assert kept == (None if expected is None else timedelta(milliseconds=expected))


def test_settings_and_seeds_above_the_decorator_count():
    seen = []

    def test_copied(case):
        seen.append(case.case.to_json())
        case.check()

    for _ in range(2):
        hypothesis.seed(5)(made(copied, test_copied))()
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert len(seen) == 16


def test_check_takes_a_spec_or_a_decorated_test():
    test = made(copied)
    assert check(test, {"n": 3}) == Match(elements=3, exact=True)
    assert check(test.difftest.spec, {"n": 3}) == Match(elements=3, exact=True)
    with pytest.raises(
        TypeError, match=r"received <function .*lambda.*accepted: a Ker"
    ):
        check(lambda case: case, {"n": 3})
    with pytest.raises(DifferentialFailure):
        check(made(shifted), {"n": 3})
