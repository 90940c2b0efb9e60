"""`difftest check`: hazards of a kernel that an in-order run hides."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import get_terminal_size

import click

from difftest.analysis.inspection import Inspector, finding_text, memory_text
from difftest.cli.launching import KernelResult, KernelRun, run_options
from difftest.simulator.launch_listeners import listening
from difftest.support.output import write_file
from difftest.testing.host.loading import MOST_PROGRAMS
from difftest.testing.host.options import OutputFile

FORMAT = 3
"""The version of the JSON document, which changes with its fields."""


@click.command()
@run_options
@click.option(
    "--ranks",
    type=click.IntRange(1, MOST_PROGRAMS),
    default=1,
    help="Number, for collectives.",
)
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option(
    "--memory", is_flag=True, help="Also show memories that are at most half full."
)
@click.option(
    "--json", "json_file", type=OutputFile(), help="Write the run and its findings."
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
        trace, machine, _, arrays, misuses, results = run.launch(ranks)
    if not len(trace):
        raise click.ClickException(
            "the kernel issued no instruction: there is nothing to check"
        )
    texts = [finding_text(finding) for finding in inspector.findings]
    texts += [f"error: {misuse}" for misuse in misuses]
    texts.append(
        memory_text(trace, machine, get_terminal_size().columns, 0.0 if memory else 0.5)
    )
    if json_file is not None:
        document = {
            "format": FORMAT,
            "kernel": trace.kernel,
            "machine": machine.name,
            "grid": trace.grid,
            "ranks": ranks,
            "inputs": [
                {"shape": array.shape, "dtype": array.dtype.name} for array in arrays
            ],
            "results": [result._asdict() for result in results],
            "instructions": len(trace),
            "allowed": inspector.suppressed,
            "misuses": misuses,
            "findings": [finding.as_mapping() for finding in inspector.findings],
        }
        write_file(json_file, json.dumps(document, indent=1) + "\n")
    if any(result.is_updated for result in results):
        texts.append("\n".join(map(_result_text, results)))
    for text in filter(None, texts):
        click.echo(text)
    click.echo(
        f"{trace.kernel} on {machine.name}: instructions: {len(trace):,}, "
        f"findings: {len(inspector.findings) + len(misuses)}, "
        f"allowed by comments: {inspector.suppressed}"
    )
    context.exit(int(bool(inspector.failures or misuses)))


def _result_text(result: KernelResult) -> str:
    """Return a line on an array that the kernel returned or wrote to."""
    name = f"{result.argument} " if result.argument else ""
    shown = f"{name}{list(result.shape)} {result.dtype}"
    if not result.is_updated:
        return f"returned: {shown}"
    return f"updated in place{' and returned' * result.is_returned}: {shown}"
