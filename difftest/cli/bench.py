"""`difftest bench`: times and memory on this computer."""

from __future__ import annotations

import timeit
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import numpy as np
from rich.filesize import decimal
from rich.table import Table

from difftest.cli.launching import (
    KernelArguments,
    KernelRun,
    launch_traced,
    machine_by_name,
    run_options,
)
from difftest.simulator import launch
from difftest.support.console import print_table, progress, table_console
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Random
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Inconclusive
from difftest.testing.harness.writers import locate_writers
from difftest.testing.host.installation import embedded_with_predictions
from difftest.testing.host.shipped import import_shipped

KERNELS = {
    "naive": ("kernels.classic.vector_add", "vector_add_naive"),
    "tiled": ("kernels.classic.vector_add", "vector_add_tiled"),
    "stream": ("kernels.classic.vector_add", "vector_add_stream"),
    "transpose": ("kernels.classic.transpose", "matrix_transpose"),
}
Form = Callable[[], object]  # an implementation of an operation, bound to its operands

SIZES = {"tiny": 4, "small": 8, "medium": 16, "large": 224}
CHANNELS = 2  # more take minutes: the definition computes each product in Python


class Reading(NamedTuple):
    """The time and memory of one run of a function on this computer."""

    seconds: float  # mean over the runs
    peak_bytes: int  # most memory held at once, beyond the memory held before the run
    runs: int


def measure_call(function: Callable[[], object]) -> Reading:
    """Run `function` at least once and for at least 0.2 s, and once more for its memory.

    The run for memory comes first and is the warm-up. It is not timed, because tracing is slow.
    """
    peak = peak_of(function)
    runs, seconds = timeit.Timer(function).autorange()
    return Reading(seconds / runs, peak, runs)


@click.command()
@run_options
def own(run: KernelRun) -> None:
    """Time the simulation of a kernel of your own.

    The kernel runs on random inputs, or on a case of its test. The time is this computer's and says
    nothing about a device. `difftest profile` predicts the time on a device.
    """
    text = run.use(lambda kernel, call: _timed(run, kernel, call))
    click.echo(f"{run.title}: {text}")


def _timed(run: KernelRun, kernel: Any, call: KernelArguments) -> str:
    """Return the cost of a launch without a trace; if the kernel rejects it, end the command."""
    launched = launch_traced(kernel, call, machine_by_name(run.machine), run.level)
    once = partial(
        launch, kernel, call.arrays, call.keywords, grid=call.grid, level=run.level
    )
    untraced = partial(once, machine=launched.machine, record=False)
    return _simulated(untraced, len(launched.trace))


def _simulated(function: Form, instructions: int) -> str:
    reading = measure_call(function)
    return (
        f"simulated in {reading.seconds * 1e3:,.1f} ms on this computer, the mean of "
        f"{reading.runs:,} ({instructions:,} instructions, {decimal(reading.peak_bytes)} held at "
        "once; not a device's latency)"
    )


@click.command()
@click.argument("kernel", type=click.Choice(list(KERNELS)))
@click.option(
    "-n",
    type=click.IntRange(min=1),
    required=True,
    help="Number of elements, or of columns.",
)
@click.option("-m", type=click.IntRange(min=1), help="Rows of the matrix. Default: n.")
def kernel(kernel: str, n: int, m: int | None) -> None:
    """Check a kernel of Part 1 on random data, then time it here.

    The time is this computer's, for simulating the kernel. It says nothing about a device.
    """
    if m is not None and kernel != "transpose":
        raise click.UsageError(
            f"-m is for transpose; {kernel} takes vectors of -n elements"
        )
    with embedded_with_predictions():
        spec = _kernel_spec(kernel)
        data = {name: Random(seed) for seed, name in enumerate(spec.inputs)}
        case = Case({"n": n, "m": m or n}, "float32", data)
        shape = spec.shape(next(iter(spec.inputs)), case.values)
        click.echo(f"{spec.name} on {' x '.join(map(str, shape))} float32")
        _check_case(spec, case)
        click.echo(f"correct: {int(np.prod(shape)):,} elements compared")
        once = partial(launch, spec.kernel, spec.inputs_of(case))
        click.echo(_simulated(partial(once, record=False), len(once().trace)))


