"""`difftest grade`: a student's convolution, graded as the course grades it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from difftest.assignment import SEED, PerformanceTest, correctness_tests, performance_tests
from difftest.grading import (
    CaseResult,
    GradingError,
    correctness_points,
    grade_correctness,
    load_kernel,
)
from difftest.installation import embedded_with_predictions


@click.command()
@click.argument("file", metavar="conv2d.py", type=click.Path(path_type=Path))
@click.option("--test-maxpool", is_flag=True, help="Also the tests with max pooling.")
@click.option("--seed", type=int, default=SEED, show_default=True, help="For the random data.")
@click.pass_context
def grade(context: click.Context, file: Path, test_maxpool: bool, seed: int) -> None:
    """Grade the fused convolution in conv2d.py with the assignment's cases and points.

    Correctness runs on the embedded simulator. Performance is a device's to measure: its points
    are shown as not measured. The exit code is 1 if a case fails.
    """
    if not file.is_file():
        raise click.ClickException(f"no file at {file}")
    tests = correctness_tests(max_pool=test_maxpool)
    results: list[CaseResult] = []
    with embedded_with_predictions(), _progress() as progress:
        task = progress.add_task("", total=sum(len(test.channels) for test in tests))
        try:
            kernel = load_kernel(file.resolve())
        except GradingError as error:
            raise click.ClickException(str(error)) from error
        for result in grade_correctness(kernel, tests, seed):
            results.append(result)
            progress.console.out(_case_line(result), highlight=False)
            progress.advance(task)
    passed = all(result.passed for result in results)
    for line in _score(results, performance_tests(max_pool=test_maxpool), passed):
        click.echo(line)
    context.exit(0 if passed else 1)


def _progress() -> Progress:
    return Progress(
        TextColumn("correctness"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(),
        transient=True,
    )


def _case_line(result: CaseResult) -> str:
    verdict = "passed" if result.passed else "FAILED"
    line = f"{verdict}  {result.test.name}: {result.case}"
    if result.failure is None:
        return line
    return line + "".join(f"\n        {row}" for row in result.failure.splitlines())


def _score(
    results: list[CaseResult], performance: tuple[PerformanceTest, ...], passed: bool
) -> list[str]:
    obtainable = sum(test.points for test in {result.test for result in results})
    lines = ["", f"Correctness: {correctness_points(results):g} of {obtainable:g} points"]
    why = "not measured (needs a device)" if passed else "not measured (correctness comes first)"
    for extra, title in ((False, "Performance"), (True, "Extra credit")):
        tests = [test for test in performance if test.extra_credit is extra]
        lines.append(f"{title}: {why}, of {sum(test.points for test in tests):g} points")
        lines += [
            f"        {test.name}: {test.points:g} points under {test.full_us:g} us p99, "
            f"{test.relaxed_us:g} relaxed"
            for test in tests
        ]
    return lines
