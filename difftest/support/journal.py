"""What is known of tasks, in a file that grows by a line for each.

A line is on the disk before the next one begins, so that work which is ended in any way goes on
where it was.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import click

_FAR = 2**40
_FIRST = b'{"key": "'
"""How each line begins."""


class Journal:
    """The objects of keys, in a file that grows by a line for each.

    Parameters
    ----------
    member : what a line calls its object. of : whose results they are, in words.

    Raises
    ------
    click.UsageError : no line of the file is a result, or another process writes to it.
    """

    def __init__(self, file: Path, member: str = "verdict", of: str = "a batch") -> None:
        self.file = file
        self.member = member
        self.known: dict[str, dict[str, Any]] = {}
        self._open = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self.close = weakref.finalize(self, os.close, self._open)
        self._alone()
        text = file.read_bytes()
        whole, _, torn = text.rpartition(b"\n")
        lines = whole.splitlines()
        broken = 0
        for line in lines:
            try:
                row = json.loads(line)
                self.known[row["key"]] = row[member]
            except (ValueError, KeyError, TypeError):
                broken += 1
        if (broken and broken == len(lines)) or not torn.startswith(_FIRST[: len(torn)]):
            raise click.UsageError(f"{file} holds no results of {of}")
        if broken:  # while pytest collects, sys.stderr is its own
            told = f"{file}: {broken} of {len(lines)} lines cannot be read; those tasks run again"
            click.echo(told, sys.__stderr__)
        if torn:
            os.truncate(self._open, len(text) - len(torn))

    def _alone(self) -> None:
        """Let no other process have the file for its results, until this one ends."""
        try:
            if sys.platform == "win32":
                import msvcrt

                os.lseek(self._open, _FAR, os.SEEK_SET)  # others may read the lines
                msvcrt.locking(self._open, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(self._open, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            told = f"another process writes to {self.file}: wait for it, or name another file"
            raise click.UsageError(told) from None

    def add(self, key: str, result: dict[str, Any]) -> None:
        """Write a line, and see it on the disk; an OSError names the file, as on a full one."""
        self.known[key] = result
        try:
            with open(self._open, "ab", closefd=False) as file:
                file.write(json.dumps({"key": key, self.member: result}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.file)) from None
