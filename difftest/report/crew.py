"""Processes that work through tasks: what loops or eats memory ends with its process."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Task = TypeVar("Task")
START = 120.0
"""Seconds that a process may take until it is ready."""


class LostTask(NamedTuple):
    """What comes of a task that took its process with it: what was heard of it, and why."""

    news: list[Any]
    is_late: bool


@dataclass
class _Member:
    """A process and what it does now."""

    process: BaseProcess
    connection: Connection
    tasks: list[Any] = field(default_factory=list)
    news: list[Any] = field(default_factory=list)
    deadline: float = 0.0
    _waited: float = 0.0

    def allow(self, seconds: float) -> None:
        """Give it so many seconds, without those in which it waits for a core (on Linux)."""
        self.deadline, self._waited = time.monotonic() + seconds, waited(self.process.pid)

    def is_late(self) -> bool:
        """Whether its time is over."""
        if time.monotonic() >= self.deadline:
            before, self._waited = self._waited, waited(self.process.pid)
            self.deadline += self._waited - before
        return time.monotonic() >= self.deadline

    def said(self, *, is_ready: bool) -> Any:
        """What it says; a LostTask if it will say no more."""
        try:
            return self.connection.recv() if is_ready else LostTask(self.news, True)
        except (EOFError, ConnectionError):
            return LostTask(self.news, False)

    def end(self) -> None:
        """End it. One that has no task sees the end of the connection."""
        self.connection.close()
        if self.tasks:
            self.process.terminate()
        self.process.join(5)
        self.process.kill()
        self.process.join()


def results(
    tasks: Iterable[Task],
    serve: Callable[[Connection], None],
    count: int,
    result: type,
    limit: Callable[[Any], float],
) -> Iterator[tuple[Task, Any]]:
    """What comes of each task, or its LostTask, as it is known. No process hears Ctrl-C.

    Parameters
    ----------
    serve : what each of ``count`` processes calls with its end of a connection. It sends None when
        it is ready, then what comes of each task that it receives.
    result : the class of what comes of a task; what else is sent is news of it.
    limit : the seconds that a task may take, after such news or after None.

    Raises
    ------
    RuntimeError : a process could not start, with what it says of that.
    """
    left, members = iter(tasks), list[_Member]()
    try:
        members += [_start(serve) for _ in range(count)]
        while members:
            first = min(one.deadline for one in members) - time.monotonic()
            ready = wait([one.connection for one in members], max(0.0, first))
            for one in [*members]:
                if one.connection not in ready and not one.is_late():
                    continue
                told = one.said(is_ready=one.connection in ready)
                if told is not None and not one.tasks:
                    raise RuntimeError(told if isinstance(told, str) else "a process did not start")
                if isinstance(told, (result, LostTask)):
                    yield one.tasks[0], told
                elif told is not None:
                    one.news.append(told)
                if told is None or isinstance(told, result):
                    one.tasks, one.news = [*itertools.islice(left, 1)], []
                    for task in one.tasks:
                        one.connection.send(task)
                if isinstance(told, LostTask) or not one.tasks:
                    members.remove(one)
                    one.end()
                    members += [_start(serve)] if isinstance(told, LostTask) else []
                one.allow(limit(one.news[-1] if one.news else None))
    finally:
        for one in members:
            one.end()


def _start(serve: Callable[[Connection], None]) -> _Member:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it inherits that
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    theirs.close()
    member = _Member(process, ours)
    member.allow(START)
    return member


def waited(process: int | None) -> float:
    """Seconds in which a process could run and had no core; 0 where the system does not tell."""
    try:
        text = Path(f"/proc/{process}/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(text.split()[1]) / 1e9
