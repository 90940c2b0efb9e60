"""`difftest profile`: the predicted time of a kernel on a device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from difftest.cli.launching import KernelRun, TracedLaunch, run_options
from difftest.support.choices import install_hint
from difftest.support.console import table_console
from difftest.support.output import atomic_write, write_file
from difftest.testing.host.options import PICTURES, OutputFile
from difftest.testing.report.profile import Profile
from difftest.timing import Prediction, UnknownCostError, predict
from difftest.timing.advice import advise
from difftest.timing.compiler import Toolchain
from difftest.timing.report import Report, as_mapping
from difftest.timing.views.lanes import plot
from difftest.timing.views.perfetto import perfetto
from difftest.tools.lint.check import unused_helpers


@click.command()
@run_options
@click.option(
    "--toolchain",
    type=click.Choice([chain.value for chain in Toolchain]),
    help="Compiler of the kernel, which decides how DMA descriptors are made. Default: the "
    "compiler of the kernel's dialect, for classic kernels as in nki.benchmark. classic-profile "
    "adds --disable-dge. today-sweep is that of published matrix products.",
)
@click.option(
    "--perfetto",
    "trace_file",
    type=OutputFile(),
    help="Write a trace for ui.perfetto.dev.",
)
@click.option(
    "--plot",
    "picture",
    type=OutputFile(*PICTURES),
    help=f"Write a picture: {', '.join(PICTURES)}.",
)
@click.option(
    "--json", "json_file", type=OutputFile(), help="Write everything as JSON."
)
def profile(
    run: KernelRun,
    toolchain: str | None,
    trace_file: Path | None,
    picture: Path | None,
    json_file: Path | None,
) -> None:
    """Predict how long a kernel takes, and suggest improvements.

    The kernel runs on the simulator, on random inputs. Every time is predicted from costs that
    are measured, documented or assumed. The command measures nothing.
    """
    files = list(filter(None, (trace_file, picture, json_file)))
    if len(set(files)) != len(files):
        raise click.UsageError(
            "--perfetto, --plot and --json each need a file of their own"
        )
    if picture and (lack := install_hint("matplotlib", "a picture", "plot")):
        raise click.UsageError(lack)
    launched, prediction = _predict(run, Toolchain(toolchain) if toolchain else None)
    findings = advise(prediction.schedule) + unused_helpers(launched.kernel)
    report = Report(prediction)
    if trace_file:
        write_file(trace_file, json.dumps(perfetto(report)))
    if json_file:
        content = dict(as_mapping(report))
        content["advice"] = [finding.as_mapping() for finding in findings]
        write_file(json_file, json.dumps(content, indent=1))
    if picture:
        with atomic_write(picture) as path:
            plot(report, path, run.title)
    # Print last: the reader may close the pipe after a few lines.
    print_profile(Profile(report, findings, launched.trace, launched.machine))


def _predict(
    run: KernelRun, toolchain: Toolchain | None
) -> tuple[TracedLaunch, Prediction]:
    """Run the kernel and predict its time, behind a progress bar."""
    # Without a terminal, the bar would take the kernel's output away from its file.
    is_shown = sys.stdout.isatty()
    bar = Progress(
        console=Console(stderr=True), transient=True, redirect_stdout=is_shown
    )
    with bar:
        task = bar.add_task("simulating", total=None)
        launched = run.launch()
        trace = launched.trace
        if not len(trace):
            raise click.ClickException(
                "the kernel issued no instruction: there is nothing to time"
            )
        bar.update(task, description="predicting", total=len(trace))

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        try:
            prediction = predict(
                trace, launched.machine, dge=toolchain, progress=progress
            )
        except UnknownCostError as error:
            raise click.ClickException(str(error)) from None
        bar.update(task, description="predicting for other compilers", total=None)
        _ = prediction.compiled  # compute it here: the interval needs it
    return launched, prediction


def print_profile(profile: Profile) -> None:
    """Print a profile on standard output."""
    profile.print(table_console(), Console().width)
