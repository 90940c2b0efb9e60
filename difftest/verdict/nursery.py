"""A process that has imported everything a worker needs, and forks one when it is asked.

It ends with the judge, however that ends, and takes the workers and their folders with it. It needs
a system that forks: Linux, or macOS. No kernel's code ever runs in the nursery itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from difftest.verdict.outcome import Outcome
from difftest.verdict.walls import ends_with_parent, scrubbed
from difftest.verdict.wire import WorkerEnd

_ROOT = str(Path(__file__).resolve().parents[2])
"""The folder of the package, for an isolated Python to import it from."""
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from difftest.verdict.nursery import main; main(int(sys.argv[2]), sys.argv[3])"
)
_LONGEST = 4096
_MOMENT = 2.0
"""Seconds in which a process ends that has closed its way to the judge."""


class Nursery(contextlib.AbstractContextManager["Nursery"]):
    """The judge's end of a nursery; a context that ends it and all that it has forked.

    One that has died is made anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="difftest-")
        self._control, theirs = socket.socketpair()
        with theirs:
            control = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _CODE, _ROOT, str(control), self.folder],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                env=scrubbed(os.environ, self.folder),
                pass_fds=[control],
                start_new_session=True,
            )

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_MOMENT)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fork(self) -> tuple[int, str, Connection]:
        """A new worker: its process id, its folder, and the way to it."""
        if self._process.poll() is not None:
            self.close()
            self._start()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            answer = self._ask({}, [theirs.fileno()])
            return int(answer["pid"]), str(answer["folder"]), Connection(ours.detach())

    def end(self, pid: int, *, kill: bool) -> int:
        """End a worker, or wait for its end: its exit code, or the negative of its signal."""
        return int(self._ask({"pid": pid, "kill": kill}, [])["code"])

    def _ask(self, request: dict[str, Any], files: list[int]) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], files)
                found: dict[str, Any] = json.loads(self._control.recv(_LONGEST))
            except (OSError, ValueError) as error:
                told = f"the process that starts workers has ended: {error}"
                raise WorkerEnd(Outcome.INCONCLUSIVE, told) from None
        return found


def main(control: int, folder: str) -> None:
    """Fork a worker for each request that brings a socket; end one for each that has its id."""
    from difftest.verdict.worker import serve

    alive: dict[int, str] = {}

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of the judge may be told twice
        for pid in alive:
            _end(pid, kill=True)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    ends_with_parent(signal.SIGTERM)
    with socket.socket(fileno=control) as judge:
        while True:
            text, files, _, _ = socket.recv_fds(judge, _LONGEST, 1)
            if not text:
                leave()
            request = json.loads(text)
            if not files:
                code = _end(**request)
                shutil.rmtree(alive.pop(request["pid"]), ignore_errors=True)
                judge.send(json.dumps({"code": code}).encode())
                continue
            own = tempfile.mkdtemp(dir=folder)
            if not (pid := os.fork()):
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGQUIT):  # a shell's background ignores one
                    signal.signal(number, signal.SIG_DFL)
                ends_with_parent(signal.SIGKILL)
                judge.close()
                serve(Connection(files[0]))
                os._exit(0)
            os.close(files[0])
            alive[pid] = own
            judge.send(json.dumps({"pid": pid, "folder": own}).encode())


def _end(pid: int, kill: bool) -> int:
    """End a worker; one that has closed its way here and does not end is given a moment."""
    if not kill:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            signal.sigtimedwait({signal.SIGCHLD}, _MOMENT)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)  # it may have no group yet
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
