"""A file of task results, one line for each.

Each line is on the disk before the next one begins, so that an interrupted run resumes where it
stopped.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import click

_LOCKED_BYTE = 2**40
"""The byte that Windows locks: beyond all lines, because others may not read a locked byte."""
_FIRST = b'{"key": "'
"""The beginning of each line."""


class Journal:
    """A mapping of keys to result objects, stored in a file of one line for each.

    Parameters
    ----------
    file : path of the journal, which is created if it is missing.
    member : name of the result in the JSON of a line.
    of : name of the run in messages, such as ``a batch``.

    Raises
    ------
    click.UsageError : no line of the file is a result, or another process writes to it.
    """

    def __init__(
        self, file: Path, member: str = "verdict", of: str = "a batch"
    ) -> None:
        self.file = file
        self.member = member
        self.known: dict[str, dict[str, Any]] = {}
        self._open = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self.close = weakref.finalize(self, os.close, self._open)
        self._lock()
        text = file.read_bytes()
        whole, _, torn = text.rpartition(b"\n")
        lines = whole.splitlines()
        broken = sum(not self._keep(line) for line in lines)
        is_all_broken = broken > 0 and broken == len(lines)
        if is_all_broken or not torn.startswith(_FIRST[: len(torn)]):
            raise click.UsageError(f"{file} holds no results of {of}")
        if broken:  # while pytest collects, it captures sys.stderr
            unread = f"{broken} of {len(lines)} lines cannot be read"
            message = f"{file}: {unread}; those tasks run again"
            click.echo(message, sys.__stderr__)
        if torn:
            os.truncate(self._open, len(text) - len(torn))

    def _keep(self, line: bytes) -> bool:
        """Keep the result of a line; return whether the line has one."""
        try:
            row = json.loads(line)
            self.known[row["key"]] = row[self.member]
        except (ValueError, KeyError, TypeError):
            return False
        return True

    def _lock(self) -> None:
        """Lock the file against other writers until this process ends."""
        try:
            if sys.platform == "win32":
                import msvcrt

                os.lseek(self._open, _LOCKED_BYTE, os.SEEK_SET)
                msvcrt.locking(self._open, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(self._open, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"another process writes to {self.file}: wait for it, or name another file"
            raise click.UsageError(message) from None

    def add(self, key: str, result: dict[str, Any]) -> None:
        """Append a line and flush it to the disk.

        Raises
        ------
        OSError : the line cannot be written, as on a full disk; the error names the file.
        """
        self.known[key] = result
        try:
            with open(self._open, "ab", closefd=False) as file:
                file.write(
                    json.dumps({"key": key, self.member: result}).encode() + b"\n"
                )
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.file)) from None