def _check_case(spec: KernelSpec, case: Case) -> None:
    """Compare a kernel with its reference; end the command unless they agree."""
    runner = Runner((EmbeddedSimulator(),))
    try:
        verdicts = runner.check(spec, case)
    except DifferentialFailure as error:
        locate_writers(error, runner.backends)
        raise click.ClickException(str(error)) from None
    except SpecError as error:
        raise click.ClickException(str(error)) from None
    for verdict in verdicts.values():
        if isinstance(verdict, Inconclusive):
            raise click.ClickException(f"{spec.name} is not judged: {verdict.reason}")


def _kernel_spec(name: str) -> KernelSpec:
    """Return the spec of a shipped kernel for one size."""
    module, function = KERNELS[name]
    vectors = name != "transpose"
    operation = "vector_add" if vectors else "transpose"
    return KernelSpec(
        kernel=getattr(import_shipped(module), function),
        reference=getattr(import_shipped(f"reference.{operation}"), operation),
        domain={"n": (1,), "m": (1,)},
        inputs={"a_vec": "n", "b_vec": "n"} if vectors else {"a_tensor": "m n"},
        reduction=1 if vectors else 0,
    )


@click.command()
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.Choice(list(SIZES)),
    help="Image size to measure; may be repeated. Default: all sizes.",
)
def reference(sizes: tuple[str, ...]) -> None:
    """Time the definitions in reference/ and their fast forms.

    The definition (orig) computes every product in Python. The fast form (opt) works on views of
    windows. All sizes take about half a minute.
    """
    operations = reference_forms(sizes or tuple(SIZES))
    with progress("forms", sum(map(len, operations.values()))) as advance:
        for operation, forms in operations.items():
            measured = {}
            for name, form in forms.items():
                measured[name] = measure_call(form)
                advance()
            print_table(table_console(), comparison_table(operation, measured))


def reference_forms(sizes: tuple[str, ...]) -> dict[str, dict[str, Form]]:
    """Return the definition and the fast form of each operation, on images of the named SIZES."""
    convolution = import_shipped("reference.conv2d")
    pooling = import_shipped("reference.maxpool2d")
    rng = np.random.default_rng(0)
    filters = rng.standard_normal((CHANNELS, CHANNELS, 3, 3))
    convolutions: dict[str, Form] = {}
    poolings: dict[str, Form] = {}
    for size in sizes:
        side = SIZES[size]
        images = rng.standard_normal((1, CHANNELS, side, side))
        label = f"{size}_{side}x{side}"
        convolutions[f"orig_{label}"] = partial(
            convolution.conv2d_direct, images, filters
        )
        convolutions[f"opt_{label}"] = partial(convolution.conv2d, images, filters)
        poolings[f"orig_{label}"] = partial(pooling.maxpool2d_direct, images, 2)
        poolings[f"opt_{label}"] = partial(pooling.maxpool2d, images, 2)
    return {"conv2d, 3x3 filters": convolutions, "maxpool2d, 2x2 windows": poolings}


def comparison_table(title: str, measured: dict[str, Reading]) -> Table:
    """Return a table of the measurements, with each time relative to the shortest."""
    fastest = min(measurement.seconds for measurement in measured.values())
    result = Table(
        title=title, caption="Memory allocated: the most held at once during a run."
    )
    result.add_column("Name", no_wrap=True)
    for heading in ("Time/Run", "Memory allocated/Run", "vs Fastest"):
        result.add_column(heading, justify="right", no_wrap=True)
    for name, measurement in measured.items():
        result.add_row(
            name,
            f"{measurement.seconds * 1e6:,.1f} µs",
            decimal(measurement.peak_bytes),
            f"{measurement.seconds / fastest:,.2%}",
        )
    return result


def peak_of(call: Callable[[], object]) -> int:
    """Return the most bytes that a call holds at once, beyond the bytes held before it."""
    traced = tracemalloc.is_tracing()  # tracemalloc counts NumPy's arrays, too
    if traced:
        tracemalloc.reset_peak()
    else:
        tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()
