"""All mutants of the kernels of some tests: which tests may find each, and what became of it.

Processes judge them: what loops or eats memory ends with its process. What is known of each is a
line of a file, written as soon as it is known, for the runs after this one.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from difftest.simulator.program_scheduler import one_thread
from difftest.support.journal import Journal
from difftest.support.pool import START, LostTask, run_tasks, serve_tasks
from difftest.testing.harness.explicit import case_from_json
from difftest.testing.harness.limits import LIMITS, USED
from difftest.testing.harness.spec import KernelSpec
from difftest.tools.mutants.generation import mutants_of
from difftest.tools.mutants.mutant import Mutant, functions_in, functions_of, read_source
from difftest.tools.mutants.mutant_runner import (
    EQUIVALENT,
    INVALID,
    NOT_COVERED,
    TIMEOUT,
    MutantResult,
    MutantRunner,
    Test,
)
from difftest.tools.mutants.suite import (
    EDGES,
    Kill,
    Suite,
    drawn_cases,
    is_quick,
    lines_run,
    suites_of,
)

FOLDER = Path(".difftest")
FILE = "fates.jsonl"
_ROOMS = ("analysis", "simulator", "testing")


class ResultCache:
    """Results by the key of a mutant, in a journal.

    A result counts as long as the suites that could find its mutant are the same: kernels,
    references, cases, refusals, and what runs and judges them. Of one that counts no more, who
    found the mutant is still known: that test is asked first. A ``fresh`` one forgets all.
    """

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        if fresh:
            (folder / FILE).unlink(missing_ok=True)
        self._journal = Journal(folder / FILE, "fate", "mutants")
        self.close = self._journal.close

    def result(self, key: str, digest: str) -> MutantResult | None:
        """What is known of a mutant under suites with this digest."""
        row = self._journal.known.get(key, {})
        if row.get("digest") != digest:
            return None
        death = Kill(**row["death"]) if row["death"] else None
        return MutantResult(
            **{member.name: row[member.name] for member in fields(MutantResult)} | {"death": death}
        )

    def killer(self, key: str) -> tuple[str, str] | None:
        """The suite and the test that found a mutant last time."""
        row = self._journal.known.get(key, {})
        return (row["suite"], row["death"]["test"]) if row.get("death") else None

    def add(self, key: str, digest: str, result: MutantResult) -> None:
        """Write a result down."""
        self._journal.add(key, {"digest": digest, **asdict(result)})


def digest_of(suites: Iterable[Suite]) -> str:
    """A digest of all that decides what tests find."""
    whole = hashlib.sha256(package_digest().encode())
    for suite in suites:
        for part in (suite.name, *_parts(suite.spec), *(case.to_json() for case in suite.drawn)):
            whole.update(part.encode() + b"\0")
    return whole.hexdigest()[:24]


def _parts(spec: KernelSpec) -> Iterable[str]:
    """The text of what is code in a spec, and what prints its own value."""
    yield from _text(spec.kernel)
    for member in fields(spec):
        value: Any = getattr(spec, member.name)
        if member.name in ("kernel", "others", "domain"):
            continue  # the first is there, the second apart, and the last is in the cases
        if callable(value):
            yield from _text(value)
        elif member.name == "inputs":
            yield repr({name: spec.input(name).dimensions for name in value})
        else:
            yield f"{member.name}={value!r}"


def _text(function: Callable[..., Any]) -> Iterable[str]:
    for part in functions_of(function):
        source = read_source(part.__code__.co_filename)
        line = part.__code__.co_firstlineno
        yield source.segment(next(node for at, node in functions_in(source.tree) if at == line))


@functools.cache
def package_digest(*rooms: str) -> str:
    """A digest of what runs and judges kernels in this package, and of Python's version."""
    whole = hashlib.sha256(platform.python_version().encode())
    for room in (*_ROOMS, *rooms):
        for file in sorted((Path(__file__).parents[2] / room).rglob("*.py")):
            whole.update(file.read_bytes())
    return whole.hexdigest()


