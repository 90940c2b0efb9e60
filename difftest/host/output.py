"""Whether a file can be written, asked before the work whose result it is to hold."""

from __future__ import annotations

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
