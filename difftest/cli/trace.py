"""`difftest trace`: a kernel's instructions as JSON."""

from __future__ import annotations

from pathlib import Path

import click

from difftest.cli.launching import KernelRun, run_options
from difftest.simulator import trace_to_json
from difftest.support.output import write_file
from difftest.testing.host.options import OutputFile


@click.command()
@run_options
@click.option(
    "-o",
    "--output",
    "file",
    type=OutputFile(),
    required=True,
    help="File to write; - for standard output.",
)
def trace(run: KernelRun, file: Path) -> None:
    """Write the trace of a kernel as JSON.

    The trace has each instruction, with its reads, writes and source line. The kernel runs on the
    simulator, on random inputs. docs/reference/trace.md describes the format.
    """
    recorded = run.launch().trace
    document = trace_to_json(recorded)
    write_file(file, document)
    click.echo(
        f"{file}: {len(recorded):,} events of {recorded.kernel} on {recorded.machine}"
    )
