"""A campaign: programs drawn and run until a time limit, each kind of failure reduced once."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, settings

from tests.fuzz.comparison import MODES, Disagreement, check
from tests.fuzz.program import Program
from tests.fuzz.reduction import reduced
from tests.fuzz.strategies import programs

DIALECTS = ("classic", "nki")
ROUND = 2000
"""Number of programs for each seed, which limits Hypothesis's memory."""


@dataclass
class Statistics:
    """Counts of the programs that have run."""

    programs: int = 0
    refused: int = 0
    statements: int = 0
    seconds: float = 0.0
    opcodes: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: dict[str, Disagreement] = field(default_factory=dict)
    """Reduced, by signature."""
    repeats: collections.Counter[str] = field(default_factory=collections.Counter)
    """The number of failures with each signature."""

    def __str__(self) -> str:
        minutes = max(self.seconds, 1e-9) / 60
        return (
            f"{self.programs} programs ({self.refused} refused), {self.statements} statements, "
            f"{self.statements / minutes:,.0f} statements a minute, "
            f"{len(self.opcodes)} opcodes, {len(self.failures)} kinds of failure"
        )


class Campaign:
    """Draw, run and compare until the time is up.

    A failure is reduced when its signature is new; afterwards programs of that signature are
    counted and passed over, so that one bug does not hide the others.
    """

    def __init__(
        self,
        *,
        modes: tuple[str, ...] = tuple(MODES),
        longest: int = 8,
        dialect: str = "classic",
        report: Callable[[Disagreement], None] = lambda failure: None,
    ) -> None:
        self.modes = modes
        self.longest = longest
        self.dialect = dialect
        self.report = report
        self.statistics = Statistics()

    def run(self, seconds: float, seed: int = 0) -> Statistics:
        """Rounds with one seed after the other for about ``seconds``."""
        start = time.monotonic()
        end = start + seconds
        while time.monotonic() < end:
            failure = self.search(seed, ROUND, end)
            if failure is None:
                seed += 1
            else:
                self.report(failure)
        self.statistics.seconds += time.monotonic() - start
        return self.statistics

    def search(
        self, seed: int, count: int, end: float = math.inf
    ) -> Disagreement | None:
        """Up to ``count`` programs of one seed until a failure of a new kind, which is reduced."""
        failures: list[Disagreement] = []

        def test(program: Program) -> None:
            if not failures and time.monotonic() > end:
                return
            failure = self._failure(program)
            if (
                failure is not None
                and failure.signature not in self.statistics.failures
            ):
                failures.append(failure)
                raise failure

        settled = settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        try:
            drawn = hypothesis.given(programs(self.dialect, self.longest))
            settled(hypothesis.seed(seed)(drawn(test)))()
        except (Disagreement, hypothesis.errors.Flaky):
            failure = reduced(failures[0], self.modes)
            self.statistics.failures[failure.signature] = failure
            return failure
        return None

    def _failure(self, program: Program) -> Disagreement | None:
        """Run one program, count it, and give back its failure."""
        statistics = self.statistics
        try:
            outcomes = check(program, self.modes)
        except Disagreement as failure:
            statistics.repeats[failure.signature] += 1
            return failure
        finally:
            statistics.programs += 1
            statistics.statements += program.statements
        result = outcomes[0].result
        if result is None:
            statistics.refused += 1
        else:
            statistics.opcodes.update(event.opcode for event in result.trace.events)
        return None
