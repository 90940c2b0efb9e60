"""`difftest profile`: where a kernel's time would go on a device, as predicted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import Progress

from difftest.analysis.finding import Finding
from difftest.cli.launching import (
    machine_named,
    parse_keywords,
    parse_shape,
    random_arrays,
    trace_of,
    trace_of_case,
)
from difftest.simulator import MACHINES
from difftest.timing import Prediction, predict
from difftest.timing.advice import advise, unused_helpers
from difftest.timing.report import Report, as_mapping
from difftest.timing.views import text
from difftest.timing.views.advice import findings
from difftest.timing.views.perfetto import perfetto
from difftest.timing.views.plot import PlottingError, need_matplotlib, plot

Command = TypeVar("Command", bound=Callable[..., object])
PICTURES = (".png", ".svg", ".pdf")


def _file(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """A file to write, in a folder that is there; refused before anything runs."""
    if path is None:
        return None
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}")
    if parameter.name == "picture":
        if path.suffix not in PICTURES:
            raise click.BadParameter(f"a picture is one of {', '.join(PICTURES)}; got {path.name}")
        try:
            need_matplotlib()
        except PlottingError as error:
            raise click.UsageError(str(error)) from None
    return path


def _output(*names: str, help: str) -> Callable[[Command], Command]:
    kind = click.Path(dir_okay=False, writable=True, path_type=Path)
    return click.option(*names, type=kind, callback=_file, help=help)


@click.command()
@click.argument("kernel", metavar="MODULE:KERNEL | PATH::TEST")
@click.option("--shape", "shapes", multiple=True, help="Of each input: 128,512.")
@click.option("--dtype", "dtypes", multiple=True, default=("float32",), help="One, or of each.")
@click.option("--set", "keywords", multiple=True, metavar="NAME=VALUE", help="Other arguments.")
@click.option("--case", help="A case of the kernel test PATH::TEST, as JSON, instead of shapes.")
@click.option(
    "--static/--dge",
    default=True,
    help="DMA descriptors laid down before the kernel runs, as in profiles (the default), or "
    "generated on the device, as in benchmarks.",
)
@click.option("--machine", type=click.Choice(sorted(MACHINES)), help="Else what the kernel names.")
@_output("--perfetto", "trace_file", help="Trace for ui.perfetto.dev.")
@_output("--plot", "picture", help="Picture; .png, .svg or .pdf.")
@_output("--json", "json_file", help="Everything as JSON.")
def profile(
    kernel: str,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    keywords: tuple[str, ...],
    case: str | None,
    static: bool,
    machine: str | None,
    trace_file: Path | None,
    picture: Path | None,
    json_file: Path | None,
) -> None:
    """Predict how long a kernel takes on a device, and say what it could do better.

    The kernel runs on the simulator, on random inputs. Every time is predicted from costs that
    are measured, documented or assumed; none is measured here.
    """
    if bool(shapes) == bool(case):
        raise click.UsageError("give the shapes of MODULE:KERNEL, or the --case of PATH::TEST")
    with Console(stderr=True).status("simulating"):
        if case:
            trace, target, function = trace_of_case(kernel, case, machine_named(machine))
        else:
            arrays = random_arrays([parse_shape(shape) for shape in shapes], dtypes)
            trace, target, function = trace_of(
                kernel, arrays, parse_keywords(keywords), machine_named(machine)
            )
    if not len(trace):
        raise click.ClickException("the kernel issued no instruction: there is nothing to time")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("scheduling", total=len(trace))
        prediction = predict(
            trace,
            target,
            dge=not static,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    found = [*advise(prediction.schedule), *unused_helpers(function)]
    show(prediction, found)
    title = kernel.rpartition(":")[2]
    _write(prediction, found, title, trace_file, picture, json_file)


def show(prediction: Prediction, found: list[Finding]) -> None:
    """Print the summary, the tables and the advice."""
    report = Report(prediction)
    console = Console()
    for line in text.totals(report):
        console.print(line, highlight=False)
    console.print()
    console.print(text.engines(report))
    console.print(text.lines("Source lines", report.by_line()))
    console.print(text.lines("Instructions", report.by_instruction()))
    console.print(text.memories(report))
    console.print("\nAdvice, the most time lost first (predicted)", style="bold")
    for line in findings(found):
        console.print(line, highlight=False, markup=False)


def _write(
    prediction: Prediction,
    found: list[Finding],
    title: str,
    trace_file: Path | None,
    picture: Path | None,
    json_file: Path | None,
) -> None:
    """Write the files that were asked for.

    Raises
    ------
    click.ClickException : one cannot be written.
    """
    report = Report(prediction)
    try:
        if trace_file:
            trace_file.write_text(json.dumps(perfetto(report)), encoding="utf-8")
        if json_file:
            everything = {**as_mapping(report), "advice": [one.as_mapping() for one in found]}
            json_file.write_text(json.dumps(everything, indent=1), encoding="utf-8")
        if picture:
            plot(report, picture, title)
    except OSError as error:
        raise click.ClickException(str(error)) from None
