"""Atomic writes of files, and standard streams in UTF-8."""

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
"""The standard output that is kept for a file named ``-``."""


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
    """Return the text of standard input with its line ends unchanged."""
    binary = getattr(sys.stdin, "buffer", None)
    return binary.read().decode("utf-8-sig", "replace") if binary else sys.stdin.read()


def check_output(file: Path) -> None:
    """Raise an OSError if a file cannot be written; leave the file as it is."""
    is_new = not file.exists()
    if not is_new and not file.is_file() and not file.is_dir():
        return  # opening a pipe or a device has effects: only the writer may
    with file.open("a"):
        pass
    if is_new:
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_write(file: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, and rename it when the block ends.

    If the disk is full, the old file stays and no part of the new one remains. For a device or a
    pipe, the path itself is yielded.
    """
    home = type(file)(os.path.realpath(file))
    # The end of the name stays, because the suffix may select a format.
    aside = home.with_name(f".{os.getpid()}-{home.name[-200:]}")
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
    """Write a text file atomically, and make its folder if it is missing.

    The file ``-`` is standard output.
    """
    if file == STANDARD:
        stream = _KEPT[-1] if _KEPT else sys.stdout
        stream.write(text)
        stream.flush()
        return
    with (
        atomic_write(file) as path,
        path.open("w", -1, "utf-8", "replace", newline) as opened,
    ):
        opened.write(text)


def format_write_error(error: OSError) -> str:
    """Return the message for an output that cannot be written.

    Standard output is redirected to the null device, because Python would flush it again at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    file = "the output" if error.filename is None else error.filename
    return f"cannot write {file}: {error.strerror or error}"


def fit_streams() -> None:
    """Set standard output and error to UTF-8, for any locale.

    A closed stream (``>&-``) is opened on the null device. Otherwise the next file that is opened
    would get its descriptor.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_null(number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _open_null(number: int) -> None:
    """Open the null device as descriptor ``number``."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
