"""What is written: files as a whole or not at all, and all in UTF-8."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def check_output(file: Path) -> None:
    """An OSError if a file cannot be written; it stays as it is, and none is left behind."""
    is_new = not file.exists()
    if not is_new and not file.is_file() and not file.is_dir():
        return  # a pipe or a device: what opens it must write it
    with file.open("a"):
        pass
    if is_new:
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """The path to write a file to: beside it, whose place it takes once it is whole.

    A disk that is full leaves what was there, and no part of what should be. A device and a pipe
    are written themselves.
    """
    home = type(file)(os.path.realpath(file))
    aside = home.with_name(f".{os.getpid()}-{home.name[-200:]}")  # its suffix says the format
    try:
        if file.exists() and not file.is_file():
            yield file
            return
        home.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        if home.exists():
            aside.chmod(home.stat().st_mode)
        os.replace(aside, home)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from None
    finally:
        aside.unlink(missing_ok=True)


def write_file(file: Path, text: str, newline: str | None = None) -> None:
    """Write a file, in a folder that is made if it is missing, or leave it as it is."""
    with replacing(file) as path, path.open("w", -1, "utf-8", "replace", newline) as opened:
        opened.write(text)


def unwritten(error: OSError) -> str:
    """What is told of an output that cannot be written.

    Standard output is let go: Python would try again at its end.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    file = "the output" if error.filename is None else error.filename
    return f"cannot write {file}: {error.strerror or error}"


def fit_streams() -> None:
    """Let standard output and error take bars and all that others wrote, whatever the locale is."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
