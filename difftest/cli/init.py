"""`difftest init`: a first kernel, its reference and its test, to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

NAMES = ("scale.py", "scale_reference.py", "test_scale.py")
"""A kernel in today's dialect, its reference, and their test."""


@click.command()
@click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), default=Path(), required=False
)
def init(folder: Path) -> None:
    """Write a first kernel, its reference and its test into FOLDER (here, if none is named).

    `pytest --simulate` runs them green. Files that are there already stay as they are, and none is
    written then.
    """
    there = [name for name in NAMES if (folder / name).exists()]
    if there:
        raise click.ClickException(
            f"{folder / there[0]} is there already, and stays as it is; name another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            text = files("difftest.cli").joinpath("first", f"{name}.txt").read_text("utf-8")
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(str(error)) from None
    for name in NAMES:
        click.echo(folder / name)
    click.echo("now: pytest --simulate" + (f" {folder}" if folder != Path() else ""))
