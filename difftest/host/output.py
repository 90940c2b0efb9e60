"""What commands write: files, asked for before the work whose result they are to hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import click

STDOUT = Path("-")
INTERRUPTED = 130
"""What shells make of a program that an interrupt ends: 128 + SIGINT."""


def check_output(file: Path) -> None:
    """An OSError if a file cannot be written; it stays as it is, and none is left behind."""
    is_new = not file.exists()
    if not is_new and not file.is_file() and not file.is_dir():
        return  # a pipe or a device: what opens it must write it
    with file.open("a"):
        pass
    if is_new:
        file.unlink(missing_ok=True)


class OutputFile(click.Path):
    """A file to write, in a folder that is there: refused before anything runs."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path, if a file can be written there."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}", param, ctx)
        try:
            if path != STDOUT:
                check_output(path)
        except OSError as error:
            self.fail(str(error), param, ctx)
        return path


def write_file(file: Path, text: str) -> None:
    """Write a file, in a folder that is made if it is missing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(str(error)) from None


def end_interrupted(said: str) -> NoReturn:
    """End a command that Ctrl-C stopped, and say where its work is."""
    click.echo(said, err=True)
    raise click.exceptions.Exit(INTERRUPTED)
