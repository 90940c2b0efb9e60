"""Replace the failure of a drawn case by the failure of a minimal case."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import hypothesis

from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import LIMITS
from difftest.testing.drawing.minimal import SECONDS, OutOfTimeError, minimize
from difftest.testing.drawing.provider import settings_of
from difftest.testing.harness.bound_case import running
from difftest.testing.harness.failures import (
    CaseFailure,
    DifferentialFailure,
    HazardFailure,
)

if TYPE_CHECKING:
    from difftest.testing.harness.runner import Runner

_VISIBLY = "shows wrong values of its own"


def minimal_failure(
    failure: CaseFailure, run: Callable[[Case], object], seconds: float = SECONDS
) -> CaseFailure:
    """Return a failure of the same kind whose case is minimal; it may be ``failure`` itself.

    If only the exact run shows that the minimal case is wrong, a case with wrong values of its own
    takes its place, if there is one.

    Parameters
    ----------
    run : runs a case, and raises its failure. It may raise an OutOfTimeError.
    seconds : the most CPU time, in seconds.
    """
    smallest = _minimized(failure, run, seconds)
    if not isinstance(smallest, DifferentialFailure):
        return smallest
    visible = smallest.in_own_dtype(run)
    if visible is smallest:
        return smallest
    return _minimized(visible, run, seconds, visible=True)


def check_hazards_of_drawn_cases(runner: Runner, test: object) -> None:
    """Fail, or warn, for hazards as :meth:`Runner.check_hazards` does, with a minimal case.

    Parameters
    ----------
    test : the Hypothesis test whose cases have run; its settings may leave shrinking out.

    Raises
    ------
    HazardFailure : the kernel has a hazard that fails the test.
    """
    try:
        runner.check_hazards()
    except HazardFailure as failure:
        if hypothesis.Phase.shrink in settings_of(test).phases:
            raise _minimal_hazard(runner, failure) from None
        raise


def _minimal_hazard(runner: Runner, failure: HazardFailure) -> CaseFailure:
    """Return the failure of a minimal case that has the first finding of ``failure``."""
    first, *others = failure.findings
    reported = runner.hazards

    def run(case: Case) -> None:
        runner.hazards = {}
        runner.check(failure.spec, case)
        found = runner.hazards.get((first.id, first.locations))
        if found is not None:
            _, _, finding = found
            raise HazardFailure(failure.spec, case, failure.again, [finding, *others])

    backends = running(failure.spec.kernel, runner.backends)
    with runner.uncounted(), runner.on(backends):
        try:
            return minimal_failure(failure, run)
        finally:
            runner.hazards = reported


def _minimized(
    failure: CaseFailure,
    run: Callable[[Case], object],
    seconds: float,
    *,
    visible: bool = False,
) -> CaseFailure:
    """Return the failure of a minimal case; ``visible`` asks for wrong values of its own."""
    smallest = failure

    def fails(case: Case) -> bool:
        nonlocal smallest
        expired = LIMITS.expired
        try:
            run(case)
        except OutOfTimeError:
            raise
        except Exception as error:  # an error of another kind is another bug
            if LIMITS.expired > expired:  # each smaller case may take as long
                raise OutOfTimeError from None
            if not isinstance(error, CaseFailure) or error.kind != failure.kind:
                return False
            if visible and getattr(error, "is_hidden", False):
                return False
            smallest = error
            return True
        return False

    minimal = minimize(failure.spec, failure.case, fails, seconds)
    smallest.minimal = minimal.describe(_VISIBLY if visible else "fails")
    return smallest
