"""Processes that judge mutants: what loops or eats memory ends with its process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

from difftest.harness.explicit import case_from_json
from difftest.harness.limits import LIMITS, USED
from difftest.harness.spec import KernelSpec
from difftest.host.pool import START, LostTask, answer_all, results
from difftest.report.mutants.judge import INVALID, TIMEOUT, Examiner, Fate, Test
from difftest.report.mutants.mutant import Mutant
from difftest.report.mutants.suite import Death, suites_of

Specs: TypeAlias = Mapping[str, KernelSpec]
"""By the names of their kernel tests."""
Collect: TypeAlias = Callable[[Callable[[Specs], None]], None]
"""Calls a function with the specs, while the modules that their kernels need are in place."""
Task: TypeAlias = tuple[Mutant, Sequence[Test]]


@dataclass(frozen=True)
class Orders:
    """What each process is told: how to find the specs, the cases as JSON, MiB for each case."""

    collect: Collect
    cases: Mapping[str, Sequence[str]]
    memory: float | None


def serve(connection: Connection, orders: Orders) -> None:
    """Judge mutants that come through a connection until there are no more."""
    if orders.memory is not None and USED.exists():
        LIMITS.memory = orders.memory

    def work(specs: Specs) -> None:
        cases = {
            name: [case_from_json(text, spec) for text in orders.cases[name]]
            for name, spec in specs.items()
        }
        judge = Examiner(suites_of(specs, cases), connection.send)
        answer_all(connection, lambda task: judge.judge(*task))

    orders.collect(work)


def judged_apart(
    tasks: Iterable[Task], count: int, orders: Orders, limits: Callable[[Test], float]
) -> Iterator[tuple[Mutant, Fate]]:
    """What becomes of each mutant in so many processes, by the seconds that a test may take."""

    def limit(test: Test | None) -> float:
        return START if test is None else limits(test)

    work = functools.partial(serve, orders=orders)
    for (mutant, _), told in results(tasks, work, count, Fate, limit):
        yield mutant, _lost(told, limit) if isinstance(told, LostTask) else told


def _lost(loss: LostTask, limit: Callable[[Test | None], float]) -> Fate:
    """What a mutant that took its process with it comes to."""
    last = loss.news[-1] if loss.news else None
    late = f"ran for more than {limit(last):.0f} s"
    why = late if loss.is_late else "its process ended"
    if last is None:
        return Fate(INVALID, why=why)
    death = Death(last[1], TIMEOUT if loss.is_late else "process ended", why)
    return Fate(TIMEOUT, last[0], death, len(loss.news))
