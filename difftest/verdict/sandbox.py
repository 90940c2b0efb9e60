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
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from difftest.verdict.confinement import scrubbed
from difftest.verdict.outcome import Outcome
from difftest.verdict.wire import Frame, WireError, read_frame, write_frame

_START = (
    "import sys; sys.path.insert(0, sys.argv[1])\nfrom difftest.verdict.worker import main; main()"
)
_ROOT = str(Path(__file__).resolve().parents[2])
_STARTING = 60.0
"""Seconds for Python and NumPy to be imported, on a machine that has other work."""
_FILE_SIZE = 2**26


class Limits(NamedTuple):
    """What a kernel may take."""

    seconds: float = 60.0
    """For its import, and for each run."""
    memory: int | None = 4096 * 2**20
    """Bytes of address space of the worker, Python and NumPy included; None for no limit."""


class WorkerEnd(Exception):
    """A worker that will not answer any more, and why."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Sandbox:
    """A process that runs one kernel's Python; a context that ends it.

    Parameters
    ----------
    secret : files that it may not read.

    Attributes
    ----------
    missing : the limits that this system does not have.

    Raises
    ------
    WorkerEnd : from each question, if the process ends or has no time left.
    """

    def __init__(self, limits: Limits | None = None, secret: Sequence[str] = ()) -> None:
        self.limits = limits or Limits()
        self.missing: tuple[str, ...] = ()
        self._folder = tempfile.TemporaryDirectory(prefix="difftest-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            env=scrubbed(os.environ, self._folder.name),
            close_fds=True,
            start_new_session=True,
        )
        self._pipes = cast("tuple[BinaryIO, BinaryIO]", (self._process.stdin, self._process.stdout))
        self._answers: queue.SimpleQueue[Frame | WireError | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        settings = {
            "path": [one for one in sys.path if one and os.path.isdir(one)],
            "secret": [*secret],
            "memory": self.limits.memory,
            "processor": None,
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
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL) if os.name == "posix" else None
        self._process.kill()
        self._process.wait()
        for stream in self._pipes:
            with contextlib.suppress(OSError):
                stream.close()
        self._folder.cleanup()

    def _send(self, header: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        try:
            write_frame(self._pipes[0], header, blobs)
        except OSError:
            raise self._ended() from None

    def _take(self, seconds: float) -> Frame:
        try:
            found = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise WorkerEnd(
                Outcome.TIMEOUT, f"it did not come to an end within {seconds:g} seconds"
            ) from None
        if isinstance(found, Frame):
            return found
        if found is None:
            raise self._ended()
        raise WorkerEnd(Outcome.CRASHED, f"its process does not keep to the protocol: {found}")

    def _ended(self) -> WorkerEnd:
        """Why the process is no more."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            how = Outcome.TIMEOUT if name == "SIGXCPU" else Outcome.CRASHED
            return WorkerEnd(how, f"its process was ended by {name}")
        return WorkerEnd(
            Outcome.CRASHED, f"it ended its process with the exit code {code}, and gave no answer"
        )

    def _listen(self) -> None:
        """Pass on what comes, until the end; for a read from a pipe has no time limit anywhere."""
        try:
            while (frame := read_frame(self._pipes[1])) is not None:
                self._answers.put(frame)
            self._answers.put(None)
        except WireError as error:
            self._answers.put(error)
        except (OSError, ValueError):  # closed meanwhile
            self._answers.put(None)
