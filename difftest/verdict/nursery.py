"""A process that has imported everything a worker needs, and forks one when it is asked.

No kernel's code ever runs in the nursery itself. Where there is no ``os.fork`` or
``socket.send_fds``, as on Windows, each worker is started by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from difftest.verdict.confinement import scrubbed
from difftest.verdict.outcome import Outcome
from difftest.verdict.wire import WorkerEnd

_ROOT = str(Path(__file__).resolve().parents[2])
"""The folder of the package, for an isolated Python to import it from."""
_LONGEST = 4096
_TRIES = 100


def isolated(
    code: str, folder: str, streams: int, files: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """A Python that runs a line of this package in a folder, in an environment of its own."""
    return subprocess.Popen(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}", _ROOT],
        stdin=streams,
        stdout=streams,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=scrubbed(os.environ, folder),
        pass_fds=files,
        start_new_session=True,
    )


class Nursery:
    """The judge's end of a nursery; a context that ends it and all that it has forked."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="difftest-", ignore_cleanup_errors=True)
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            control = theirs.fileno()
            code = f"from difftest.verdict.nursery import main; main({control})"
            self._process = isolated(code, self._folder.name, subprocess.DEVNULL, [control])

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def fork(self) -> tuple[int, BinaryIO, BinaryIO]:
        """The process id of a new worker, what it reads from and what it writes to."""
        its_input, ours = os.pipe()
        mine, its_output = os.pipe()
        try:
            pid = self._ask({}, [its_input, its_output])["pid"]
        finally:
            os.close(its_input)
            os.close(its_output)
        return int(pid), os.fdopen(ours, "wb"), os.fdopen(mine, "rb")

    def end(self, pid: int, *, kill: bool) -> int:
        """End a worker, or wait for its end: its exit code, or the negative of its signal."""
        return int(self._ask({"pid": pid, "kill": kill}, [])["code"])

    def _ask(self, request: dict[str, Any], files: list[int]) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], files)
                answer = self._control.recv(_LONGEST)
                found: dict[str, Any] = json.loads(answer)
            except (OSError, ValueError) as error:
                raise WorkerEnd(Outcome.CRASHED, f"no worker can be started: {error}") from None
        return found


def nursery() -> contextlib.AbstractContextManager[Nursery | None]:
    """One, where the system can fork."""
    can = hasattr(os, "fork") and hasattr(socket, "send_fds")
    return Nursery() if can else contextlib.nullcontext()


def main(control: int) -> None:
    """Fork a worker for each request that brings two pipes; end one for each that has its id."""
    from difftest.verdict.worker import serve

    alive: set[int] = set()
    with socket.socket(fileno=control) as judge:
        while True:
            text, files, _, _ = socket.recv_fds(judge, _LONGEST, 2)
            if not text:
                for pid in alive:
                    _end(pid, kill=True)
                return
            request = json.loads(text)
            if not files:
                alive.discard(request["pid"])
                judge.send(json.dumps({"code": _end(**request)}).encode())
                continue
            pid = os.fork()
            if not pid:
                judge.close()
                os.setsid()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                serve()
                os._exit(0)
            for file in files:
                os.close(file)
            alive.add(pid)
            judge.send(json.dumps({"pid": pid}).encode())


def _end(pid: int, kill: bool) -> int:
    """End a worker; one that has closed its pipes and does not end is given a moment."""
    for _ in range(0 if kill else _TRIES):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
