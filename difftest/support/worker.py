"""A separate process for a kernel: a hang or a crash ends that process only.

The process is forked, so that it has the kernel's closures and patched modules. The Neuron runtime
starts in the child alone and holds the core while the child lives. It therefore starts once for
many calls of one kernel. Linux only, as the Neuron driver is.
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
"""The most bytes of a job's output that its result holds: the last ones."""
_GRACE_SECONDS = 1.0
"""Seconds that a process may take to end after its connection has closed."""


class JobResult(NamedTuple):
    """The result of one job in the worker.

    Attributes
    ----------
    value : result of the function; None if it raised.
    error : exception of the function, or a :class:`RemoteError` if that cannot be pickled. Its
        cause holds the traceback in the worker. A :class:`WorkerEndedError` if the worker gave no
        answer. None if the function returned.
    log : last part of the output that the function and its compiler wrote to stdout and stderr.
    """

    value: Any
    error: BaseException | None
    log: str


class RemoteError(Exception):
    """The type and the text of a worker's exception that cannot be pickled."""


class WorkerEndedError(Exception):
    """The process hung and was killed, or ended in the middle of the job."""


class Worker(PoolWorker):
    """A forked process that calls one function again and again.

    Parameters
    ----------
    function : called in the child with the arguments of each job, which are pickled.
    environment : variables that are set in the child first.
    """

    def __init__(
        self, function: Callable[..., Any], environment: Mapping[str, str]
    ) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - see _close
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # A pytest-xdist worker has a second thread, which only waits for bytes. The child does
            # not use it.
            warnings.filterwarnings("ignore", _FORK_WARNING, DeprecationWarning)
            serve = functools.partial(
                self._serve, function, dict(environment), os.getpid()
            )
            super().__init__(serve, "fork")
        # Otherwise Python waits at exit for the process, which waits for jobs.
        atexit.register(self.close)

    def run(self, *arguments: Any, timeout: float) -> JobResult:
        """Call the function in the child and return the result.

        If the child gives no answer within ``timeout`` seconds, or dies, the worker is closed.
        """
        began = self._log.seek(0, os.SEEK_END)
        try:
            self.connection.send_bytes(pickle.dumps(arguments))
            if not self.connection.poll(timeout):
                hung = WorkerEndedError(
                    f"no answer within {timeout:g} s: the process was killed"
                )
                return JobResult(None, hung, self._close(began, grace=0.0))
            value, error = pickle.loads(self.connection.recv_bytes())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.process.join()
            end = self.process.exitcode or 0
            how = f"with exit code {end}"
            if end < 0:
                how = f"killed by {signal.Signals(-end).name}"
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
        text = (
            os.pread(self._log.fileno(), end - start, start)
            .decode(errors="replace")
            .strip()
        )
        return f"[…]{text}" if start > began else text

    def _serve(
        self,
        function: Callable[..., Any],
        environment: dict[str, str],
        parent: int,
        connection: Connection,
    ) -> None:
        """Answer jobs in the child until the parent closes its end."""
        self.connection.close()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call above
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
        os.dup2(self._log.fileno(), 1)
        os.dup2(self._log.fileno(), 2)
        # These bypass pytest's capture, and stay open while this process lives.
        sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        faulthandler.enable(sys.stderr)  # a crash writes its traceback to the log
        os.environ.update(environment)
        while True:
            try:
                arguments = pickle.loads(connection.recv_bytes())
            except EOFError:
                return
            connection.send_bytes(_call(function, arguments))


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    """Return the pickled result and error of one call.

    An error that cannot be pickled becomes a :class:`RemoteError` with its text.
    """
    try:
        return pickle.dumps((function(*arguments), None))
    except Exception as error:
        try:
            pickled = pickle.dumps(
                (None, ExceptionWithTraceback(error, error.__traceback__))
            )
            pickle.loads(pickled)
        except Exception:
            # An SDK's exception may do anything when it is pickled.
            remote = RemoteError(f"{type(error).__name__}: {error}")
            return pickle.dumps(
                (None, ExceptionWithTraceback(remote, error.__traceback__))
            )
        return pickled
