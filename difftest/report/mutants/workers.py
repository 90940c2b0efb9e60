"""Processes that judge mutants: what loops or eats memory ends with its process."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from difftest.harness.explicit import case_from_json
from difftest.harness.spec import KernelSpec
from difftest.report.mutants.judge import INVALID, TIMEOUT, Examiner, Fate, Test
from difftest.report.mutants.mutant import Mutant
from difftest.report.mutants.suite import Death, Suite, suites_of

Specs: TypeAlias = Mapping[str, KernelSpec]
"""By the names of their kernel tests."""
Collect: TypeAlias = Callable[[Callable[[Specs], None]], None]
"""Calls a function with the specs, while the modules that their kernels need are in place."""
Task: TypeAlias = tuple[Mutant, Sequence[Test]]
START = 120.0
"""Seconds that a process may take to import the tests."""


@dataclass(frozen=True)
class Orders:
    """What each process is told when it starts: how to find the specs, and the cases, as JSON."""

    collect: Collect
    cases: Mapping[str, Sequence[str]]
    memory: int | None


def serve(connection: Connection, orders: Orders) -> None:
    """Examiner mutants that come through a connection until there are no more."""
    _limit(orders.memory)

    def work(specs: Specs) -> None:
        judge = Examiner(_suites(specs, orders.cases), connection.send)
        connection.send(None)
        with contextlib.suppress(EOFError):
            while True:
                connection.send(judge.judge(*connection.recv()))

    orders.collect(work)


def _suites(specs: Specs, cases: Mapping[str, Sequence[str]]) -> dict[str, Suite]:
    made = [
        suite
        for name, spec in specs.items()
        for suite in suites_of(name, spec, [case_from_json(text, spec) for text in cases[name]])
    ]
    return {suite.name: suite for suite in made}


def _limit(memory: int | None) -> None:
    """Let this process have so many bytes, where the system can say so."""
    with contextlib.suppress(ImportError, ValueError):
        import resource

        if memory is not None:
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (memory, most))


@dataclass
class _Worker:
    """A process and what it does now."""

    process: BaseProcess
    connection: Connection
    task: Task | None = None
    test: Test | None = None
    deadline: float = 0.0
    ran: int = 0


@dataclass
class Workers:
    """So many processes, started anew when a mutant has ended one.

    Attributes
    ----------
    limits : the seconds that a test may take.
    """

    count: int
    orders: Orders
    limits: Callable[[Test], float]
    _workers: list[_Worker] = field(default_factory=list)

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Mutant, Fate]]:
        """What becomes of each mutant, in the order in which that is known."""
        left = iter(tasks)
        try:
            self._workers = [self._start() for _ in range(self.count)]
            while self._workers:
                yield from self._turn(left)
        finally:
            for worker in self._workers:
                _end(worker)

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.orders), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, deadline=time.monotonic() + START)

    def _turn(self, left: Iterator[Task]) -> Iterator[tuple[Mutant, Fate]]:
        """Wait for news of a process, or for the first deadline."""
        first = min(one.deadline for one in self._workers)
        ready: list[Any] = wait(
            [one.connection for one in self._workers], max(0.0, first - time.monotonic())
        )
        for worker in list(self._workers):
            if worker.connection in ready:
                yield from self._hear(worker, left)
            elif time.monotonic() > worker.deadline:
                yield self._lost(worker, f"ran for more than {self._limit_of(worker):.0f} s")

    def _limit_of(self, worker: _Worker) -> float:
        return START if worker.test is None else self.limits(worker.test)

    def _hear(self, worker: _Worker, left: Iterator[Task]) -> Iterator[tuple[Mutant, Fate]]:
        try:
            told = worker.connection.recv()
        except (EOFError, ConnectionError):
            yield self._lost(worker, "its process ended")
            return
        if isinstance(told, tuple):
            worker.test, worker.ran = told, worker.ran + 1
            worker.deadline = time.monotonic() + self.limits(told)
            return
        if isinstance(told, Fate):
            assert worker.task is not None
            yield worker.task[0], told
        worker.task, worker.test, worker.ran = next(left, None), None, 0
        if worker.task is None:
            _end(worker)
            self._workers.remove(worker)
            return
        worker.deadline = time.monotonic() + START
        worker.connection.send(worker.task)

    def _lost(self, worker: _Worker, why: str) -> tuple[Mutant, Fate]:
        """What a mutant that took its process with it comes to; another process goes on.

        Raises
        ------
        RuntimeError : the process ended before it had a mutant.
        """
        _end(worker)
        self._workers.remove(worker)
        if worker.task is None:
            raise RuntimeError(f"a process that was to judge mutants could not start: {why}")
        self._workers.append(self._start())
        mutant, _ = worker.task
        if worker.test is None:
            return mutant, Fate(INVALID, why=why)
        suite, test = worker.test
        death = Death(test, TIMEOUT if "more than" in why else "process ended", why)
        return mutant, Fate(TIMEOUT, suite, death, worker.ran)


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.connection.close()
