"""Replace the failure of a drawn case by the failure of a minimal case."""

from __future__ import annotations

from collections.abc import Callable

from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import LIMITS
from difftest.testing.drawing.minimal import SECONDS, OutOfTimeError, minimize
from difftest.testing.harness.failures import CaseFailure, DifferentialFailure

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