Specs: TypeAlias = Mapping[str, KernelSpec]
"""By the names of their kernel tests."""
Collect: TypeAlias = Callable[[Callable[[Specs], None]], None]
"""Calls a function with the specs, while the modules that their kernels need are in place."""
Task: TypeAlias = tuple[Mutant, Sequence[Test]]


@dataclass(frozen=True)
class WorkerSetup:
    """What each process is told: how to find the specs, the cases as JSON, MiB for each case."""

    collect: Collect
    cases: Mapping[str, Sequence[str]]
    memory: float | None


def serve_mutants(connection: Connection, orders: WorkerSetup) -> None:
    """Judge mutants that come through a connection until there are no more."""
    if orders.memory is not None and USED.exists():
        LIMITS.memory = orders.memory

    def work(specs: Specs) -> None:
        cases = {
            name: [case_from_json(text, spec) for text in orders.cases[name]]
            for name, spec in specs.items()
        }
        judge = MutantRunner(suites_of(specs, cases), connection.send)
        with one_thread():  # threads of several processes that wait for a core spin
            serve_tasks(connection, lambda task: judge.judge(*task))

    orders.collect(work)


def run_in_processes(
    tasks: Iterable[Task], count: int, orders: WorkerSetup, limits: Callable[[Test], float]
) -> Iterator[tuple[Mutant, MutantResult]]:
    """What becomes of each mutant in so many processes, by the seconds that a test may take."""

    def limit(test: Test | None) -> float:
        return START if test is None else limits(test)

    work = functools.partial(serve_mutants, orders=orders)
    for (mutant, _), told in run_tasks(tasks, work, count, MutantResult, limit):
        yield mutant, _lost(told, limit) if isinstance(told, LostTask) else told


def _lost(loss: LostTask, limit: Callable[[Test | None], float]) -> MutantResult:
    """What a mutant that took its process with it comes to."""
    last = loss.news[-1] if loss.news else None
    late = f"ran for more than {limit(last):.0f} s"
    why = late if loss.is_late else "its process ended"
    if last is None:
        return MutantResult(INVALID, why=why)
    death = Kill(last[1], TIMEOUT if loss.is_late else "process ended", why)
    return MutantResult(TIMEOUT, last[0], death, len(loss.news))


_LEAST, _TIMES, _EDGES = 10.0, 20.0, 600.0
"""A test of a mutant may take so many seconds and so many times what it took without one. What that
is, is not known of examples and edges: they may take the last."""


class BaselineError(Exception):
    """The kernel itself fails one of its tests: nothing can be said of its mutants."""

    def __init__(self, suite: Suite, death: Kill) -> None:
        super().__init__(
            f"{suite.name} fails without a planted bug: {death.test}: {death.message}\n"
            "Mutants tell how good tests are that pass: mend the kernel or its spec first."
        )


@dataclass(frozen=True)
class CampaignLimits:
    """How much is done.

    Attributes
    ----------
    cases : that are drawn for each kernel test.
    workers : processes; 0 for this one, in which nothing is stopped that loops.
    budget : seconds for all mutants; None for as many as they take.
    memory : MiB that a case may take; None for no limit.
    """

    cases: int = 100
    workers: int = 1
    budget: float | None = None
    memory: float | None = None


