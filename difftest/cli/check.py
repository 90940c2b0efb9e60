"""`difftest check`: hazards of a kernel that an in-order run hides."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from difftest.analysis.inspection import Inspector, finding_text, memory_text
from difftest.cli.launching import (
    KernelResult,
    KernelRun,
    TracedLaunch,
    ranks_option,
    run_options,
)
from difftest.simulator.launch_listeners import listening
from difftest.support.output import write_file
from difftest.testing.host.options import OutputFile

FORMAT = 3
"""The version of the JSON document, which changes with its fields."""


@click.command()
@run_options
@ranks_option
@click.option("--strict", is_flag=True, help="Fail for warnings too.")
@click.option(
    "--memory", is_flag=True, help="Also show memories that are at most half full."
)
@click.option(
    "--json",
    "json_file",
    type=OutputFile(),
    help="Write the run and its findings as JSON.",
)
@click.pass_context
def check(
    context: click.Context,
    run: KernelRun,
    ranks: int,
    strict: bool,
    memory: bool,
    json_file: Path | None,
) -> None:
    """Find errors that occur on a device and not on a simulator.

    The kernel runs on the simulator, on random inputs. Detectors then search its trace for hazards
    such as a dependence on the order of iterations, races between cores, or a wrong use of PSUM.
    docs/reference/detectors describes each of them. SBUF and PSUM are shown if more than half full.
    The exit code is 1 if a finding is proven wrong.
    """
    inspector = Inspector(strict=strict)
    with listening(inspector):
        launched = run.launch(ranks)
    trace = launched.trace
    if not len(trace):
        raise click.ClickException(
            "the kernel issued no instruction: there is nothing to check"
        )
    if json_file is not None:
        document = _document(launched, inspector, ranks)
        write_file(json_file, json.dumps(document, indent=1) + "\n")
    _print_findings(launched, inspector, 0.0 if memory else 0.5)
    count = len(inspector.findings) + len(launched.misuses)
    click.echo(
        f"{trace.kernel} on {launched.machine.name}: instructions: {len(trace):,}, "
        f"findings: {count}, allowed by comments: {inspector.suppressed}"
    )
    context.exit(int(bool(inspector.failures or launched.misuses)))


def _document(
    launched: TracedLaunch, inspector: Inspector, ranks: int
) -> dict[str, Any]:
    """Return the run and its findings for JSON."""
    trace = launched.trace
    return {
        "format": FORMAT,
        "kernel": trace.kernel,
        "machine": launched.machine.name,
        "grid": trace.grid,
        "ranks": ranks,
        "inputs": [
            {"shape": array.shape, "dtype": array.dtype.name}
            for array in launched.arrays
        ],
        "results": [result._asdict() for result in launched.results],
        "instructions": len(trace),
        "allowed": inspector.suppressed,
        "misuses": launched.misuses,
        "findings": [finding.as_mapping() for finding in inspector.findings],
    }


def _print_findings(launched: TracedLaunch, inspector: Inspector, least: float) -> None:
    """Print the findings, the memories that are fuller than ``least``, and updated arrays."""
    for finding in inspector.findings:
        click.echo(finding_text(finding))
    for misuse in launched.misuses:
        click.echo(f"error: {misuse}")
    width = get_terminal_size().columns
    memories = memory_text(launched.trace, launched.machine, width, least)
    if memories:
        click.echo(memories)
    if any(result.is_updated for result in launched.results):
        for result in launched.results:
            click.echo(_result_text(result))


def _result_text(result: KernelResult) -> str:
    """Return a line on an array that the kernel returned or wrote to."""
    name = f"{result.argument} " if result.argument else ""
    shown = f"{name}{list(result.shape)} {result.dtype}"
    if not result.is_updated:
        return f"returned: {shown}"
    if result.is_returned:
        return f"updated in place and returned: {shown}"
    return f"updated in place: {shown}"
