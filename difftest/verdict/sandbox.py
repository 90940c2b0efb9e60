"""The judge's end of a worker: starts it, asks it, and ends it when its time is over."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from difftest.verdict.nursery import Nursery, isolated
from difftest.verdict.outcome import Outcome
from difftest.verdict.wire import Frame, WireError, WorkerEnd, read_frame, write_frame

_STARTING = 60.0
"""Seconds for Python and NumPy to be imported, on a machine that has other work."""
_FILE_SIZE = 2**26


class Limits(NamedTuple):
    """What a kernel may take."""

    seconds: float = 60.0
    """For its import, and for each run."""
    memory: int | None = 4096 * 2**20
    """Bytes of address space of the worker, Python and NumPy included; None for no limit."""


class Sandbox:
    """A process that runs one kernel's Python; a context that ends it.

    Parameters
    ----------
    secret : files that it may not read.
    nursery : what forks it; without one it is started by itself.

    Attributes
    ----------
    missing : the limits that this system does not have.

    Raises
    ------
    WorkerEnd : from each question, if the process ends or has no time left.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        secret: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.missing: tuple[str, ...] = ()
        self._folder = tempfile.TemporaryDirectory(prefix="difftest-", ignore_cleanup_errors=True)
        self._ended: int | None = None
        self._process = _Alone(self._folder.name) if nursery is None else _Forked(nursery)
        self._answers: queue.SimpleQueue[Frame | WireError | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        settings = {
            "folder": self._folder.name,
            "path": [one for one in sys.path if one and os.path.isdir(one)],
            "secret": [os.path.realpath(one) for one in secret],
            "memory": self.limits.memory,
            "file_size": _FILE_SIZE,
        }
        try:
            self._send(settings, ())
            self.missing = tuple(map(str, self._take(_STARTING).header["missing"]))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ask(self, header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> Frame:
        """The answer to a request."""
        self._send(header, blobs)
        return self._take(self.limits.seconds)

    def close(self) -> None:
        """End the process and whatever it has started, and remove its folder."""
        self._end(kill=True)
        for stream in (self._process.writer, self._process.reader):
            with contextlib.suppress(OSError):
                stream.close()
        self._folder.cleanup()

    def _end(self, *, kill: bool) -> int:
        if self._ended is None:
            self._ended = self._process.end(kill=kill)
        return self._ended

    def _send(self, header: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        try:
            write_frame(self._process.writer, header, blobs)
        except (OSError, ValueError):
            raise self._death() from None

    def _take(self, seconds: float) -> Frame:
        try:
            found = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._end(kill=True)
            text = f"it did not come to an end within {seconds:g} seconds"
            raise WorkerEnd(Outcome.TIMEOUT, text) from None
        if isinstance(found, Frame):
            return found
        if found is None:
            raise self._death()
        self._end(kill=True)
        raise WorkerEnd(Outcome.CRASHED, f"its process does not keep to the protocol: {found}")

    def _death(self) -> WorkerEnd:
        """Why the process is no more."""
        code = self._end(kill=False)
        if code < 0:
            name = signal.Signals(-code).name
            return WorkerEnd(Outcome.CRASHED, f"its process was ended by {name}")
        text = f"it ended its process with the exit code {code}, and gave no answer"
        return WorkerEnd(Outcome.CRASHED, text)

    def _listen(self) -> None:
        """Pass on what comes, until the end; for a read from a pipe has no time limit anywhere."""
        try:
            while (frame := read_frame(self._process.reader)) is not None:
                self._answers.put(frame)
            self._answers.put(None)
        except WireError as error:
            self._answers.put(error)
        except (OSError, ValueError):  # closed meanwhile
            self._answers.put(None)


class _Alone:
    """A worker that is started by itself."""

    def __init__(self, folder: str) -> None:
        code = "from difftest.verdict.worker import serve; serve()"
        self._process = isolated(code, folder, subprocess.PIPE)
        self.writer = cast("BinaryIO", self._process.stdin)
        self.reader = cast("BinaryIO", self._process.stdout)

    def end(self, *, kill: bool) -> int:
        """End it, or wait until it has ended: its exit code, or the negative of its signal."""
        if not kill:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(5)
        if os.name == "posix":
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        return self._process.wait()


class _Forked:
    """A worker of a nursery."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self.pid, self.writer, self.reader = nursery.fork()

    def end(self, *, kill: bool) -> int:
        """As of one that is alone."""
        return self._nursery.end(self.pid, kill=kill)
