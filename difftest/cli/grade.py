"""`difftest grade`: grade a student's convolution by the rules of the course."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from difftest.analysis.inspection import finding_text
from difftest.cli.course_options import maxpool_option, solution_argument
from difftest.simulator import NkiError
from difftest.support.console import progress
from difftest.testing.backends.device.thresholds import PerformanceTest
from difftest.testing.host.installation import embedded_with_predictions
from difftest.testing.host.loading import load_kernel
from difftest.testing.host.options import with_progress
from difftest.tools.course.assignment import (
    SEED,
    CorrectnessTest,
    correctness_tests,
    performance_tests,
)
from difftest.tools.course.grading import (
    KERNEL,
    CaseResult,
    PredictedP99,
    correctness_points,
    grade_correctness,
    hazards_of,
    predict_p99,
)

SEEDS = click.IntRange(0, 2**32 - 1)  # the range of NumPy's RandomState


@click.command()
@solution_argument
@maxpool_option
@click.option(
    "--seed",
    type=SEEDS,
    default=SEED,
    show_default=True,
    help="Seed of the random data.",
)
@click.option(
    "--predict/--no-predict", default=True, help="Predict latencies and points."
)
@with_progress
@click.pass_context
def grade(
    context: click.Context, file: Path, test_maxpool: bool, seed: int, predict: bool
) -> None:
    """Grade the assignment's convolution in conv2d.py.

    Correctness runs on the embedded simulator. Performance needs a device (`difftest measure`): its
    points are shown as not measured, with the prediction of the timing model. A correct kernel is
    also searched for hazards, such as a tensor that the compiler rejects. The exit code is 1 if a
    case fails or a hazard is an error.
    """
    with embedded_with_predictions():
        kernel = load_kernel(f"{file}:{KERNEL}")
        tests = correctness_tests(max_pool=test_maxpool)
        results = _grade_cases(kernel, tests, seed)
        passed = all(result.passed for result in results)
        for hazard in hazards_of(kernel, tests) if passed else ():
            lines = ["FAILED  on a device:", *finding_text(hazard).splitlines()]
            click.echo("\n        ".join(lines))
            passed = False
        timed = performance_tests(max_pool=test_maxpool)
        predicted = _predictions(kernel, timed) if passed and predict else {}
    for line in _score_lines(results, timed, predicted, passed):
        click.echo(line)
    context.exit(0 if passed else 1)


def _grade_cases(
    kernel: Callable[..., Any], tests: tuple[CorrectnessTest, ...], seed: int
) -> list[CaseResult]:
    """Run the correctness tests, print each result, and return the results."""
    results: list[CaseResult] = []
    with progress("correctness", sum(len(test.channels) for test in tests)) as advance:
        for result in grade_correctness(kernel, tests, seed):
            verdict = "passed" if result.passed else "FAILED"
            text = result.failure or ""
            if text and text in [row.failure for row in results]:
                text = "as above"
            case = f"{verdict}  {result.test.name}: {result.case}"
            click.echo("\n        ".join([case, *text.splitlines()]))
            results.append(result)
            advance()
    return results


def _predictions(
    kernel: Callable[..., Any], tests: tuple[PerformanceTest, ...]
) -> dict[PerformanceTest, PredictedP99]:
    """Return the predicted p99 of each test; print the reason for tests without a prediction."""
    predicted: dict[PerformanceTest, PredictedP99] = {}
    with progress("prediction", len(tests)) as advance:
        for test in tests:
            try:
                predicted[test] = predict_p99(kernel, test)
            except (NkiError, AssertionError, ValueError) as error:
                click.echo(f"no prediction for {test.name}: {error}")
            advance()
    return predicted


def _score_lines(
    results: list[CaseResult],
    performance: tuple[PerformanceTest, ...],
    predicted: dict[PerformanceTest, PredictedP99],
    passed: bool,
) -> list[str]:
    """Return the lines with the points, of the total."""
    obtainable = sum(test.points for test in {result.test for result in results})
    reason = "needs a device" if passed else "correctness comes first"
    lines = [
        "",
        f"Correctness: {correctness_points(results):g} of {obtainable:g} points",
    ]
    for extra, title in ((False, "Performance"), (True, "Extra credit")):
        tests = [test for test in performance if test.extra_credit is extra]
        total = sum(test.points for test in tests)
        lines.append(f"{title}: not measured ({reason}), of {total:g} points")
        lines += _performance_lines(tests, predicted)
    return lines


def _performance_lines(
    tests: list[PerformanceTest], predicted: dict[PerformanceTest, PredictedP99]
) -> list[str]:
    """Return a line for each test, and the sum of predicted points if there are any."""
    lines = []
    points = []
    for test in tests:
        line = (
            f"        {test.name}: {test.points:g} points under {test.full_us:g} us p99"
        )
        line += f", {test.relaxed_us:g} relaxed"
        if test in predicted:
            p99, low, high = predicted[test]
            line += f"; predicted {p99:,.0f} us ({low:,.0f} to {high:,.0f})"
            points.append(test.points_for(p99))
        lines.append(line)
    if points:
        total = f"{sum(points):g} points, if the model is right"
        lines.append(f"        predicted: {total}")
    return lines
