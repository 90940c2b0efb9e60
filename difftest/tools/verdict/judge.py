"""Judge a kernel in a worker against a spec: draw cases, compare, shrink, look for hazards."""

from __future__ import annotations

import itertools
import linecache
import os
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.errors import Flaky, HypothesisException

from difftest.simulator.replay import replay_tape
from difftest.simulator.trace import Trace
from difftest.support.internal_errors import internal_error_scope
from difftest.support.wording import count_of
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.sources import RANGE
from difftest.testing.contract.spec import KernelSpec, count_elements
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.cases import MOST_CASE_ELEMENTS, cases
from difftest.testing.drawing.explicit import explicit_cases
from difftest.testing.drawing.minimal import OutOfTimeError
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.drawing.sizes import source_of
from difftest.testing.harness.coverage import Coverage, coverage_from_list
from difftest.testing.harness.edges import picked_values
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    CaseFailure,
    DifferentialFailure,
    NotRejectedError,
)
from difftest.testing.harness.minimal_failure import minimal_failure
from difftest.testing.harness.verdict import Verdict
from difftest.testing.harness.writers import locate_writers
from difftest.tools.verdict.backend import CandidateBackend, CheatError, reseeded
from difftest.tools.verdict.digits import StrictRunner
from difftest.tools.verdict.fork_server import Sandbox
from difftest.tools.verdict.judgement import (
    Failure,
    Judgement,
    add_memory,
    add_time,
    instructions_of,
)
from difftest.tools.verdict.outcome import Outcome, Stage
from difftest.tools.verdict.wire import WorkerEnd

NEAR = 4
"""The sizes at each end of a domain that count as near to it."""
NEAR_SHARE = 0.1
"""The share of the cases whose sizes are near the ends of their domains."""


class _Stop(BaseException):
    """The end of the search. Hypothesis passes on a BaseException that is not an Exception."""


