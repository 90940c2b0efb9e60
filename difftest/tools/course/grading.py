"""Grade a student's file as the course does: correctness is run, performance only predicted.

The data and the acceptance rule (``np.allclose`` in float32) are the course's; the expected
values come from the reference, in float64.
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
from difftest.testing.harness.limits import within_limits
from difftest.testing.host.installation import predict_latency
from difftest.testing.host.shipped import import_shipped
from difftest.tools.course.assignment import CorrectnessTest

Reference = Callable[..., Array]

KERNEL = "fused_conv2d_maxpool"
"""The function that the assignment asks for."""


@dataclass(frozen=True)
class CaseResult:
    """One case: passed, or what went wrong."""

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

    Of a kernel that has failed on all small images a large one of the same kind tells nothing more.
    """
    reference: Reference = import_shipped("reference.conv2d_maxpool").conv2d_maxpool
    course = np.random.RandomState(seed)  # what np.random.seed(seed) and np.random.rand draw
    hopeless: set[tuple[bool, int]] = set()
    for test in tests:
        if (kind := (test.bias, test.pool_size)) in hopeless:
            yield CaseResult(test, "not run", "each case of smaller images failed")
            continue
        hopeless.add(kind)
        for name, X, W, bias in test.cases(course if test.points else np.random.RandomState(seed)):
            failure = _run_case(kernel, reference, X, W, bias, test.pool_size)
            if failure is None:
                hopeless.discard(kind)
            yield CaseResult(test, name, failure)


def _run_case(
    kernel: Callable[..., Any], reference: Reference, X: Array, W: Array, bias: Array, pool: int
) -> str | None:
    try:
        run = partial(launch, kernel, (X, W, bias), {"pool_size": pool}, record=False)
        result = within_limits(run, f"{getattr(kernel, '__name__', KERNEL)} on {X.shape}")
    except (NkiError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # the student's Python: it fails the case, and its name says why
        return f"the kernel raised {type(error).__name__}: {error}"
    if len(result.outputs) != 1:
        return f"the kernel returned {len(result.outputs)} tensors, not one"
    return _difference(result.outputs[0], reference, X, W, bias, pool)


def _difference(
    out: Array, reference: Reference, X: Array, W: Array, bias: Array, pool: int
) -> str | None:
    """The first wrong element of ``out``, image by image to bound the memory; None if none is."""
    for number, image in enumerate(X):
        expected = reference(image[np.newaxis], W, bias, pool)[0].astype(np.float32)
        if out.shape != (len(X), *expected.shape):
            return f"the output has shape {out.shape}, not {(len(X), *expected.shape)}"
        wrong = ~np.isclose(out[number], expected)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"image {number}: {int(wrong.sum())} of {wrong.size} elements are wrong, first "
                f"{list(first)}: got {out[number][first]}, expected {expected[first]}"
            )
    return None


def hazards_of(kernel: Callable[..., Any], tests: tuple[CorrectnessTest, ...]) -> list[Finding]:
    """Return what is wrong with a correct kernel on a device, such as ``tensor-scope``.

    The smallest case of each test is looked at: its first.
    """
    inspector = Inspector()
    with listening(inspector):
        for test in tests:
            _, X, W, bias = next(iter(test.cases(np.random.RandomState(0))))
            launch(kernel, (X, W, bias), {"pool_size": test.pool_size})
    return inspector.failures


class PredictedP99(NamedTuple):
    """A p99 latency that the timing model predicts, and its interval; microseconds."""

    p99: float
    low: float
    high: float


def predict_p99(kernel: Callable[..., Any], test: PerformanceTest) -> PredictedP99:
    """The p99 latency in microseconds that the timing model predicts; nothing is measured."""
    result = launch(kernel, test.arguments(), {"pool_size": test.pool_size})
    latency = predict_latency(result.trace, TRN2, True)
    return PredictedP99(latency.get_latency_percentile(99), *latency.get_interval())


def correctness_points(results: list[CaseResult]) -> float:
    """A test's points for each test of which no case failed."""
    failed = {result.test for result in results if not result.passed}
    return sum(test.points for test in {result.test for result in results} - failed)
