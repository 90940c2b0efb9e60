"""What a campaign came to: by kernel test, by kind of bug, and each mutant in lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from difftest.report.mutants.judge import (
    EQUIVALENT,
    KILLED,
    NOT_COVERED,
    ROUNDED,
    SAME_BITS,
    SURVIVED,
    SUSPECTED,
    TIMEOUT,
    Fate,
)
from difftest.report.mutants.mutant import Mutant
from difftest.simulator.errors import near

DEAD = (KILLED, TIMEOUT)
"""Those that tests found."""
ALIVE = (SURVIVED, NOT_COVERED)
"""Those that tests should have found."""
_REMEDIES = {
    SURVIVED: "give a Rejection, cases whose bound is tighter, or data that show it",
    NOT_COVERED: "draw a case that comes here, or take the lines out",
    EQUIVALENT: "suspected equivalent: or no case has the size that shows it",
    ROUNDED: "suspected equivalent: it rounds in another order",
    SAME_BITS: "suspected equivalent: it costs time or memory at most",
}


@dataclass
class Score:
    """Counts of mutants.

    Attributes
    ----------
    statuses : how many came to what.
    killers : how many were found by what, such as "comparison".
    most : tests that ran until the latest of the deaths.
    seconds : that judging them took.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    killers: Counter[str] = field(default_factory=Counter)
    most: int = 0
    seconds: float = 0.0

    def of(self, kinds: tuple[str, ...]) -> int:
        """How many came to one of these."""
        return sum(self.statuses[kind] for kind in kinds)

    @property
    def percent(self) -> float:
        """Of those that are no suspected equivalents."""
        judged = self.of(DEAD + ALIVE)
        return 100.0 * self.of(DEAD) / judged if judged else 100.0

    def add(self, result: Fate) -> None:
        """Count one."""
        self.statuses[result.status] += 1
        self.seconds += result.seconds
        if result.death is not None:
            self.killers[result.death.by.partition(":")[0]] += 1
            self.most = max(self.most, result.ran)

    def __str__(self) -> str:
        killers = ", ".join(f"{name} {count}" for name, count in self.killers.most_common())
        return (
            f"score: {self.percent:.1f}% of {self.of(DEAD + ALIVE)}: {self.of(DEAD)} found"
            f"{f' ({killers})' if killers else ''}, {self.statuses[SURVIVED]} survived, "
            f"{self.statuses[NOT_COVERED]} not covered; suspected equivalents: {self.of(SUSPECTED)}"
        )


def scores(results: Mapping[Mutant, Fate], key: str) -> dict[str, Score]:
    """The scores by an attribute of mutants: ``file`` or ``operator``."""
    table: dict[str, Score] = {}
    for mutant, result in results.items():
        table.setdefault(str(getattr(mutant, key)), Score()).add(result)
    return table


def total(results: Iterable[Fate]) -> Score:
    """The score of all."""
    score = Score()
    for result in results:
        score.add(result)
    return score


def lines_of(mutant: Mutant, result: Fate) -> Iterator[str]:
    """What is said of a mutant."""
    name = mutant.function.partition(":")[0]
    yield f"{near(mutant.file)}:{mutant.lines[0]}: {mutant.operator}, in {name}: {result.status}"
    yield from (f"  {line}" for line in mutant.diff())
    if result.death is not None:
        tests = f"after {result.ran} test{'s' if result.ran > 1 else ''}"
        yield f"  found by {result.death.by} {tests}: {result.suite}, {result.death.test}"
        yield f"  {result.death.message}"
        if result.death.case:
            yield f"  case: {result.death.case}"
    else:
        remedy = _REMEDIES.get(result.status, "")
        yield f"  {result.why}{f'; {remedy}' if remedy else ''}"