@dataclass
class Judge:
    """The judge of one kernel by its spec, on ``cases`` drawn cases, or on the case ``only``."""

    spec: KernelSpec
    worker: Sandbox
    judgement: Judgement
    cases: int = 50
    only: Case | None = None
    shrink: bool = True
    _largest: tuple[int, Trace] | None = field(default=None, init=False)
    _failure: tuple[Case | None, Failure] | None = field(default=None, init=False)
    _compared: int = field(default=0, init=False)
    _unsettled: str = field(default="", init=False)
    _sizes: set[tuple[int, ...]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._backend = CandidateBackend(self.worker)
        self._runner = StrictRunner((self._backend,), record=True)

    def run(self) -> Judgement:
        """Judge the kernel; fill the judgement and return it."""
        self.judgement.stage = Stage.TRACE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._find_failure()
        if self._failure is not None:
            self._locate(self._failure[1])
            self.judgement.blame(*self._failure)
        self._add_counts()
        if self.judgement.outcome is Outcome.AGREES:
            self._finish()
        return self.judgement

    def _find_failure(self) -> None:
        """Check cases and rejections until one fails; record why the search could not go on."""
        try:
            self._search()
            self._exclude()
        except (_Stop, DifferentialFailure, BrokenReferenceError, CheatError):
            pass  # _check has kept the failure with its case
        except Flaky:
            self.judgement.notes.append(
                "a failure did not occur again on the same case"
            )
        except Exception as error:  # the spec or Hypothesis cannot go on
            self.judgement.outcome = Outcome.INCONCLUSIVE
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, HypothesisException):
                text = str(error)
            self.judgement.reason = f"the test cannot be drawn from: {text}"

    def _locate(self, failure: Failure) -> None:
        """Name the kernel's line that wrote the first wrong element.

        The recorded instructions run here; the candidate's own code does not.
        """
        if failure is self.judgement.failure:
            locate_writers(failure, (EmbeddedSimulator(),))

    def _search(self) -> None:
        """Check the requested case, or else drawn cases, corners of the domain and examples."""
        if self.only is not None:
            self._check(self.only)
            return
        corners = list(explicit_cases(replace(self.spec, examples=self._end_sizes())))
        self._check_drawn(max(1, self.cases - len(corners)))
        for case in corners:
            self._check(reseeded(case, self.judgement.seed))
        self._check_examples()

    def _check_drawn(self, count: int) -> None:
        """Check so many drawn cases; a failing one ends as a minimal one."""

        @hypothesis.seed(self.judgement.seed)
        @hypothesis.settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            print_blob=False,
            report_multiple_bugs=False,
            backend=BACKEND,
        )
        @hypothesis.given(drawn=cases(self.spec))
        def check(drawn: Case) -> None:
            case = reseeded(drawn, self.judgement.seed)
            if not self._runner.repeats.is_duplicate(self.spec, case):
                self._check(case)

        try:
            check()
        except CaseFailure:
            self._minimize()
            raise

    def _check_examples(self) -> None:
        """Check the examples of the spec; note the branches that only they take."""
        before = self._coverage()
        for case in explicit_cases(self.spec):
            self._check(reseeded(case, self.judgement.seed))
        after = self._coverage()
        added = {fact[:2] for fact in after.covered - before.covered}
        for file, line, loops, _ in sorted(after.branches):
            if not loops and (file, line) in added:
                source = linecache.getline(file, line).strip()
                text = f"{file}:{line}: only the examples of the test take both branches: {source}"
                self.judgement.notes.append(text)

    def _end_sizes(self) -> tuple[dict[str, Any], ...]:
        """Return values with all sizes at one end, and with random sizes near the two ends."""
        chosen = random.Random(self.judgement.seed)

        def near(choices: Sequence[int]) -> int:
            ordered = sorted(choices)
            return chosen.choice(ordered[:NEAR] + ordered[-NEAR:])

        picks: list[Callable[..., int]] = [min, max]
        picks += [near] * int(self.cases * NEAR_SHARE)
        ends = (picked_values(self.spec, pick, MOST_CASE_ELEMENTS) for pick in picks)
        return tuple({repr(end): end for end in ends if end}.values())

    def _check(self, case: Case) -> None:
        """Check one case and keep its failure; the last failure kept is the smallest."""
        self._backend.last = None
        try:
            verdicts = self._runner.check(self.spec, case)
            traces = self._runner.traces
            if self._backend.unsettled:
                self._unsettled = self._backend.unsettled
                self.judgement.evidence.doubts.add(self._unsettled)
        except (DifferentialFailure, BrokenReferenceError, CheatError) as failure:
            self._failure = case, failure
            if (
                isinstance(failure, DifferentialFailure)
                and self._backend.last is not None
            ):
                self.judgement.failure = failure
                failure.spec = self._replaying()
            self._runner.repeats.has_failed = True
            if not self.shrink:
                raise _Stop from None
            raise
        except WorkerEnd as end:
            self._failure = case, end
            raise _Stop from None
        self._runner.repeats.add(self.spec, case)
        self._keep(case, verdicts, next(iter(traces.values()), None))

    def _minimize(self) -> None:
        """Replace the failure that Hypothesis's shrinking ended with by that of a minimal case."""
        _, failure = self._failure or (None, None)
        if not isinstance(failure, DifferentialFailure):
            return
        with self._runner.uncounted():
            smallest = minimal_failure(failure, self._check_again)
        self._failure = smallest.case, smallest
        if self.judgement.failure is not None and smallest is not failure:
            assert isinstance(smallest, DifferentialFailure)
            self.judgement.failure = smallest

    def _check_again(self, case: Case) -> None:
        """Check a case that is to be smaller than a failing one, without a count."""
        self._backend.last = None
        try:
            self._runner.check(self.spec, case)
        except DifferentialFailure as failure:
            if self._backend.last is not None:
                failure.spec = self._replaying()
            raise
        except WorkerEnd:
            raise OutOfTimeError from None

    def _exclude(self) -> None:
        """Check that the kernel rejects each case that the contract excludes, with any message."""
        if self.only is not None:
            return
        for rejection in self.spec.rejects:
            try:
                self._runner.check_rejection(self.spec, replace(rejection, match=".*"))
            except (NotRejectedError, CheatError, WorkerEnd) as failure:
                self._failure = None, failure
                return

    def _replaying(self) -> KernelSpec:
        """Return the spec with a kernel that replays the instructions of the last call."""
        assert self._backend.last is not None
        return replace(self.spec, kernel=replay_tape(self._backend.last[1]))

    def _keep(
        self, case: Case, verdicts: dict[str, Verdict], trace: Trace | None
    ) -> None:
        size = count_elements(self.spec, case.values)
        self._sizes.add(sizes_in(self.spec, case))
        if trace is not None and (self._largest is None or size > self._largest[0]):
            self._largest = size, trace
            self.judgement.largest = self._replaying(), case
        evidence = self.judgement.evidence
        evidence.cases += 1
        if not any(getattr(verdict, "elements", 0) for verdict in verdicts.values()):
            return
        self._compared += 1
        outputs = itertools.chain.from_iterable(self._runner.outputs.values())
        evidence.decided += any(array.astype(bool).any() for array in outputs)

    def _finish(self) -> None:
        """Decide the outcome if no case failed; add hazards, memory and predicted time."""
        judgement = self.judgement
        judgement.stage = Stage.COMPARE
        if not judgement.need_decision(self._runner.tally.reasons):
            return
        checked = judgement.evidence.cases
        if self._unsettled or 2 * self._compared < checked:
            few = f"only {self._compared} of {checked} cases were compared"
            judgement.outcome = Outcome.INCONCLUSIVE
            judgement.reason = self._unsettled or few
            return
        judgement.stage = Stage.HAZARDS
        hazards = [
            (case, finding) for _, case, finding in self._runner.hazards.values()
        ]
        judgement.add_hazards(hazards)
        if judgement.outcome is not Outcome.AGREES:
            return
        if self._largest is None or judgement.largest is None:
            return
        judgement.stage = Stage.TIME
        trace = self._largest[1]
        (_, case) = judgement.largest
        with internal_error_scope("the prediction of time and memory"):
            add_memory(judgement, trace)
            add_time(judgement, trace, case, self.spec)
        judgement.instructions = instructions_of(trace)
        cases = count_of(judgement.evidence.decided, "case")
        elements = judgement.evidence.elements
        judgement.reason = f"{cases} and {elements} elements agree with the reference"

    def _add_counts(self) -> None:
        """Add the counts of the runner, and the coverage and output of the worker."""
        judgement = self.judgement
        backend = self._backend
        tally = self._runner.tally
        evidence = judgement.evidence
        cases = evidence.cases
        for row in tally.rows.values():
            evidence.add(row)
        evidence.cases = cases  # cases of shrinking do not count
        evidence.sizes = {"judged": len(self._sizes), "of": count_sizes(self.spec)}
        evidence.doubts |= tally.doubts | set(tally.reasons) | backend.doubts
        evidence.shown = {shown.value: runs for shown, runs in backend.shown.items()}
        if backend.printed:
            judgement.notes.append(f"it prints {backend.printed:,} characters")
        judgement.coverage = self._coverage()

    def _coverage(self) -> Coverage:
        """Return the worker's coverage of the kernel's folder; other files do not count."""
        try:
            taken = coverage_from_list(
                self.worker.ask({"request": "coverage"}).header["coverage"]
            )
            file = os.path.realpath(self.judgement.kernel["file"])
            home = os.path.dirname(file) + os.sep
            forks = {
                (file, line, loops is True, self.judgement.kernel["name"])
                for file, line, loops, _ in taken.branches
                if str(file).startswith(home)
                and file in linecache.cache
                and type(line) is int
            }
        except (WorkerEnd, ValueError, KeyError, TypeError):
            return Coverage(unknown={"the worker has ended"})
        return Coverage(forks, taken.covered, set(map(str, taken.unknown)))


def sizes_in(spec: KernelSpec, case: Case) -> tuple[int, ...]:
    """Return the sizes of a case: its integers of the domain."""
    values = [case.values[name] for name in spec.domain if name in case.values]
    return tuple(value for value in values if type(value) is int)


def count_sizes(spec: KernelSpec) -> int | None:
    """Return the number of combinations of sizes in a domain; None if some depend on others."""
    count = 1
    for name in spec.domain:
        try:
            source = source_of(spec, name, {})
        except (SpecError, LookupError):
            return None
        choices: Any = source
        if not isinstance(source, Sequence):
            choices = getattr(source, RANGE, None)
        if choices is None:
            return None
        if all(type(value) is int for value in choices):
            count *= len(choices)
    return count
