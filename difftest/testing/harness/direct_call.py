"""Kernel tests without pytest, such as in a notebook: all drawn cases of a test, or one case."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from hypothesis import settings

from difftest.simulator.program_scheduler import one_thread
from difftest.support.call_stack import call_with_room
from difftest.testing.backends.embedded import EmbeddedSimulator, run_beside_sdk
from difftest.testing.backends.selection import select_backends
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.explicit import case_from_json
from difftest.testing.drawing.provider import change_settings, use_backend
from difftest.testing.harness.bound_case import check_each
from difftest.testing.harness.decorated import (
    RUNNER_FIXTURE,
    TestFunction,
    kernel_test_of,
)
from difftest.testing.harness.error_groups import one_of_several
from difftest.testing.harness.failures import CaseFailure, DifferentialFailure
from difftest.testing.harness.minimal_failure import check_hazards_of_drawn_cases
from difftest.testing.harness.profiles import kernel_settings
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tally import Tally
from difftest.testing.harness.tracer import BranchTracer
from difftest.testing.harness.verdict import Verdict
from difftest.testing.harness.writers import locate_writers

_DEADLINE = timedelta(milliseconds=200)
"""The default of Hypothesis, as documented."""


def run_test(
    test: TestFunction, spec: KernelSpec, fixtures: Mapping[str, Any]
) -> Tally:
    """Run the drawn cases of a kernel test on the simulator of ``pytest --simulate``.

    Parameters
    ----------
    test : the Hypothesis test, which takes a runner.
    fixtures : the other arguments of the test function.

    Returns
    -------
    The counts of the cases that ran.

    Raises
    ------
    DifferentialFailure, BrokenReferenceError : a case fails; it is shrunk.
    HazardFailure : the kernel has an error that shows on a device.
    NothingComparedError : the cases prove too little.
    """
    __tracebackhide__ = True
    tracer = BranchTracer()
    runner = Runner(
        select_backends("auto", device=False),
        beside=run_beside_sdk,
        branch_tracer=tracer,
    )
    change_settings(test, _without_default_deadline)
    use_backend(test)
    try:
        with one_thread(), one_of_several(runner):
            call_with_room(test, **fixtures, **{RUNNER_FIXTURE: runner})
        check_hazards_of_drawn_cases(runner, test)
    except CaseFailure as failure:
        locate_writers(failure, runner.backends)
        failure.__dict__.pop("__notes__", None)  # Hypothesis's, on the harness's calls
        raise failure.with_traceback(None) from failure.__cause__
    finally:
        tracer.close()
    runner.check_compared(spec)
    return runner.tally


def _without_default_deadline(own: settings) -> settings:
    """Return a kernel test's settings in place of Hypothesis's defaults; keep another deadline.

    The extension of IPython and pytest's plugin load a profile before tests are decorated.
    """
    return kernel_settings(own) if own.deadline == _DEADLINE else own


def check(
    test: KernelSpec | TestFunction, case: Case | Mapping[str, Any] | str
) -> Verdict:
    """Check a case on the embedded simulator, and return the verdict on the first kernel.

    Parameters
    ----------
    test : a spec, or a test that ``@kernel_test`` decorated. Its kernel was imported while the
        embedded modules were installed.
    case : a Case, or the JSON of ``--case``, or a value for each name of the domain. For values,
        the data are random, and the dtype is the first of the spec's.

    Raises
    ------
    CaseError : the case does not fit the spec.
    DifferentialFailure : kernel and reference disagree. Its text is the report of pytest.
    HazardFailure : they agree, but the kernel has an error that shows on a device.
    BrokenReferenceError : the reference cannot judge the case.
    """
    spec = _spec_of(test)
    runner = Runner((EmbeddedSimulator(),))
    case = case if isinstance(case, Case) else case_from_json(case, spec)
    try:
        first, *_ = check_each(runner, spec, case).values()
    except DifferentialFailure as failure:
        locate_writers(failure, runner.backends)
        raise
    runner.check_hazards()
    return first


def _spec_of(test: KernelSpec | TestFunction) -> KernelSpec:
    """Return the spec of a decorated test, or the spec itself."""
    if isinstance(test, KernelSpec):
        return test
    decorated = kernel_test_of(test)
    if decorated is None:
        raise TypeError(
            f"check: received {test!r}; accepted: a KernelSpec, or a test that @kernel_test "
            "decorated"
        )
    return decorated.spec
