"""Grade a student's file as the course does: run the correctness tests, predict the performance.

The data and the acceptance rule (``np.allclose`` in float32) are the course's. The reference
computes the expected values in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from difftest.analysis.finding import Finding
from difftest.analysis.inspection import Inspector
from difftest.simulator import TRN2, NkiError, launch
from difftest.simulator.launch_listeners import listening
from difftest.testing.backends.device.thresholds import Array, PerformanceTest
from difftest.testing.contract.limits import within_limits
from difftest.testing.host.installation import predict_latency
from difftest.testing.host.shipped import import_shipped
from difftest.tools.course.assignment import ConvolutionCase, CorrectnessTest

Reference = Callable[..., Array]

KERNEL = "fused_conv2d_maxpool"
"""The name of the assignment's kernel."""


@dataclass(frozen=True)
class CaseResult:
    """The result of one case: passed, or a failure."""

    test: CorrectnessTest
    case: str
    failure: str | None

    @property
    def passed(self) -> bool:
        return self.failure is None


def grade_correctness(
    kernel: Callable[..., Any], tests: tuple[CorrectnessTest, ...], seed: int
) -> Iterator[CaseResult]:
    """Run each case of each test, in order; a kernel that raises fails its case.

    If all cases of small images fail, the large images with the same options are not run.
    """
    reference: Reference = import_shipped("reference.conv2d_maxpool").conv2d_maxpool
    # It draws the same data as np.random.seed and np.random.rand.
    course = np.random.RandomState(seed)
    hopeless: set[tuple[bool, int]] = set()
    for test in tests:
        kind = (test.bias, test.pool_size)
        if kind in hopeless:
            yield CaseResult(test, "not run", "each case of smaller images failed")
            continue
        hopeless.add(kind)
        # a test that is not the course's must not change the data of those that are
        random = course if test.points else np.random.RandomState(seed)
        for case in test.cases(random):
            failure = _run_case(kernel, reference, case, test.pool_size)
            if failure is None:
                hopeless.discard(kind)
            yield CaseResult(test, case.name, failure)


def _run_case(
    kernel: Callable[..., Any], reference: Reference, case: ConvolutionCase, pool: int
) -> str | None:
    """Return why a case fails, or None if it passes."""
    arguments = (case.X, case.W, case.bias)
    called = f"{getattr(kernel, '__name__', KERNEL)} on {case.X.shape}"
    try:
        run = partial(launch, kernel, arguments, {"pool_size": pool}, record=False)
        result = within_limits(run, called)
    except (NkiError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    # student code may raise any exception; it fails the case
    except Exception as error:
        return f"the kernel raised {type(error).__name__}: {error}"
    if len(result.outputs) != 1:
        return f"the kernel returned {len(result.outputs)} tensors, not one"
    return _difference(result.outputs[0], reference, case, pool)


def _difference(
    out: Array, reference: Reference, case: ConvolutionCase, pool: int
) -> str | None:
    """Return a description of the first image with wrong elements, or None if all are right.

    Images are compared one by one to limit the memory.
    """
    for number, image in enumerate(case.X):
        values = reference(image[np.newaxis], case.W, case.bias, pool)
        expected = values[0].astype(np.float32)
        shape = (len(case.X), *expected.shape)
        if out.shape != shape:
            return f"the output has shape {out.shape}, not {shape}"
        wrong = ~np.isclose(out[number], expected)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"image {number}: {int(wrong.sum())} of {wrong.size} elements are wrong, first "
                f"{list(first)}: got {out[number][first]}, expected {expected[first]}"
            )
    return None


def hazards_of(
    kernel: Callable[..., Any], tests: tuple[CorrectnessTest, ...]
) -> list[Finding]:
    """Return the hazards of a correct kernel on a device, such as ``tensor-scope``.

    Only the first and smallest case of each test is run.
    """
    inspector = Inspector()
    with listening(inspector):
        for test in tests:
            case = next(test.cases(np.random.RandomState(0)))
            arguments = (case.X, case.W, case.bias)
            launch(kernel, arguments, {"pool_size": test.pool_size})
    return inspector.failures


class PredictedP99(NamedTuple):
    """A p99 latency that the timing model predicts, and its interval, in microseconds."""

    p99: float
    low: float
    high: float


def predict_p99(kernel: Callable[..., Any], test: PerformanceTest) -> PredictedP99:
    """Return the p99 latency in microseconds that the timing model predicts."""
    result = launch(kernel, test.arguments(), {"pool_size": test.pool_size})
    latency = predict_latency(result.trace, TRN2, True)
    return PredictedP99(latency.get_latency_percentile(99), *latency.get_interval())


def correctness_points(results: list[CaseResult]) -> float:
    """Return the sum of points of the tests without a failed case."""
    failed = {result.test for result in results if not result.passed}
    return sum(test.points for test in {result.test for result in results} - failed)
