"""`difftest measure`: the latency thresholds of the course, on a NeuronCore."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from difftest.cli.course_options import maxpool_option, solution_argument
from difftest.support.output import write_file
from difftest.testing.backends.base import BackendMissingError
from difftest.testing.backends.device.core import (
    DeviceError,
    InfrastructureError,
    NoCoreError,
)
from difftest.testing.backends.device.selftest import UntrustedDeviceError
from difftest.testing.backends.device.timers import (
    StageResult,
    measure_stage,
    open_timer,
)
from difftest.testing.host.loading import load_kernel
from difftest.testing.host.options import OutputFile
from difftest.tools.course.assignment import performance_tests
from difftest.tools.course.grading import KERNEL

_SETUP_ERRORS = (
    BackendMissingError,
    InfrastructureError,
    NoCoreError,
    UntrustedDeviceError,
)


@click.command()
@solution_argument
@maxpool_option
@click.option(
    "-k",
    "keyword",
    default="",
    help="Measure only tests whose name contains this text.",
)
@click.option(
    "--json", "json_file", type=OutputFile(), help="Write the results as JSON."
)
@click.pass_context
def measure(
    context: click.Context,
    file: Path,
    test_maxpool: bool,
    keyword: str,
    json_file: Path | None,
) -> None:
    """Time the convolution on a NeuronCore, as the assignment does.

    The command needs a NeuronCore without other load. `difftest grade` predicts the latency without
    a NeuronCore. The exit code is 0 if each threshold is met, and 1 if one is missed.
    """
    tests = performance_tests(max_pool=test_maxpool)
    wanted = [test for test in tests if keyword in test.name]
    if not wanted:
        names = "; ".join(test.name for test in tests)
        raise click.UsageError(f"no test has {keyword!r} in its name: {names}")
    load = partial(load_kernel, f"{file.resolve()}:{KERNEL}")
    results: list[StageResult] = []
    try:
        with open_timer(load) as timer:
            for test in wanted:
                results.append(measure_stage(test, load(), timer))
                click.echo("\n".join(results[-1].lines()))
    except (DeviceError, *_SETUP_ERRORS) as error:
        raise click.ClickException(str(error)) from error
    if json_file is not None:
        write_file(
            json_file, json.dumps([result.to_json() for result in results], indent=1)
        )
    context.exit(int("missed" in {result.result for result in results}))
