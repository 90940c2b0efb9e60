"""A campaign: judge all mutants of the kernels of some tests.

Worker processes judge the mutants, so a mutant that loops or exhausts memory ends only its
process. Each result is written as a line of a file at once, and later runs read that file.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias

from difftest.simulator.program_scheduler import one_thread
from difftest.support.journal import Journal
from difftest.support.pool import START, LostTask, run_tasks, serve_tasks
from difftest.support.tracebacks import PACKAGE
from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import LIMITS, USED
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.explicit import case_from_json
from difftest.tools.mutants.generation import mutants_of
from difftest.tools.mutants.mutant import Mutant, mutable_functions, read_source
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
FILE = "mutants.jsonl"


class ResultCache:
    """Results by the key of a mutant, in a journal.

    A result is valid while the suites that could find its mutant stay the same. The digest of a
    suite covers its kernels, references, cases and rejections, and the package's code that runs
    and judges them. An outdated result still names the test that found the mutant. That test runs
    first.

    Parameters
    ----------
    folder : the folder of the journal.
    fresh : whether to delete the results of earlier runs.
    """

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        if fresh:
            (folder / FILE).unlink(missing_ok=True)
        self._journal = Journal(folder / FILE, "result", "mutants")
        self.close = self._journal.close

    def result(self, key: str, digest: str) -> MutantResult | None:
        """Return the result of a mutant under suites with this digest; None if there is none."""
        row = self._journal.known.get(key, {})
        if row.get("digest") != digest:
            return None
        members = {member.name: row[member.name] for member in fields(MutantResult)}
        if row["death"]:
            members["death"] = Kill(**row["death"])
        return MutantResult(**members)

    def killer(self, key: str) -> tuple[str, str] | None:
        """Return the suite and the test that found a mutant last time; None if none did."""
        row = self._journal.known.get(key, {})
        return (row["suite"], row["death"]["test"]) if row.get("death") else None

    def add(self, key: str, digest: str, result: MutantResult) -> None:
        """Write a result to the journal."""
        self._journal.add(key, {"digest": digest, **asdict(result)})


def digest_of(suites: Iterable[Suite]) -> str:
    """Return a digest of everything that decides which mutants the tests find."""
    whole = hashlib.sha256(package_digest().encode())
    for suite in suites:
        cases = map(Case.to_json, suite.drawn)
        for part in itertools.chain([suite.name], _parts(suite.spec), cases):
            whole.update(part.encode() + b"\0")
    return whole.hexdigest()[:24]


def _parts(spec: KernelSpec) -> Iterable[str]:
    """Yield the source of each function of a spec, and the ``repr`` of its other members."""
    yield from _text(spec.kernel)
    for member in fields(spec):
        value: Any = getattr(spec, member.name)
        if member.name in ("kernel", "others", "domain"):
            # The kernel's text comes first, other kernels have their own suites, and the cases
            # hold values of the domain.
            continue
        if callable(value):
            yield from _text(value)
        elif member.name == "inputs":
            yield repr({name: spec.input(name).dimensions for name in value})
        else:
            yield f"{member.name}={value!r}"


def _text(function: Callable[..., Any]) -> Iterable[str]:
    for part in mutable_functions(function):
        code = part.__code__
        source = read_source(code.co_filename)
        yield source.segment(source.function_at(code.co_firstlineno))


@functools.cache
def package_digest() -> str:
    """Return a digest of Python's version and of all modules of this package.

    Any of them may decide a result: a kernel's run, its comparison, or its predicted time.
    """
    whole = hashlib.sha256(platform.python_version().encode())
    for file in sorted(Path(PACKAGE).rglob("*.py")):
        whole.update(file.read_bytes())
    return whole.hexdigest()


Specs: TypeAlias = Mapping[str, KernelSpec]
"""Specs by the names of their kernel tests."""
Collect: TypeAlias = Callable[[Callable[[Specs], None]], None]
"""A function that calls its argument with the specs, while their kernels' modules are imported."""
Task: TypeAlias = tuple[Mutant, Sequence[Test]]


