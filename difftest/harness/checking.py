"""One case of a kernel, checked from a notebook, a script or a plain test: no pytest needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.bound import check_each
from difftest.harness.case import Case
from difftest.harness.explicit import CaseError, case_from_json
from difftest.harness.runner import Runner
from difftest.harness.simplest import simplest_case
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import Verdict


def check(spec: KernelSpec, case: Case | Mapping[str, Any] | str) -> Verdict:
    """Run a kernel on a case, on the embedded simulator, and compare it with its reference.

    Parameters
    ----------
    spec : of a kernel that was imported while the embedded modules were in place.
    case : a Case; or the JSON of ``--case``; or a value for each name of the domain, of which the
        data are random and the dtype is the first of the spec's.

    Returns
    -------
    What came of it, or of the first kernel of several: Match, BothRejected or Inconclusive.

    Raises
    ------
    CaseError : it is no case of the spec.
    DifferentialFailure : they disagree; its text is the report that pytest would show.
    HazardFailure : they agree, and the kernel does what is wrong on a device.
    BrokenReferenceError : the reference can judge nothing.
    """
    runner = Runner((EmbeddedSimulator(),))
    first, *_ = check_each(runner, spec, _as_case(spec, case)).values()
    runner.check_hazards()
    return first


def _as_case(spec: KernelSpec, given: Case | Mapping[str, Any] | str) -> Case:
    if isinstance(given, Case):
        return given
    if isinstance(given, str):
        return case_from_json(given, spec)
    if not isinstance(given, Mapping) or set(given) != set(spec.domain):
        raise CaseError(
            f"received {given!r:.80}; accepted: a Case, its JSON, or a value for each of "
            f"{', '.join(spec.domain)}"
        )
    return simplest_case(spec, {name: given[name] for name in spec.domain}, spec.dtypes[0])
