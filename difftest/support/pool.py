"""A pool of processes that work through tasks.

A task that loops or takes too much memory ends its process only. A batch, a mutation run and a
sweep use :func:`run_tasks`. They keep results in a journal (:mod:`difftest.support.journal`), so
that an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Task = TypeVar("Task")
LONGEST_WAIT = 1e6
"""Seconds: timers of the operating system overflow in longer waits."""
START = 120.0
"""Seconds that a process may take to start."""
_GRACE = 5.0
"""Seconds that an idle process may take to end by itself."""
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


class LostTask(NamedTuple):
    """The result of a task whose process died.

    Attributes
    ----------
    news : messages that the task sent before.
    is_late : whether the process was stopped because its time was over.
    """

    news: list[Any]
    is_late: bool


class PoolWorker:
    """A process, the connection to it, and its current task.

    Parameters
    ----------
    serve : function that the process calls with its end of the connection. It is pickled, unless
        the process is forked.
    method : start method of :mod:`multiprocessing`.
    """

    def __init__(
        self, serve: Callable[[Connection], None], method: str = "spawn"
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        # Daemonic processes may not start processes, and a forked one must be able to.
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs,), daemon=method == "spawn"
        )
        self.tasks: list[Any] = []
        self.news: list[Any] = []
        self.deadline = self._waited = 0.0
        self.process.start()
        theirs.close()

    def assign(self, tasks: Iterator[Any]) -> None:
        """Send the next of ``tasks`` to the process; it has no task if there are no more."""
        self.tasks = list(itertools.islice(tasks, 1))
        self.news = []
        for task in self.tasks:
            self.connection.send(task)

    def allow(self, seconds: float) -> None:
        """Set the deadline in ``seconds``; on Linux, time spent waiting for a core is added."""
        self.deadline = time.monotonic() + seconds
        self._waited = cpu_wait_seconds(self.process.pid)

    @property
    def last_news(self) -> Any:
        """The last message of the current task, or None if it sent none."""
        return self.news[-1] if self.news else None

    def is_late(self) -> bool:
        """Return whether the deadline is over."""
        if time.monotonic() >= self.deadline:
            before = self._waited
            self._waited = cpu_wait_seconds(self.process.pid)
            self.deadline += self._waited - before
        return time.monotonic() >= self.deadline

    def receive(self, *, is_ready: bool) -> Any:
        """Return the next message of the process, or a LostTask if it is late or dead."""
        try:
            return self.connection.recv() if is_ready else LostTask(self.news, True)
        except (EOFError, ConnectionError):
            return LostTask(self.news, False)

    def end(self, grace: float = _GRACE) -> None:
        """End the process; an idle process ends when its connection closes."""
        self.connection.close()
        if self.tasks:
            self.process.terminate()
        self.process.join(grace)
        self.process.kill()
        self.process.join()


def run_tasks(
    tasks: Iterable[Task],
    target: Callable[[Connection], None],
    count: int,
    result: type,
    limit: Callable[[Any], float],
) -> Iterator[tuple[Task, Any]]:
    """Yield each task with its result, or its LostTask. The processes ignore Ctrl-C.

    Parameters
    ----------
    tasks : picklable tasks, drawn as processes become idle.
    target : function that each process calls with its end of a connection. It sends None when it is
        ready, then the result of each task that it receives (see :func:`serve_tasks`).
    count : number of processes.
    result : class of a task's result. Any other message is news of the task.
    limit : function of the last news, or of None, that returns the seconds the task may take.

    Raises
    ------
    RuntimeError : a process did not start; the text is its message.
    """
    left = iter(tasks)
    members = list[PoolWorker]()
    try:
        members += [_start_worker(target) for _ in range(count)]
        while members:
            for member, message in _messages(members):
                if isinstance(message, LostTask):
                    yield member.tasks[0], message
                    members.remove(member)
                    member.end()
                    members.append(_start_worker(target))
                    continue
                if isinstance(message, result):
                    yield member.tasks[0], message
                if message is None or isinstance(message, result):
                    member.assign(left)
                else:
                    member.news.append(message)
                if not member.tasks:
                    members.remove(member)
                    member.end()
                member.allow(limit(member.last_news))
    finally:
        for member in members:  # after Ctrl-C or an error: do not wait for them
            member.end(grace=0.0)


def _messages(members: Sequence[PoolWorker]) -> Iterator[tuple[PoolWorker, Any]]:
    """Wait for the processes; yield each that sent a message, died or is late, with the message.

    Raises
    ------
    RuntimeError : a process did not start; the text is its message.
    """
    first = min(member.deadline for member in members) - time.monotonic()
    ready = wait(
        [member.connection for member in members], max(0.0, min(first, LONGEST_WAIT))
    )
    for member in list(members):
        is_ready = member.connection in ready
        if not is_ready and not member.is_late():
            continue
        message = member.receive(is_ready=is_ready)
        if message is not None and not member.tasks:
            is_text = isinstance(message, str)
            raise RuntimeError(message if is_text else "a process did not start")
        yield member, message


def serve_tasks(connection: Connection, answer: Callable[[Any], Any]) -> None:
    """Send None when ready, then the answer to each task, until the connection closes."""
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send(None)
        while True:
            connection.send(answer(connection.recv()))


def _start_worker(serve: Callable[[Connection], None]) -> PoolWorker:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process inherits it
    try:
        member = PoolWorker(serve)
    finally:
        signal.signal(signal.SIGINT, before)
    member.allow(START)
    return member


def die_with_parent(number: int) -> None:
    """Request a signal for the death of the parent process (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, number, 0, 0, 0)


def cpu_wait_seconds(process: int | None) -> float:
    """Return the seconds that a runnable process waited for a core; 0 where not counted."""
    try:
        text = Path(f"/proc/{process}/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(text.split()[1]) / 1e9
