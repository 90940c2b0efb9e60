"""The options with which a command names a kernel and what to call it with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click

from difftest.choices import LEVELS
from difftest.cli.launching import (
    KernelArguments,
    Result,
    TracedLaunch,
    bounded,
    launched,
    machine_named,
    random_arrays,
    with_case,
)
from difftest.host.loading import load_kernel, parse_bounds, parse_grid, parse_keywords, parse_shape
from difftest.host.waiting import patient
from difftest.simulator import MACHINES
from difftest.simulator.frontend.install import embedded


@dataclass(frozen=True, kw_only=True)
class KernelRun:
    """A kernel and its arguments as the command line names them."""

    kernel: str
    """``MODULE:KERNEL``, ``FILE.py:KERNEL``, or the kernel test ``PATH::TEST``."""
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    keywords: tuple[str, ...]
    case: str | None
    machine: str | None
    level: str | None
    grid: str | None = None
    bounds: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The last part of the kernel's name."""
        return self.kernel.rpartition(":")[2]

    def launch(self, ranks: int = 1) -> TracedLaunch:
        """Run it on the simulator.

        Parameters
        ----------
        ranks : how many run it side by side; the trace is that of the first.
        """
        if ranks > 1 and self.case:
            raise click.UsageError("a --case has one rank; give the shapes of MODULE:KERNEL")
        machine = machine_named(self.machine)
        return self.use(
            lambda kernel, given: launched(kernel, given, machine, self.level, ranks=ranks)
        )

    def use(self, use: Callable[[Any, KernelArguments], Result]) -> Result:
        """What ``use`` makes of the kernel and of its arguments."""
        if bool(self.shapes) == bool(self.case):
            raise click.UsageError("give the shapes of MODULE:KERNEL, or the --case of PATH::TEST")
        grid = parse_grid(self.grid)
        if self.case:
            if grid:
                raise click.UsageError("the grid of a --case is that of the test's spec")
            if self.bounds:
                raise click.UsageError("the data of a --case are those of the test's spec")
            return with_case(self.kernel, self.case, use)
        arrays = random_arrays([parse_shape(shape) for shape in self.shapes], self.dtypes)
        bounds = parse_bounds(self.bounds)
        arguments = KernelArguments(arrays, parse_keywords(self.keywords), grid)
        with embedded():
            kernel = load_kernel(self.kernel)
            return use(kernel, bounded(kernel, arguments, bounds))


level_option = click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="Of NKI, for kernels of `import nki`: what it lacks raises. Else all names exist.",
)
argument_options = (
    click.option("--shape", "shapes", multiple=True, help="Of each input: 128,512."),
    click.option("--dtype", "dtypes", multiple=True, default=("float32",), help="One, or of each."),
    click.option(
        "--bound",
        "bounds",
        multiple=True,
        metavar="NAME=N",
        help="Of an input of integers: 0 to N - 1, each once where N is enough. For indices.",
    ),
    click.option("--set", "keywords", multiple=True, metavar="NAME=VALUE", help="Other arguments."),
    click.option("--grid", help="Of an SPMD kernel: 2, or 4,nc2 (nl.nc(2))."),
    click.option(
        "--case", help="A case of the kernel test PATH::TEST, as JSON, instead of shapes."
    ),
)
"""What a kernel is called with."""
_OPTIONS = (
    click.argument("kernel", metavar="MODULE:KERNEL | FILE.py:KERNEL | PATH::TEST"),
    *argument_options,
    click.option(
        "--machine", type=click.Choice(sorted(MACHINES)), help="Else what the kernel names."
    ),
    level_option,
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a :class:`KernelRun`, which is its first argument then."""

    @functools.wraps(command)
    def with_run(**given: Any) -> None:
        own = {field.name: given.pop(field.name) for field in fields(KernelRun)}
        command(KernelRun(**own), **given)

    wrapped: Callable[..., None] = patient(with_run)
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
