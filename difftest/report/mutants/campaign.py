"""All mutants of the kernels of some tests: which tests may find each, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from difftest.report.mutants.judge import EQUIVALENT, NOT_COVERED, Examiner, Fate, Test
from difftest.report.mutants.ledger import Ledger, digest_of
from difftest.report.mutants.mutant import Mutant
from difftest.report.mutants.plant import mutants_of
from difftest.report.mutants.suite import (
    EDGES,
    Death,
    Suite,
    drawn_cases,
    is_quick,
    lines_run,
    suites_of,
)
from difftest.report.mutants.workers import Collect, Orders, Specs, Task, judged_apart

_LEAST, _TIMES, _EDGES = 10.0, 20.0, 600.0
"""A test of a mutant may take so many seconds and so many times what it took without one. What that
is, is not known of examples and edges: they may take the last."""


class BaselineError(Exception):
    """The kernel itself fails one of its tests: nothing can be said of its mutants."""

    def __init__(self, suite: Suite, death: Death) -> None:
        super().__init__(
            f"{suite.name} fails without a planted bug: {death.test}: {death.message}\n"
            "Mutants tell how good tests are that pass: mend the kernel or its spec first."
        )


@dataclass(frozen=True)
class Amount:
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
    settings: Amount
    ledger: Ledger
    results: dict[Mutant, Fate] = field(default_factory=dict)
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

    def run(self, collect: Collect, seen: Callable[[Mutant, Fate], None]) -> None:
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
            lines = {(mutant.file, line) for line in mutant.lines}
            shared = self._shared(mutant)
            tests = [test for test in shared if not is_quick(test[1]) or self._covers[test] & lines]
            killer = self.ledger.killer(mutant.key)
            if killer in tests:
                tests.remove(killer)
                tests.insert(0, killer)
            yield mutant, tests

    def _shared(self, mutant: Mutant) -> list[Test]:
        """The tests of the kernels that have a function, which share the cases among them.

        Edges come last: they run a kernel many times, and what they find most cases find too.
        """
        owners = self.owners(mutant)
        tests = [
            (suite.name, test)
            for turn, suite in enumerate(owners)
            for at, (test, case) in enumerate(suite.tests.items())
            if case is None or at % len(owners) == turn
        ]
        return sorted(tests, key=lambda pair: pair[1] == EDGES)

    def _with_coverage(self, mutant: Mutant, fate: Fate) -> Fate:
        """A fate that says so where no drawn case came to the mutant's lines."""
        lines = {(mutant.file, line) for line in mutant.lines}
        if fate.status != EQUIVALENT or any(self._covers[test] & lines for test in self._covers):
            return fate
        return replace(fate, status=NOT_COVERED, why="no drawn case runs these lines")

    def _judged(self, tasks: Iterator[Task], collect: Collect) -> Iterator[tuple[Mutant, Fate]]:
        settings = self.settings
        if not settings.workers:
            judge = Examiner(self.suites)
            for mutant, tests in tasks:
                yield mutant, judge.judge(mutant, tests)
            return
        texts = {name: [case.to_json() for case in cases] for name, cases in self.cases.items()}
        orders = Orders(collect, texts, settings.memory)
        yield from judged_apart(tasks, settings.workers, orders, self._limit)

    def _limit(self, test: Test) -> float:
        return _LEAST + _TIMES * self._seconds[test] if test in self._seconds else _EDGES
