"""The one pool: processes that work through tasks. What loops or eats memory ends with its process.

A batch, a mutation run and a sweep stand on :func:`results`. What is known goes to a journal
(:mod:`difftest.support.journal`), so that a run which is ended in any way goes on where it was.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Task = TypeVar("Task")
START = 120.0
"""Seconds that a process may take until it is ready."""
_GRACE = 5.0
"""Seconds in which a process without a task may end by itself."""
_DEATH_SIGNAL = 1
"""The number of Linux's prctl for that."""


class LostTask(NamedTuple):
    """What comes of a task that took its process with it: what was heard of it, and why."""

    news: list[Any]
    is_late: bool


class PoolWorker:
    """A process at the other end of a connection, and what it does now.

    Parameters
    ----------
    serve : what the process calls with its end of the connection; pickled, unless it is forked.
    """

    def __init__(self, serve: Callable[[Connection], None], method: str = "spawn") -> None:
        context: Any = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        # One that is forked may start processes of its own.
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs,), daemon=method == "spawn"
        )
        self.tasks: list[Any] = []
        self.news: list[Any] = []
        self.deadline = self._waited = 0.0
        self.process.start()
        theirs.close()

    def allow(self, seconds: float) -> None:
        """Give it so many seconds, without those in which it waits for a core (on Linux)."""
        self.deadline, self._waited = time.monotonic() + seconds, cpu_wait_seconds(self.process.pid)

    def is_late(self) -> bool:
        """Whether its time is over."""
        if time.monotonic() >= self.deadline:
            before = self._waited
            self._waited = cpu_wait_seconds(self.process.pid)
            self.deadline += self._waited - before
        return time.monotonic() >= self.deadline

    def receive(self, *, is_ready: bool) -> Any:
        """What it says; a LostTask if it will say no more."""
        try:
            return self.connection.recv() if is_ready else LostTask(self.news, True)
        except (EOFError, ConnectionError):
            return LostTask(self.news, False)

    def end(self, grace: float = _GRACE) -> None:
        """End it. One that has no task sees the end of the connection."""
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
    """What comes of each task, or its LostTask, as it is known. No process hears Ctrl-C.

    Parameters
    ----------
    serve : what each of ``count`` processes calls with its end of a connection. It sends None when
        it is ready, then what comes of each task that it receives (see :func:`answer_all`).
    result : the class of what comes of a task; what else is sent is news of it.
    limit : the seconds that a task may take, after such news or after None.

    Raises
    ------
    RuntimeError : a process could not start, with what it says of that.
    """
    left = iter(tasks)
    members = list[PoolWorker]()
    try:
        members += [_started(target) for _ in range(count)]
        while members:
            first = min(member.deadline for member in members) - time.monotonic()
            ready = wait([member.connection for member in members], max(0.0, min(first, 1e6)))
            for member in list(members):
                if member.connection not in ready and not member.is_late():
                    continue
                told = member.receive(is_ready=member.connection in ready)
                if told is not None and not member.tasks:
                    raise RuntimeError(told if isinstance(told, str) else "a process did not start")
                if isinstance(told, (result, LostTask)):
                    yield member.tasks[0], told
                elif told is not None:
                    member.news.append(told)
                if told is None or isinstance(told, result):
                    member.tasks = list(itertools.islice(left, 1))
                    member.news = []
                    for task in member.tasks:
                        member.connection.send(task)
                if isinstance(told, LostTask) or not member.tasks:
                    members.remove(member)
                    member.end()
                    members += [_started(target)] if isinstance(told, LostTask) else []
                member.allow(limit(member.news[-1] if member.news else None))
    finally:
        for member in members:  # after Ctrl-C, or an error: one that still starts is not waited for
            member.end(grace=0.0)


def serve_tasks(connection: Connection, answer: Callable[[Any], Any]) -> None:
    """Say that this process is ready, and what comes of each task, until no more come."""
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send(None)
        while True:
            connection.send(answer(connection.recv()))


def _started(serve: Callable[[Connection], None]) -> PoolWorker:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it inherits that
    try:
        member = PoolWorker(serve)
    finally:
        signal.signal(signal.SIGINT, before)
    member.allow(START)
    return member


def die_with_parent(number: int) -> None:
    """Get a signal when the process that started this one is no more, where the system has that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, number, 0, 0, 0)


def cpu_wait_seconds(process: int | None) -> float:
    """Seconds in which a process could run and had no core; 0 where the system does not tell."""
    try:
        text = Path(f"/proc/{process}/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(text.split()[1]) / 1e9