@dataclass(frozen=True)
class WorkerSetup:
    """The settings of each worker process.

    Attributes
    ----------
    collect : how to find the specs.
    cases : the cases of each spec, as JSON.
    memory : MiB for each case; None means no limit.
    """

    collect: Collect
    cases: Mapping[str, Sequence[str]]
    memory: float | None


def serve_mutants(connection: Connection, setup: WorkerSetup) -> None:
    """Judge the mutants that a connection sends, until it sends no more."""
    if setup.memory is not None and USED.exists():
        LIMITS.memory = setup.memory

    def work(specs: Specs) -> None:
        cases = {}
        for name, spec in specs.items():
            cases[name] = [case_from_json(text, spec) for text in setup.cases[name]]
        judge = MutantRunner(suites_of(specs, cases), connection.send)
        with one_thread():  # threads of several processes that wait for a core spin
            serve_tasks(connection, lambda task: judge.judge(*task))

    setup.collect(work)


def run_in_processes(
    tasks: Iterable[Task],
    count: int,
    setup: WorkerSetup,
    limits: Callable[[Test], float],
) -> Iterator[tuple[Mutant, MutantResult]]:
    """Judge mutants in ``count`` processes; yield each mutant with its result.

    ``limits`` returns the seconds that a test may take.
    """

    def limit(test: Test | None) -> float:
        return START if test is None else limits(test)

    work = functools.partial(serve_mutants, setup=setup)
    for (mutant, _), result in run_tasks(tasks, work, count, MutantResult, limit):
        yield mutant, _lost(result, limit) if isinstance(result, LostTask) else result


def _lost(loss: LostTask, limit: Callable[[Test | None], float]) -> MutantResult:
    """Return the result of a mutant whose process ended."""
    last = loss.news[-1] if loss.news else None
    by = "process ended"
    why = "its process ended"
    if loss.is_late:
        by = TIMEOUT
        why = f"ran for more than {limit(last):.0f} s"
    if last is None:
        return MutantResult(INVALID, why=why)
    suite, test = last
    return MutantResult(TIMEOUT, suite, Kill(test, by, why), len(loss.news))


_LEAST = 10.0
"""Seconds that each test may take, in addition to its factor."""
_TIMES = 20.0
"""The factor of the seconds that a test takes without a mutant."""
_EDGES = 600.0
"""Seconds for examples and edges, which do not run without a mutant."""


class BaselineError(Exception):
    """The kernel itself fails one of its tests, so its mutants cannot be judged."""

    def __init__(self, suite: Suite, death: Kill) -> None:
        super().__init__(
            f"{suite.name} fails without a planted bug: {death.test}: {death.message}\n"
            "Mutants tell how good tests are that pass: mend the kernel or its spec first."
        )


