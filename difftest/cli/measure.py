"""`difftest measure`: the latency thresholds of the course, on a NeuronCore."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from difftest.backends.base import BackendMissingError
from difftest.backends.device.core import DeviceError, InfrastructureError
from difftest.backends.device.lease import NoCoreError
from difftest.backends.device.measurements import HistoryError, history_file
from difftest.backends.device.selftest import UntrustedDeviceError
from difftest.backends.device.stage import CONVOLUTIONS, StageResult, exit_code, keep, run_threshold
from difftest.backends.device.timers import Bench, open_bench
from difftest.course.assignment import performance_tests
from difftest.course.grading import KERNEL
from difftest.host.installation import embedded_with_predictions
from difftest.host.loading import load_kernel
from difftest.host.output import OutputFile, write_file

_FAILURES = (
    BackendMissingError,
    DeviceError,
    HistoryError,
    InfrastructureError,
    NoCoreError,
    UntrustedDeviceError,
)


@click.command()
@click.argument(
    "file", metavar="conv2d.py", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--test-maxpool", is_flag=True, help="Also the tests with max pooling.")
@click.option("--simulate", is_flag=True, help="Show predictions; nothing is measured.")
@click.option("-k", "keyword", default="", help="Only tests whose name contains this.")
@click.option("--json", "json_file", type=OutputFile(), help="Also as JSON.")
@click.pass_context
def measure(
    context: click.Context,
    file: Path,
    test_maxpool: bool,
    simulate: bool,
    keyword: str,
    json_file: Path | None,
) -> None:
    """Measure the fused convolution in conv2d.py against the course's latency thresholds.

    Needs a NeuronCore and no other load on it. Measurements go to the history file, where
    `difftest grade` finds them. The exit code is 0 if each threshold is met, 1 if one is missed,
    and 3 if nothing was measured, as with --simulate.
    """
    names = {test.name for test in performance_tests(max_pool=test_maxpool)}
    wanted = [one for one in CONVOLUTIONS if one.name in names and keyword in one.name]
    if not wanted:
        raise click.UsageError(f"no test has {keyword!r} in its name: {', '.join(sorted(names))}")
    path = file.resolve()
    load = partial(load_kernel, f"{path}:{KERNEL}")
    results: list[StageResult] = []
    bench: Bench | None = None
    try:
        if simulate:
            with embedded_with_predictions():
                load()  # a file that does not load fails once, and not for each threshold
        else:
            bench = open_bench(load)
        for threshold in wanted:
            timer = bench.timer if bench else None
            result = run_threshold(threshold, load, timer, history_file())
            results.append(result)
            click.echo("\n".join(result.lines()))
            if bench is not None:
                keep(result, history_file(), path, bench.machine)
    except _FAILURES as error:
        raise click.ClickException(str(error)) from error
    finally:
        if bench is not None:
            bench.close()
    if json_file is not None:
        write_file(json_file, json.dumps([one.to_json() for one in results], indent=1))
    if simulate:
        click.echo("not measured: these are predictions of the timing model")
    context.exit(exit_code(results))
