"""`difftest bench own`: what simulating a kernel of one's own costs on this computer."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from rich.filesize import decimal

from difftest.cli.kernel_run import KernelRun, run_options
from difftest.cli.launching import KernelArguments, launched, machine_named
from difftest.cli.stopwatch import Reading, measure
from difftest.simulator import launch


@click.command()
@run_options
def own(run: KernelRun) -> None:
    """Time the simulation of a kernel of your own on random inputs, or on a case of its test.

    The time is this computer's, for simulating the kernel; it says nothing of a device.
    `difftest profile` predicts a device's.
    """
    reading, instructions = run.use(lambda kernel, given: _timed(run, kernel, given))
    click.echo(
        f"{run.title}: simulated in {reading.seconds * 1e3:,.1f} ms on this computer, the mean of "
        f"{reading.runs:,} ({instructions:,} instructions, {decimal(reading.peak_bytes)} held at "
        "once; not a device's latency)"
    )


def _timed(run: KernelRun, kernel: Any, given: KernelArguments) -> tuple[Reading, int]:
    """What a launch costs without a trace, and its instructions; a refusal is the command's."""
    machine = machine_named(run.machine)
    trace, target = launched(kernel, given, machine, run.level)[:2]
    once = partial(launch, kernel, given.arrays, given.keywords, grid=given.grid, level=run.level)
    return measure(partial(once, machine=target, record=False)), len(trace)
