"""`difftest bench reference`: the definitions in reference/ beside their fast forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click
import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress
from rich.table import Table

from difftest.cli.stopwatch import Reading, measure
from difftest.host.console import print_table, table_console
from difftest.host.shipped import import_shipped

Form = Callable[[], object]  # one way to compute an operation, bound to its operands

SIZES = {"tiny": 4, "small": 8, "medium": 16, "large": 224}
CHANNELS = 2  # the definition makes each product in Python: with more, 224x224 takes minutes


@click.command()
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.Choice(list(SIZES)),
    help="Image size to measure, may be given again; all if not given.",
)
def reference(sizes: tuple[str, ...]) -> None:
    """Compare the definitions in reference/ with their fast forms, side by side.

    The definition (orig) makes every product in Python; the fast form (opt) works on views of
    windows. All sizes take about half a minute.
    """
    operations = reference_forms(sizes or tuple(SIZES))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sum(map(len, operations.values())))
        for operation, forms in operations.items():
            measured = {}
            for name, form in forms.items():
                progress.update(task, description=f"{operation} {name}")
                measured[name] = measure(form)
                progress.advance(task)
            print_table(table_console(), table(operation, measured))


def reference_forms(sizes: tuple[str, ...]) -> dict[str, dict[str, Form]]:
    """The definition and the fast form of each operation, on images of the SIZES named."""
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
        convolutions[f"orig_{label}"] = partial(convolution.conv2d_direct, images, filters)
        convolutions[f"opt_{label}"] = partial(convolution.conv2d, images, filters)
        poolings[f"orig_{label}"] = partial(pooling.maxpool2d_direct, images, 2)
        poolings[f"opt_{label}"] = partial(pooling.maxpool2d, images, 2)
    return {"conv2d, 3x3 filters": convolutions, "maxpool2d, 2x2 windows": poolings}


def table(title: str, measured: dict[str, Reading]) -> Table:
    """The measurements as a table, each time also relative to the shortest of them."""
    fastest = min(measurement.seconds for measurement in measured.values())
    result = Table(title=title, caption="Memory allocated: the most held at once during a run.")
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
