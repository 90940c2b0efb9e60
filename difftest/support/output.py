"""What is written: files as a whole or not at all, and all in UTF-8."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

STANDARD = Path("-")
"""The name of standard input among files to read, and of standard output among files to write."""
_KEPT: list[TextIO] = []
"""Standard output, while a file named ``-`` has it for itself."""


@contextlib.contextmanager
def kept_for_file() -> Iterator[None]:
    """Keep standard output for a file named ``-``: other text goes to standard error within."""
    kept = sys.stdout
    _KEPT.append(kept)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = kept
        _KEPT.pop()


def read_standard_input() -> str:
    """Return all text of standard input, with the ends of lines that it has."""
    binary = getattr(sys.stdin, "buffer", None)
    return binary.read().decode("utf-8-sig", "replace") if binary else sys.stdin.read()


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
def atomic_write(file: Path) -> Iterator[Path]:
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
    """Write a file, in a folder that is made if it is missing, or leave it as it is.

    The file ``-`` is standard output.
    """
    if file == STANDARD:
        stream = _KEPT[-1] if _KEPT else sys.stdout
        stream.write(text)
        stream.flush()
        return
    with atomic_write(file) as path, path.open("w", -1, "utf-8", "replace", newline) as opened:
        opened.write(text)


def format_write_error(error: OSError) -> str:
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
    """Let standard output and error take bars and all that others wrote, whatever the locale is.

    A stream that is closed (``>&-``) reads and writes nothing, instead of the first file that is
    opened and would get its number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_nothing(number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _open_nothing(number: int) -> None:
    """Open the null device under a descriptor's number."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
