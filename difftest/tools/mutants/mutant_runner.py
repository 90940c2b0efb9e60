"""Judge one mutant: run its tests until one fails; compare outputs and traces if none does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import NamedTuple, TypeAlias

from difftest.tools.mutants.mutant import Mutant, apply_mutant
from difftest.tools.mutants.suite import EDGES, Kill, RunDigest, Suite, is_quick

Test: TypeAlias = tuple[str, str]
"""The name of a suite, and the name of a test in it."""
Announce: TypeAlias = Callable[[Test], None]
"""A listener that is called with each test before it runs."""

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
"""The statuses of mutants, and Stryker's name for each. Stryker's viewers exclude ignored mutants
from the score. The text of an ``invalid`` mutant is not valid Python."""
KILLED, TIMEOUT, SURVIVED, ROUNDED, SAME_BITS, EQUIVALENT, NOT_COVERED, INVALID = (
    STATUSES
)
SUSPECTED = (EQUIVALENT, SAME_BITS, ROUNDED)
"""The statuses of suspected equivalents."""
_IN_FULL = 10
"""The number of tests that are judged in full before cases with equal bits are skipped."""
_AS_NEAR = 2.0
"""The largest factor of the distance from the reference that counts as another rounding."""


@dataclass(frozen=True)
class MutantResult:
    """The result of judging a mutant.

    Attributes
    ----------
    status : one of :data:`STATUSES`.
    suite : the suite whose test found the mutant; empty if none did.
    death : how the test found the mutant; None if none did.
    ran : number of tests that ran, including the test that found the mutant.
    why : for a surviving mutant, how its outputs and traces differ from the original.
    seconds : seconds that judging took.
    """

    status: str
    suite: str = ""
    death: Kill | None = None
    ran: int = 0
    why: str = ""
    seconds: float = 0.0


@dataclass
class MutantRunner:
    """A judge of mutants that runs them in this process."""

    suites: Mapping[str, Suite]
    announce: Announce = lambda test: None
    _outcomes: dict[Test, RunDigest] = field(default_factory=dict)

    def judge(self, mutant: Mutant, tests: Sequence[Test]) -> MutantResult:
        """Run tests on a mutant in their order, and return its result."""
        began = time.monotonic()
        if not tests:
            return MutantResult(NOT_COVERED, why="no test runs these lines")
        for name in self.suites.keys() - {suite for suite, _ in tests}:
            self.suites[name].forget()
        functions = self.suites[tests[0][0]].functions
        function = next(it for it in functions if mutant.is_of(it))
        trial = _Trial(self, mutant, function)
        try:
            with apply_mutant(trial.function, mutant):
                result = trial.judge(tests)
        except SyntaxError as error:
            return MutantResult(INVALID, why=str(error))
        return replace(result, seconds=time.monotonic() - began)

    def outcome(self, test: Test, function: FunctionType, code: CodeType) -> RunDigest:
        """Return the digest of a test without the mutant; it is computed once."""
        if test not in self._outcomes:
            changed = function.__code__
            function.__code__ = code
            try:
                self._outcomes[test] = self.look(test)
            finally:
                function.__code__ = changed
        return self._outcomes[test]

    def look(self, test: Test) -> RunDigest:
        """Return the digest of a test with the code that is in place."""
        self.announce(test)
        return self.suites[test[0]].outcome(test[1])


class _Comparison(NamedTuple):
    """A comparison of a case with the mutant and without it.

    Attributes
    ----------
    has_same_trace, has_same_bits : whether the traces, and the outputs' bits, are equal.
    is_farther : whether the outputs are much farther from the reference.
    """

    has_same_trace: bool
    has_same_bits: bool
    is_farther: bool


class _Trial:
    """The tests of one mutant, whose code is in place."""

    def __init__(
        self, runner: MutantRunner, mutant: Mutant, function: FunctionType
    ) -> None:
        self.runner = runner
        self.mutant = mutant
        self.function = function
        self._code = function.__code__
        self._ran = 0
        self._comparisons: dict[Test, _Comparison] = {}

    def judge(self, tests: Sequence[Test]) -> MutantResult:
        """Run tests until one finds the mutant.

        After the first few tests, a case is judged in full only if its bits differ: most mutants
        that survive so long have equal bits in all cases. Edges are expensive, so they are skipped
        for suspected equivalents.
        """
        for index, test in enumerate(tests):
            suite = self.runner.suites[test[0]]
            name = test[1]
            self._ran += 1
            if self._is_skipped(index, tests):
                continue
            self.runner.announce(test)
            death = suite.run(name)
            if death is None:
                continue
            own = None if is_quick(name) else self._run_original(suite, name)
            if own is None:
                return MutantResult(KILLED, suite.name, death, self._ran)
            why = f"{suite.name}, {name}, fails without a planted bug: {own.message}"
            return MutantResult(SURVIVED, ran=self._ran, why=why)
        status, why = self._surviving(tests)
        return MutantResult(status, ran=self._ran, why=why)

    def _is_skipped(self, index: int, tests: Sequence[Test]) -> bool:
        """Return whether a test is not worth running in full."""
        test = tests[index]
        if test[1] == EDGES:
            return self._surviving(tests)[0] in SUSPECTED
        if index < _IN_FULL or not self._has_case(test):
            return False
        return self._compare(test).has_same_bits

    def _run_original(self, suite: Suite, name: str) -> Kill | None:
        """Run an example, or the edges, without the mutant."""
        changed = self.function.__code__
        self.function.__code__ = self._code
        try:
            return suite.run(name)
        finally:
            self.function.__code__ = changed

    def _compare(self, test: Test) -> _Comparison:
        """Compare a case with the mutant and without it; each case is compared once."""
        if test not in self._comparisons:
            mutated = self.runner.look(test)
            original = self.runner.outcome(test, self.function, self._code)
            self._comparisons[test] = _Comparison(
                has_same_trace=mutated.trace == original.trace,
                has_same_bits=mutated.bits == original.bits,
                is_farther=mutated.error > _AS_NEAR * original.error,
            )
        return self._comparisons[test]

    def _explain_bits(self, test: Test) -> str:
        """Return why a case whose bits differ does not fail."""
        suite = self.runner.suites[test[0]]
        suite.run(test[1])
        why = f"inconclusive ({suite.doubt})" if suite.doubt else "within the tolerance"
        return f"other bits, {why}, in {test[1]} of {test[0]}"

    def _surviving(self, tests: Sequence[Test]) -> tuple[str, str]:
        """Return the status of a mutant that no test found, and the reason.

        The status depends on whether instructions or output bits differ from the original's.
        """
        cases = list(filter(self._has_case, tests))
        if not cases:
            return SURVIVED, "no case runs these lines"
        others = 0
        for test in reversed(cases):
            comparison = self._compare(test)
            if not comparison.has_same_bits:
                others += 1
                if comparison.is_farther:
                    return SURVIVED, self._explain_bits(test)
        if others:
            near = "as near to the reference"
            return ROUNDED, f"{near} in all {others} cases with other bits"
        return self._surviving_with_same_bits(cases)

    def _has_case(self, test: Test) -> bool:
        suite, name = test
        return self.runner.suites[suite].tests[name] is not None

    def _surviving_with_same_bits(self, cases: Sequence[Test]) -> tuple[str, str]:
        """Return the status of a mutant whose outputs equal the original's in all cases."""
        total = len(cases)
        same = sum(self._compare(test).has_same_trace for test in cases)
        if same < total:
            instructions = f"by other instructions in {total - same}"
            return SAME_BITS, f"the same bits in all {total} cases, {instructions}"
        if self.mutant.operator.startswith("check"):
            return SURVIVED, "no refusal and no call at the edge needs the whole check"
        same_text = "the same instructions and the same bits"
        return EQUIVALENT, f"{same_text} in all {total} cases"
