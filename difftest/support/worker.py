"""A process of its own for a kernel: what hangs or crashes there ends that process and no other.

The process is forked, so that it has the kernel as it is, closures and patched modules included.
The Neuron runtime starts in the child alone, holds the core for as long as the child lives, and is
therefore started once for many calls of one kernel. Linux only, as the Neuron driver is.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from typing import IO, Any, NamedTuple

from difftest.support.pool import PoolWorker, die_with_parent

_FORK_WARNING = ".*multi-threaded.*fork.*"
_TAIL_BYTES = 30_000
_GRACE_SECONDS = 1.0


class JobResult(NamedTuple):
    """What came of one job in the worker.

    Attributes
    ----------
    value : what the function returned; None if it raised.
    error : what it raised, or a :class:`RemoteError` in its place where it cannot be pickled.
        Its cause is its traceback there. A :class:`WorkerEndedError` if there is no answer.
    log : what it and its compiler wrote to stdout and stderr, the last part of it.
    """

    value: Any
    error: BaseException | None
    log: str


class RemoteError(Exception):
    """Stands for an exception of the worker that cannot be pickled: its type and its text."""


class WorkerEndedError(Exception):
    """The process hung and was killed, or ended in the middle of the job."""


class Worker(PoolWorker):
    """A forked process that calls one function again and again.

    Parameters
    ----------
    function : called in the child with the arguments of each job, which are pickled.
    environment : variables that are set in the child before anything runs.
    """

    def __init__(self, function: Callable[..., Any], environment: Mapping[str, str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - see _close
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # pytest-xdist's workers have a second thread. It only waits for bytes, and the child
            # uses nothing of it.
            warnings.filterwarnings("ignore", _FORK_WARNING, DeprecationWarning)
            serve = functools.partial(self._serve, function, dict(environment), os.getpid())
            super().__init__(serve, "fork")
        atexit.register(self.close)  # else Python would wait for the process, and it for jobs

    def run(self, *arguments: Any, timeout: float) -> JobResult:
        """Call the function in the child, which is killed after ``timeout`` seconds.

        Without an answer in that time, or at all, the worker is closed.
        """
        began = self._log.seek(0, os.SEEK_END)
        try:
            self.connection.send_bytes(pickle.dumps(arguments))
            if not self.connection.poll(timeout):
                hung = WorkerEndedError(f"no answer within {timeout:g} s: the process was killed")
                return JobResult(None, hung, self._close(began, grace=0.0))
            value, error = pickle.loads(self.connection.recv_bytes())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.process.join()
            end = self.process.exitcode or 0
            how = f"killed by {signal.Signals(-end).name}" if end < 0 else f"with exit code {end}"
            died = WorkerEndedError(f"the process ended in the middle of it, {how}")
            return JobResult(None, died, self._close(began))
        return JobResult(value, error, self._read_log(began))

    def close(self) -> None:
        """End the process, which frees the core; a second time does nothing."""
        if not self._log.closed:
            self._close(0)

    def _close(self, began: int, grace: float = _GRACE_SECONDS) -> str:
        atexit.unregister(self.close)
        self.end(grace)
        log = self._read_log(began)
        self.process.close()
        self._log.close()
        return log

    def _read_log(self, began: int) -> str:
        end = self._log.seek(0, os.SEEK_END)
        start = max(began, end - _TAIL_BYTES)
        text = os.pread(self._log.fileno(), end - start, start).decode(errors="replace").strip()
        return f"[…]{text}" if start > began else text

    def _serve(
        self,
        function: Callable[..., Any],
        environment: dict[str, str],
        parent: int,
        connection: Connection,
    ) -> None:
        """The child: answer jobs until the parent closes its end."""
        self.connection.close()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends
        os.dup2(self._log.fileno(), 1)
        os.dup2(self._log.fileno(), 2)
        # Past pytest's capture, and open for as long as this process lives.
        sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        faulthandler.enable(sys.stderr)  # a crash says where, in the log
        os.environ.update(environment)
        while True:
            try:
                arguments = pickle.loads(connection.recv_bytes())
            except EOFError:
                return
            connection.send_bytes(_call(function, arguments))


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """The pickled result and error of one call; an error that cannot be pickled by its text."""
    try:
        return pickle.dumps((function(*arguments), None))
    except Exception as error:
        try:
            pickled = pickle.dumps((None, ExceptionWithTraceback(error, error.__traceback__)))
            pickle.loads(pickled)
        except Exception:
            # Whatever an SDK's exception does when it is pickled, its type and text get through.
            stand_in = RemoteError(f"{type(error).__name__}: {error}")
            return pickle.dumps((None, ExceptionWithTraceback(stand_in, error.__traceback__)))
        return pickled