@dataclass
class Campaign:
    """The mutants of the kernels of some tests.

    Attributes
    ----------
    results : of the mutants that have been judged.
    kept : how many of them were known from earlier runs.
    """

    specs: Specs
    settings: CampaignLimits
    ledger: ResultCache
    results: dict[Mutant, MutantResult] = field(default_factory=dict)
    kept: int = 0
    _covers: dict[Test, set[tuple[str, int]]] = field(default_factory=dict)
    _seconds: dict[Test, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.settings.cases
        self.cases = {name: drawn_cases(spec, count) for name, spec in self.specs.items()}
        self.suites = suites_of(self.specs, self.cases)
        self._owners: dict[tuple[str, int], list[Suite]] = {}
        for suite in self.suites.values():
            for function in suite.functions:
                place = function.__code__.co_filename, function.__code__.co_firstlineno
                self._owners.setdefault(place, []).append(suite)
        functions = {id(part): part for suite in self.suites.values() for part in suite.functions}
        self.mutants: Sequence[Mutant] = mutants_of(functions.values())
        self._digests = {place: digest_of(owners) for place, owners in self._owners.items()}

    def owners(self, mutant: Mutant) -> list[Suite]:
        """The suites whose kernels have the mutant's function."""
        return self._owners[mutant.file, mutant.first_line]

    def run(self, collect: Collect, seen: Callable[[Mutant, MutantResult], None]) -> None:
        """Judge what is not known; ``seen`` is told of each mutant as soon as that is done.

        Raises
        ------
        BaselineError : a kernel fails without a planted bug.
        """
        left: list[Mutant] = []
        for mutant in self.mutants:
            record = self.ledger.result(mutant.key, self._digest(mutant))
            if record is None:
                left.append(mutant)
            else:
                self.results[mutant] = record
                self.kept += 1
                seen(mutant, record)
        if left and self.settings.budget != 0:
            self._baseline({suite.name for mutant in left for suite in self.owners(mutant)})
            for mutant, fate in self._judged(self._tasks(left), collect):
                result = self._with_coverage(mutant, fate)
                self.results[mutant] = result
                self.ledger.add(mutant.key, self._digest(mutant), result)
                seen(mutant, result)

    def _digest(self, mutant: Mutant) -> str:
        return self._digests[mutant.file, mutant.first_line]

    def _baseline(self, names: set[str]) -> None:
        """Run refusals and cases without a mutant: they must pass. Note their lines and times."""
        for name in sorted(names):
            suite = self.suites[name]
            for test in filter(is_quick, suite.tests):
                began = time.monotonic()
                with lines_run(suite.functions) as self._covers[suite.name, test]:
                    death = suite.run(test)
                if death is not None:
                    raise BaselineError(suite, death)
                self._seconds[name, test] = time.monotonic() - began
            suite.forget()

    def _tasks(self, mutants: Sequence[Mutant]) -> Iterator[Task]:
        """Each mutant with the tests that run its lines, the one that found it last time first."""
        end = None if self.settings.budget is None else time.monotonic() + self.settings.budget
        for mutant in mutants:
            if end is not None and time.monotonic() > end:
                return
            tests = self._tests_of(mutant)
            killer = self.ledger.killer(mutant.key)
            if killer in tests:
                tests.remove(killer)
                tests.insert(0, killer)
            yield mutant, tests

    def _tests_of(self, mutant: Mutant) -> list[Test]:
        """The tests that run its lines, of kernels that have its function and share the cases.

        Where no drawn case comes there, each has all its examples. Edges, many runs each, last.
        """
        owners = self.owners(mutant)
        lines = {(mutant.file, line) for line in mutant.lines}
        of_all = [
            ((suite.name, test), case is None or at % len(owners) == turn)
            for turn, suite in enumerate(owners)
            for at, (test, case) in enumerate(suite.tests.items())
        ]
        quick = [test for test, own in of_all if own and self._covers.get(test, set()) & lines]
        slow = [test for test, own in of_all if (own or not quick) and not is_quick(test[1])]
        return quick + sorted(slow, key=lambda pair: pair[1] == EDGES)

    def _with_coverage(self, mutant: Mutant, fate: MutantResult) -> MutantResult:
        """A fate that says so where no drawn case came to the mutant's lines."""
        lines = {(mutant.file, line) for line in mutant.lines}
        if fate.status != EQUIVALENT or any(self._covers[test] & lines for test in self._covers):
            return fate
        return replace(fate, status=NOT_COVERED, why="no drawn case runs these lines")

    def _judged(
        self, tasks: Iterator[Task], collect: Collect
    ) -> Iterator[tuple[Mutant, MutantResult]]:
        settings = self.settings
        if not settings.workers:
            judge = MutantRunner(self.suites)
            for mutant, tests in tasks:
                yield mutant, judge.judge(mutant, tests)
            return
        texts = {name: [case.to_json() for case in cases] for name, cases in self.cases.items()}
        orders = WorkerSetup(collect, texts, settings.memory)
        yield from run_in_processes(tasks, settings.workers, orders, self._limit)

    def _limit(self, test: Test) -> float:
        return _LEAST + _TIMES * self._seconds[test] if test in self._seconds else _EDGES
