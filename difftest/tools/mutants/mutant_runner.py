"""What becomes of one mutant: its tests run until one finds it; what none finds is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import TypeAlias

from difftest.tools.mutants.mutant import Mutant, apply_mutant, qualified_name
from difftest.tools.mutants.suite import EDGES, Kill, RunDigest, Suite, is_quick

Test: TypeAlias = tuple[str, str]
"""The name of a suite, and that of its test."""
Announce: TypeAlias = Callable[[Test], None]
"""Told of each test before it runs."""

STATUSES = {
    "killed": "Killed",
    "timeout": "Timeout",
    "survived": "Survived",
    "other rounding": "Ignored",
    "same bits": "Ignored",
    "equivalent by trace": "Ignored",
    "not covered": "NoCoverage",
    "invalid": "CompileError",
}
"""What can become of a mutant, and what Stryker calls it: its viewers leave what is ignored out of
the score. What is ``invalid`` is no Python."""
KILLED, TIMEOUT, SURVIVED, ROUNDED, SAME_BITS, EQUIVALENT, NOT_COVERED, INVALID = STATUSES
SUSPECTED = (EQUIVALENT, SAME_BITS, ROUNDED)
"""Suspected equivalents."""
_IN_FULL = 10
"""Tests of a mutant before a case is only looked at."""
_AS_NEAR = 2.0
"""How many times as far from the reference what only rounds otherwise may lie."""


@dataclass(frozen=True)
class MutantResult:
    """What became of a mutant.

    Attributes
    ----------
    status : one of :data:`STATUSES`.
    suite : whose test found it; empty if none did.
    death : how; None if nothing did.
    ran : tests that ran, the one that found it included.
    why : of a mutant that nothing found, what the outputs and traces say.
    seconds : it took.
    """

    status: str
    suite: str = ""
    death: Kill | None = None
    ran: int = 0
    why: str = ""
    seconds: float = 0.0


@dataclass
class MutantRunner:
    """Runs mutants in this process."""

    suites: Mapping[str, Suite]
    announce: Announce = lambda test: None
    _outcomes: dict[Test, RunDigest] = field(default_factory=dict)

    def judge(self, mutant: Mutant, tests: Sequence[Test]) -> MutantResult:
        """What becomes of a mutant in these tests, in their order."""
        began = time.monotonic()
        if not tests:
            return MutantResult(NOT_COVERED, why="no test runs these lines")
        for name in self.suites.keys() - {suite for suite, _ in tests}:
            self.suites[name].forget()
        function = next(
            function
            for function in self.suites[tests[0][0]].functions
            if (function.__code__.co_filename, qualified_name(function))
            == (mutant.file, mutant.function)
        )
        trial = _Trial(self, mutant, function)
        try:
            with apply_mutant(trial.function, mutant):
                fate = trial.fate(tests)
        except SyntaxError as error:
            return MutantResult(INVALID, why=str(error))
        return replace(fate, seconds=time.monotonic() - began)

    def outcome(self, test: Test, function: FunctionType, code: CodeType) -> RunDigest:
        """What a test comes to without the mutant; worked out once."""
        if test not in self._outcomes:
            changed = function.__code__
            function.__code__ = code
            try:
                self._outcomes[test] = self.look(test)
            finally:
                function.__code__ = changed
        return self._outcomes[test]

    def look(self, test: Test) -> RunDigest:
        """The same with whatever is planted."""
        self.announce(test)
        return self.suites[test[0]].outcome(test[1])


class _Trial:
    """The tests of one mutant, which is planted."""

    def __init__(self, judge: MutantRunner, mutant: Mutant, function: FunctionType) -> None:
        self.judge = judge
        self.mutant = mutant
        self.function = function
        self._code = function.__code__
        self._ran = 0
        self._looks: dict[Test, tuple[bool, bool, bool]] = {}

    def fate(self, tests: Sequence[Test]) -> MutantResult:
        """The tests run until one finds the mutant.

        After the first few, a case is judged in full only if its bits are others, for most
        mutants that live so long have the same in all cases. What costs much is left out for one
        that has them by other instructions: the calls at the edge.
        """
        for at, test in enumerate(tests):
            suite = self.judge.suites[test[0]]
            name = test[1]
            self._ran += 1
            if name == EDGES and self._ending(tests)[0] in SUSPECTED:
                continue
            if at >= _IN_FULL and suite.tests[name] is not None and self._look(test)[1]:
                continue
            self.judge.announce(test)
            death = suite.run(name)
            own = None if death is None or is_quick(name) else self._without(suite, name)
            if own is not None:
                why = f"{suite.name}, {name}, fails without a planted bug: {own.message}"
                return MutantResult(SURVIVED, ran=self._ran, why=why)
            if death is not None:
                return MutantResult(KILLED, suite.name, death, self._ran)
        status, why = self._ending(tests)
        return MutantResult(status, ran=self._ran, why=why)

    def _without(self, suite: Suite, name: str) -> Kill | None:
        """What an example, or the edges, come to without the mutant."""
        changed = self.function.__code__
        self.function.__code__ = self._code
        try:
            return suite.run(name)
        finally:
            self.function.__code__ = changed

    def _look(self, test: Test) -> tuple[bool, bool, bool]:
        """Whether a case has the trace and the bits of before, and is farther off than before."""
        if test not in self._looks:
            with_it = self.judge.look(test)
            without = self.judge.outcome(test, self.function, self._code)
            farther = with_it.error > _AS_NEAR * without.error
            same = with_it.trace == without.trace, with_it.bits == without.bits
            self._looks[test] = (*same, farther)
        return self._looks[test]

    def _other_bits(self, test: Test) -> str:
        """Why a case with other bits finds nothing."""
        suite = self.judge.suites[test[0]]
        suite.run(test[1])
        why = f"inconclusive ({suite.doubt})" if suite.doubt else "within the tolerance"
        return f"other bits, {why}, in {test[1]} of {test[0]}"

    def _ending(self, tests: Sequence[Test]) -> tuple[str, str]:
        """Whether what nothing found does the same instructions, or makes the same bits."""
        cases = [test for test in tests if self.judge.suites[test[0]].tests[test[1]] is not None]
        if not cases:
            return SURVIVED, "no case runs these lines"
        others = [test for test in reversed(cases) if not self._look(test)[1]]
        for test in others:
            if self._look(test)[2]:
                return SURVIVED, self._other_bits(test)
        if others:
            return ROUNDED, f"as near to the reference in all {len(others)} cases with other bits"
        same = sum(self._look(test)[0] for test in cases)
        total = len(cases)
        if same == total and self.mutant.operator.startswith("check"):
            return SURVIVED, "no refusal and no call at the edge needs the whole check"
        if same == total:
            return EQUIVALENT, f"the same instructions and the same bits in all {total} cases"
        return (
            SAME_BITS,
            f"the same bits in all {total} cases, by other instructions in {total - same}",
        )