@dataclass(frozen=True)
class CampaignLimits:
    """Limits of a campaign.

    Attributes
    ----------
    cases : number of cases that are drawn for each kernel test.
    workers : number of processes; 0 uses this process, which does not stop a mutant that loops.
    budget : seconds for all mutants; None means no limit.
    memory : MiB that a case may take; None means no limit.
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
    results : the results of the mutants that have been judged.
    kept : number of results that earlier runs wrote.
    """

    specs: Specs
    settings: CampaignLimits
    cache: ResultCache
    results: dict[Mutant, MutantResult] = field(default_factory=dict)
    kept: int = 0
    _covers: dict[Test, set[tuple[str, int]]] = field(default_factory=dict)
    _seconds: dict[Test, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.settings.cases
        self.cases = {
            name: drawn_cases(spec, count) for name, spec in self.specs.items()
        }
        self.suites = suites_of(self.specs, self.cases)
        self._owners: dict[tuple[str, int], list[Suite]] = {}
        functions: dict[int, FunctionType] = {}
        for suite in self.suites.values():
            for function in suite.functions:
                functions[id(function)] = function
                place = function.__code__.co_filename, function.__code__.co_firstlineno
                self._owners.setdefault(place, []).append(suite)
        self.mutants: Sequence[Mutant] = mutants_of(functions.values())
        self._digests = {
            place: digest_of(owners) for place, owners in self._owners.items()
        }

    def owners(self, mutant: Mutant) -> list[Suite]:
        """Return the suites whose kernels contain the mutant's function."""
        return self._owners[mutant.file, mutant.first_line]

    def run(
        self, collect: Collect, seen: Callable[[Mutant, MutantResult], None]
    ) -> None:
        """Judge the mutants without a valid result; call ``seen`` after each mutant.

        Raises
        ------
        BaselineError : a kernel fails without a planted bug.
        """
        left: list[Mutant] = []
        for mutant in self.mutants:
            record = self.cache.result(mutant.key, self._digest(mutant))
            if record is None:
                left.append(mutant)
            else:
                self.results[mutant] = record
                self.kept += 1
                seen(mutant, record)
        if left and self.settings.budget != 0:
            self._baseline(
                {suite.name for mutant in left for suite in self.owners(mutant)}
            )
            for mutant, judged in self._results(self._tasks(left), collect):
                result = self._with_coverage(mutant, judged)
                self.results[mutant] = result
                self.cache.add(mutant.key, self._digest(mutant), result)
                seen(mutant, result)

    def _digest(self, mutant: Mutant) -> str:
        return self._digests[mutant.file, mutant.first_line]

    def _baseline(self, names: set[str]) -> None:
        """Run rejections and cases without a mutant: they must pass. Keep their lines and times."""
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
        """Yield each mutant with the tests that run its lines.

        The test that found the mutant last time comes first.
        """
        budget = self.settings.budget
        end = math.inf if budget is None else time.monotonic() + budget
        for mutant in mutants:
            if time.monotonic() > end:
                return
            tests = self._tests_of(mutant)
            killer = self.cache.killer(mutant.key)
            if killer in tests:
                tests.remove(killer)
                tests.insert(0, killer)
            yield mutant, tests

    def _tests_of(self, mutant: Mutant) -> list[Test]:
        """Return the tests that run a mutant's lines.

        Suites that share the mutant's function take turns: each runs its share of the cases. If no
        drawn case runs the lines, each suite runs all its examples. Edges make many runs, so they
        come last.
        """
        owners = self.owners(mutant)
        quick: list[Test] = []
        slow: list[Test] = []
        own_slow: list[Test] = []
        for owner, suite in enumerate(owners):
            for index, (name, case) in enumerate(suite.tests.items()):
                test = (suite.name, name)
                is_own = case is None or index % len(owners) == owner
                if not is_quick(name):
                    slow.append(test)
                    if is_own:
                        own_slow.append(test)
                elif is_own and self._runs(test, mutant):
                    quick.append(test)
        later = own_slow if quick else slow
        return quick + sorted(later, key=lambda test: test[1] == EDGES)

    def _runs(self, test: Test, mutant: Mutant) -> bool:
        """Return whether a test without a mutant runs the mutant's lines."""
        covered = self._covers.get(test, set())
        return any((mutant.file, line) in covered for line in mutant.lines)

    def _with_coverage(self, mutant: Mutant, result: MutantResult) -> MutantResult:
        """Return a result that is "not covered" if no drawn case runs the mutant's lines."""
        if result.status != EQUIVALENT:
            return result
        if any(self._runs(test, mutant) for test in self._covers):
            return result
        return replace(result, status=NOT_COVERED, why="no drawn case runs these lines")

    def _results(
        self, tasks: Iterator[Task], collect: Collect
    ) -> Iterator[tuple[Mutant, MutantResult]]:
        """Yield the result of each mutant, from this process or from workers."""
        settings = self.settings
        if not settings.workers:
            judge = MutantRunner(self.suites)
            for mutant, tests in tasks:
                yield mutant, judge.judge(mutant, tests)
            return
        texts = {
            name: list(map(Case.to_json, cases)) for name, cases in self.cases.items()
        }
        setup = WorkerSetup(collect, texts, settings.memory)
        yield from run_in_processes(tasks, settings.workers, setup, self._time_limit)

    def _time_limit(self, test: Test) -> float:
        """Return the seconds that a test of a mutant may take."""
        if test not in self._seconds:
            return _EDGES
        return _LEAST + _TIMES * self._seconds[test]
