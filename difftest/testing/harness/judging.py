"""Judge the outcome of a kernel by the result of its reference."""

from __future__ import annotations

from difftest.support.tracebacks import format_error
from difftest.testing.backends.base import (
    Completed,
    Crashed,
    Outcome,
    Rejected,
    Unsupported,
)
from difftest.testing.harness.compare import compare
from difftest.testing.harness.differential import ReferenceResult, compare_exact
from difftest.testing.harness.verdict import (
    BothRejected,
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
    Verdict,
)

# The text of a failure is complete: pytest shows no frame of this module.
__tracebackhide__ = True


def verdict_on(
    reference: ReferenceResult | Exception | None, outcome: Outcome
) -> Verdict:
    """Return the verdict on one outcome.

    With an exact run, algorithm and arithmetic are judged. Without one, the derived bound applies.
    It applies too if the spec states ``reduction``. ``reference`` may be None for an outcome
    without outputs: this means that the reference accepts the case.
    """
    if isinstance(reference, ReferenceResult) and reference.spec.magnitude is not None:
        _ = reference.bounds  # raises for a wrong magnitude, for any outcome
    if isinstance(outcome, Crashed):
        side = "backend" if outcome.in_backend else "kernel"
        return OneSided(side, outcome.error, "crashed")
    if isinstance(reference, Exception):
        return _verdict_on_rejected(reference, outcome)
    if isinstance(outcome, Unsupported):
        return OneSided("backend", outcome.error, "unsupported")
    if isinstance(outcome, Rejected):
        return OneSided("kernel", outcome.error)
    assert reference is not None
    return reference.with_name(_compare_outputs(reference, outcome))


def _verdict_on_rejected(reference: Exception, outcome: Outcome) -> Verdict:
    """Return the verdict on an outcome of a case that the reference rejects."""
    if isinstance(outcome, Unsupported):
        why = format_error(outcome.error)
        return Inconclusive(
            f"the reference rejects the case, and the backend cannot run the kernel: {why}"
        )
    if isinstance(outcome, Rejected):
        return BothRejected(reference, outcome.error)
    return OneSided("reference", reference)


def _compare_outputs(reference: ReferenceResult, outcome: Completed) -> Verdict:
    """Return the verdict on the values of a run."""
    wrong = reference.result_count_mismatch(len(outcome.outputs))
    if wrong is not None:
        return wrong
    exact = outcome.exact
    if exact is None or not exact.has_meaning:
        return _compare_within_bounds(reference, outcome)
    verdict = compare_exact(reference, outcome)
    if isinstance(verdict, Mismatch) or reference.spec.reduction is None:
        return verdict
    derived = _compare_within_bounds(reference, outcome)
    if isinstance(derived, Inconclusive) and isinstance(verdict, Match):
        return verdict
    return derived


def _compare_within_bounds(reference: ReferenceResult, outcome: Completed) -> Verdict:
    """Return the verdict on the values of a run, by the bounds that follow from the spec alone."""
    derived = compare(reference.bounds, outcome.outputs, outcome.unwritten)
    is_open = outcome.exact is not None and outcome.exact.is_open
    if is_open and _differs_in_values(derived):
        return Inconclusive(
            "an element that a rounded value names may be another one on a correct machine, and "
            "the values differ from the reference's"
        )
    return derived


def _differs_in_values(verdict: Verdict) -> bool:
    """Return whether an output differs in its values alone."""
    return isinstance(verdict, Mismatch) and verdict.kind == "value"
