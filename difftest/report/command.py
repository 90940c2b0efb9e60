"""`difftest replay`: a saved failure once more."""

from __future__ import annotations

from pathlib import Path

import click

from difftest.report.replay import replay_file


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--pdb", "debug", is_flag=True, help="Then stop there in Python's debugger.")
@click.pass_context
def replay(context: click.Context, file: Path, debug: bool) -> None:
    """Run a failure that `pytest --difftest-save DIR` saved.

    FILE holds the sources of the kernel, the reference and the test, and the case. The report says
    at which instruction the oracle, a detector, the exact run or the reference first disagrees, and
    shows its tensors. The exit code is 1 if the case still fails.
    """
    context.exit(replay_file(file, debug=debug))
