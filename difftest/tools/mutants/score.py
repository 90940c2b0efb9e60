"""The scores of a campaign by file and by mutation operator, and the report of each mutant.

The forms are text, a page of Markdown, and a report in Stryker's schema.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from difftest.simulator.errors import relative_path
from difftest.support.markdown import table_lines
from difftest.support.wording import count_of
from difftest.tools.mutants.campaign import Campaign
from difftest.tools.mutants.mutant import Mutant
from difftest.tools.mutants.mutant_runner import (
    EQUIVALENT,
    KILLED,
    NOT_COVERED,
    ROUNDED,
    SAME_BITS,
    STATUSES,
    SURVIVED,
    SUSPECTED,
    TIMEOUT,
    MutantResult,
)
from difftest.tools.mutants.suite import Suite

DEAD = (KILLED, TIMEOUT)
"""The statuses of mutants that tests found."""
ALIVE = (SURVIVED, NOT_COVERED)
"""The statuses of mutants that tests should have found."""
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
    statuses : number of mutants by status.
    killers : number of mutants by the kind of check that found them, such as "comparison".
    most : the largest number of tests that ran until a mutant was found.
    seconds : seconds that judging took.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    killers: Counter[str] = field(default_factory=Counter)
    most: int = 0
    seconds: float = 0.0

    def of(self, kinds: tuple[str, ...]) -> int:
        """Return the number of mutants with one of these statuses."""
        return sum(self.statuses[kind] for kind in kinds)

    @property
    def percent(self) -> float:
        """The share of mutants that tests found, without suspected equivalents."""
        judged = self.of(DEAD + ALIVE)
        return 100.0 * self.of(DEAD) / judged if judged else 100.0

    def add(self, result: MutantResult) -> None:
        """Count a result."""
        self.statuses[result.status] += 1
        self.seconds += result.seconds
        if result.death is not None:
            self.killers[result.death.by.partition(":")[0]] += 1
            self.most = max(self.most, result.ran)

    def __str__(self) -> str:
        if not self.statuses.total():
            return "score: none, for no planted bug was judged"
        killers = ", ".join(
            f"{name} {count}" for name, count in self.killers.most_common()
        )
        return (
            f"score: {self.percent:.1f}% of {self.of(DEAD + ALIVE)}: {self.of(DEAD)} found"
            f"{f' ({killers})' if killers else ''}, {self.statuses[SURVIVED]} survived, "
            f"{self.statuses[NOT_COVERED]} not covered; suspected equivalents: {self.of(SUSPECTED)}"
        )


def scores(results: Mapping[Mutant, MutantResult], key: str) -> dict[str, Score]:
    """Return the scores by an attribute of mutants, ``file`` or ``operator``."""
    table: dict[str, Score] = {}
    for mutant, result in results.items():
        table.setdefault(str(getattr(mutant, key)), Score()).add(result)
    return table


def total(results: Iterable[MutantResult]) -> Score:
    """Return the score of all results."""
    score = Score()
    for result in results:
        score.add(result)
    return score


def report_lines(mutant: Mutant, result: MutantResult) -> Iterator[str]:
    """Yield the lines of the report of a mutant."""
    name = mutant.function.partition(":")[0]
    yield (
        f"{relative_path(mutant.file)}:{mutant.lines[0]}: {mutant.operator}, in {name}: "
        f"{result.status}"
    )
    yield from (f"  {line}" for line in mutant.diff())
    if result.death is not None:
        tests = count_of(result.ran, "test")
        yield f"  found by {result.death.by} after {tests}: {result.suite}, {result.death.test}"
        yield f"  {result.death.message}"
        if result.death.case:
            yield f"  case: {result.death.case}"
    else:
        remedy = _REMEDIES.get(result.status, "")
        yield f"  {result.why}{f'; {remedy}' if remedy else ''}"


_NUMBERS = (
    "mutants",
    "found",
    "survived",
    "not covered",
    "suspected equivalents",
    "score",
    "tests until the last is found",
    "seconds",
)
"""The titles of the columns of numbers."""


def markdown(campaign: Campaign, command: str) -> str:
    """Return a page with a row for each file and each operator, then the mutants not found."""
    results = campaign.results
    rows = [
        "# Planted bugs\n",
        "This page shows which planted bugs the tests of the kernels find. [Plant bugs]"
        "(../../how-to/mutate.md) explains the words. "
        f"nki-difftest {version('nki-difftest')} wrote this page, with "
        f"{campaign.settings.cases} drawn cases for each test:\n",
        f"```\n{command}\n```\n",
        f"{total(results.values())}; not judged: {len(campaign.mutants) - len(results)}\n",
    ]
    files = sorted(scores(results, "file").items())
    rows += _table("file", [(relative_path(file), score) for file, score in files])
    rows += ["", *_table("bug", sorted(scores(results, "operator").items()))]
    rows += _survivor_rows(results)
    rows += _equivalent_rows(results)
    return "\n".join(rows) + "\n"


def _survivor_rows(results: Mapping[Mutant, MutantResult]) -> list[str]:
    """Return the section with the full report of each mutant that no test found."""
    reports = [
        report_lines(*pair) for pair in results.items() if pair[1].status in ALIVE
    ]
    if not reports:
        return []
    parts = ("\n".join([*lines, ""]) for lines in reports)
    return ["", "## Not found", "", "```diff", *parts, "```"]


def _equivalent_rows(results: Mapping[Mutant, MutantResult]) -> list[str]:
    """Return the section with a line for each place of suspected equivalents."""
    alike: dict[str, list[str]] = {}
    for pair in results.items():
        if pair[1].status in SUSPECTED:
            place, *_, new, _ = report_lines(*pair)
            alike.setdefault(place, []).append(f"`{new.strip()[1:].strip()}`")
    if not alike:
        return []
    rows = (f"- {place}: {', '.join(news)}" for place, news in alike.items())
    return ["", "## Suspected equivalents", "", *rows]


def _table(title: str, rows: Iterable[tuple[str, Score]]) -> Iterator[str]:
    """Yield the lines of a table of scores by name."""
    cells = [(name, *_score_cells(score)) for name, score in rows]
    return table_lines((title, *_NUMBERS), cells, len(_NUMBERS))


def _score_cells(score: Score) -> tuple[object, ...]:
    """Return the cells of a score in a table."""
    return (
        score.statuses.total(),
        score.of(DEAD),
        score.statuses[SURVIVED],
        score.statuses[NOT_COVERED],
        score.of(SUSPECTED),
        f"{score.percent:.1f}%",
        score.most,
        f"{score.seconds:.0f}",
    )


def stryker(campaign: Campaign) -> str:
    """Return a report for Stryker's viewers, in version 2 of its JSON schema."""
    files: dict[str, dict[str, Any]] = {}
    for number, mutant in enumerate(campaign.mutants):
        text = mutant.source.text
        file = files.setdefault(
            relative_path(mutant.file),
            {"language": "python", "source": text, "mutants": []},
        )
        file["mutants"].append(_mutant_document(campaign, number, mutant))
    document = {
        "schemaVersion": "2.0",
        "thresholds": {"high": 95, "low": 80},
        "framework": {"name": "nki-difftest", "version": version("nki-difftest")},
        "files": files,
        "testFiles": {
            suite.name: {"tests": _tests(suite)} for suite in campaign.suites.values()
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _tests(suite: Suite) -> list[dict[str, str]]:
    return [{"id": f"{suite.name}: {test}", "name": test} for test in suite.tests]


def _mutant_document(
    campaign: Campaign, number: int, mutant: Mutant
) -> Mapping[str, Any]:
    """Return a mutant in Stryker's form."""
    result = campaign.results.get(mutant)
    place = mutant.change.region
    document: dict[str, Any] = {
        "id": str(number),
        "mutatorName": mutant.operator,
        "replacement": mutant.change.text,
        "location": {
            "start": {"line": place.line, "column": place.column},
            "end": {"line": place.end_line, "column": place.end_column},
        },
        "status": "Pending" if result is None else STATUSES[result.status],
    }
    if result is not None:
        document |= {
            "statusReason": result.why,
            "testsCompleted": result.ran,
            "duration": round(1000 * result.seconds),
        }
    if result is not None and result.death is not None:
        document["statusReason"] = f"{result.death.by}: {result.death.message}"
        document["killedBy"] = [f"{result.suite}: {result.death.test}"]
    return document
