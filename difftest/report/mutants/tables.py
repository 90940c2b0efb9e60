"""The mutation table as a page of Markdown, and the report in Stryker's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from difftest.report.mutants.campaign import Campaign
from difftest.report.mutants.judge import (
    EQUIVALENT,
    INVALID,
    KILLED,
    NOT_COVERED,
    SAME_BITS,
    SURVIVED,
    TIMEOUT,
    Fate,
)
from difftest.report.mutants.mutant import Mutant
from difftest.report.mutants.score import (
    ALIVE,
    SUSPECTED,
    Score,
    lines_of,
    scores,
    shown,
    total,
)

_STATUSES = {
    KILLED: "Killed",
    TIMEOUT: "Timeout",
    SURVIVED: "Survived",
    SAME_BITS: "Ignored",
    EQUIVALENT: "Ignored",
    NOT_COVERED: "NoCoverage",
    INVALID: "CompileError",
}
"""What Stryker calls them: viewers leave what is ignored out of the score."""


def markdown(campaign: Campaign, title: str) -> str:
    """The table: a row a file, a row a kind of bug, then what no test found."""
    results = campaign.results
    rows = [
        f"# {title}",
        "",
        f"{total(results.values())}",
        "",
        "| file | mutants | found | survived | not covered | suspected equivalents | score "
        "| tests until the last is found | seconds |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_row(shown(file), score) for file, score in sorted(scores(results, "file").items())),
        "",
        "| bug | mutants | found | survived | not covered | suspected equivalents | score "
        "| tests until the last is found | seconds |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_row(name, score) for name, score in sorted(scores(results, "operator").items())),
    ]
    for heading, statuses in (("Not found", ALIVE), ("Suspected equivalents", SUSPECTED)):
        told = [one for one in results.items() if one[1].status in statuses]
        if told:
            rows += ["", f"## {heading}", "", "```diff"]
            rows += [line for one in told for line in (*lines_of(*one), "")]
            rows[-1] = "```"
    return "\n".join(rows) + "\n"


def _row(name: str, score: Score) -> str:
    cells = (
        score.statuses.total(),
        score.dead,
        score.statuses[SURVIVED],
        score.statuses[NOT_COVERED],
        score.suspected,
        f"{score.percent:.1f}%",
        score.most,
        f"{score.seconds:.0f}",
    )
    return f"| {name} | {' | '.join(map(str, cells))} |"


def stryker(campaign: Campaign) -> str:
    """A report that viewers of Stryker's mutation reports open: version 2 of its JSON schema."""
    files: dict[str, dict[str, Any]] = {}
    for number, mutant in enumerate(campaign.mutants):
        text = mutant.source.text
        file = files.setdefault(
            shown(mutant.file), {"language": "python", "source": text, "mutants": []}
        )
        file["mutants"].append(_mutant(campaign, number, mutant))
    document = {
        "schemaVersion": "2.0",
        "thresholds": {"high": 95, "low": 80},
        "framework": {"name": "nki-difftest", "version": version("nki-difftest")},
        "files": files,
        "testFiles": {
            suite.name: {
                "tests": [{"id": f"{suite.name}: {one}", "name": one} for one in suite.tests]
            }
            for suite in campaign.suites.values()
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _mutant(campaign: Campaign, number: int, mutant: Mutant) -> Mapping[str, Any]:
    result = campaign.results.get(mutant)
    start, end = (
        dict(zip(("line", "column"), mutant.source.place(offset), strict=True))
        for offset in (mutant.change.start, mutant.change.end)
    )
    document: dict[str, Any] = {
        "id": str(number),
        "mutatorName": mutant.operator,
        "replacement": mutant.change.text,
        "location": {"start": start, "end": end},
        "status": "Pending" if result is None else _STATUSES[result.status],
    }
    if result is not None:
        document |= _told(result)
    return document


def _told(result: Fate) -> Mapping[str, Any]:
    said: dict[str, Any] = {
        "statusReason": result.why,
        "testsCompleted": result.ran,
        "duration": round(1000 * result.seconds),
    }
    if result.death is not None:
        said["statusReason"] = f"{result.death.by}: {result.death.message}"
        said["killedBy"] = [f"{result.suite}: {result.death.test}"]
    return said
