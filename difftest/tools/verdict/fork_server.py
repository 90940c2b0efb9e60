"""A fork server: a process that has imported all modules of a worker, and forks workers.

It ends with the judge, and then ends its workers and removes their folders. It runs no code of a
kernel.
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
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from difftest.simulator.tape_json import MOST_BYTES
from difftest.support.pool import die_with_parent
from difftest.tools.verdict import wire
from difftest.tools.verdict.confinement import bubblewrap_command, clean_environment
from difftest.tools.verdict.outcome import Outcome
from difftest.tools.verdict.wire import Frame, WireError, WorkerEnd

_ROOT = str(Path(__file__).resolve().parents[3])
"""The folder from which an isolated Python imports the package."""
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from difftest.tools.verdict.fork_server import fork_server_main; "
    "fork_server_main(int(sys.argv[2]), sys.argv[3])"
)
_LONGEST = 4096
_MOMENT = 2.0  # seconds for a process to end after it has closed its connection


class ForkServer(contextlib.AbstractContextManager["ForkServer"]):
    """The judge's handle of a fork server; a context that ends the server and its workers.

    A server that has died is started again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="difftest-")
        self._control, theirs = socket.socketpair()
        with theirs:
            control = theirs.fileno()
            command = [
                sys.executable,
                "-I",
                "-c",
                _CODE,
                _ROOT,
                str(control),
                self.folder,
            ]
            self._process = subprocess.Popen(
                [*bubblewrap_command(self.folder), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                env=clean_environment(os.environ, self.folder),
                pass_fds=[control],
                start_new_session=True,
            )

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_MOMENT)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fork(self) -> tuple[int, str, Connection]:
        """Fork a worker; return its process id, its folder, and a connection to it."""
        if self._process.poll() is not None:
            self.close()
            self._start()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            answer = self._ask({}, [theirs.fileno()])
            return int(answer["pid"]), str(answer["folder"]), Connection(ours.detach())

    def end(self, pid: int, *, kill: bool) -> int:
        """End a worker, or wait for its end; return its exit code, or its negative signal."""
        return int(self._ask({"pid": pid, "kill": kill}, [])["code"])

    def _ask(self, request: dict[str, Any], files: list[int]) -> dict[str, Any]:
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], files)
                answer: dict[str, Any] = json.loads(self._control.recv(_LONGEST))
            except (OSError, ValueError) as error:
                text = f"the process that starts workers has ended: {error}"
                raise WorkerEnd(Outcome.INCONCLUSIVE, text) from None
        return answer


def fork_server_main(control: int, folder: str) -> None:
    """Fork a worker for each request with a socket; end a worker for each request with its id."""
    from difftest.tools.verdict.worker import serve_requests

    alive: dict[int, str] = {}

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the signal may arrive twice
        for pid in alive:
            _end(pid, kill=True)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    die_with_parent(signal.SIGTERM)
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
                # A shell starts background jobs with SIGQUIT ignored.
                for number in (signal.SIGTERM, signal.SIGQUIT):
                    signal.signal(number, signal.SIG_DFL)
                die_with_parent(signal.SIGKILL)
                judge.close()
                serve_requests(Connection(files[0]))
                os._exit(0)
            os.close(files[0])
            alive[pid] = own
            judge.send(json.dumps({"pid": pid, "folder": own}).encode())


def _end(pid: int, kill: bool) -> int:
    """End a worker and return its exit code; without ``kill``, first wait a moment for its end."""
    if not kill:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            signal.sigtimedwait({signal.SIGCHLD}, _MOMENT)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)  # its process group may not exist yet
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


RUNS = 10
"""The seconds that all runs of a kernel may take, as a multiple of the seconds of one run."""
_STARTING = 60.0  # seconds to import Python and NumPy on a busy machine


class Limits(NamedTuple):
    """The limits of a kernel.

    Attributes
    ----------
    seconds : seconds for the kernel's import, and for each run.
    memory : bytes of the worker's address space, Python and NumPy included.
    """

    seconds: float = 60.0
    memory: int = 4096 * 2**20


class Sandbox(contextlib.AbstractContextManager["Sandbox"]):
    """A process that runs one kernel's Python, forked by a fork server; a context that ends it.

    Each request raises WorkerEnd if the process ends or exceeds its time.

    Attributes
    ----------
    missing : the restrictions that this system could not apply.
    """

    def __init__(
        self, limits: Limits | None = None, fork_server: ForkServer | None = None
    ) -> None:
        self.limits = limits or Limits()
        self._fork_server = fork_server or ForkServer()
        self._is_own = fork_server is None
        self._left = RUNS * self.limits.seconds
        self._ended: int | None = None
        self._late = False
        self._pid = 0
        try:
            self._pid, folder, self._connection = self._fork_server.fork()
            bounds = {"memory": self.limits.memory, "seconds": self._left + 1}
            settings = {"folder": folder, **bounds}
            self.missing = tuple(
                map(str, self._ask(settings, (), _STARTING).header["missing"])
            )
        except BaseException:
            self.close()
            raise

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ask(self, header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> Frame:
        began = time.monotonic()
        try:
            return self._ask(header, blobs, min(self.limits.seconds, self._left))
        finally:
            self._left = max(0.0, self._left - (time.monotonic() - began))

    def _ask(
        self, header: Mapping[str, Any], blobs: Sequence[bytes], seconds: float
    ) -> Frame:
        """Send a request and return the answer; the worker ends when the time is over."""
        clock = threading.Timer(seconds, self._expire)
        clock.daemon = True
        clock.start()
        try:
            wire.send(self._connection, header, blobs)
            frame = wire.receive(self._connection, wire.MOST_HEADER, MOST_BYTES, 1)
            if frame is not None:
                return wire.validate_reply(frame)
        except WireError as error:
            if not self._late:
                self._end(kill=True)
                text = f"its process breaks the protocol: {error}"
                raise WorkerEnd(Outcome.CRASHED, text) from None
        except OSError:
            pass  # the worker has ended: _death returns the cause
        finally:
            clock.cancel()
        raise self._death()

    def _expire(self) -> None:
        self._late = True
        self._end(kill=True)

    def close(self) -> None:
        """End the process and its children, and remove its folder."""
        if self._pid:
            self._end(kill=True)
            self._connection.close()
        if self._is_own:
            self._fork_server.close()

    def _end(self, *, kill: bool) -> int:
        if self._ended is None:
            self._ended = 0
            try:
                self._ended = self._fork_server.end(self._pid, kill=kill)
            except WorkerEnd:
                if not kill:
                    raise
        return self._ended

    def _death(self) -> WorkerEnd:
        if self._late:
            each = self.limits.seconds
            total = RUNS * self.limits.seconds
            text = f"a run did not end within {each:g} seconds, or all runs within {total:g}"
            return WorkerEnd(Outcome.TIMEOUT, text)
        code = self._end(kill=False)
        if code < 0:
            name = signal.Signals(-code).name
            text = f"its process was ended by {name}"
        else:
            text = f"its process ended without an answer, with the exit code {code}"
        return WorkerEnd(Outcome.CRASHED, text, is_death=True)
