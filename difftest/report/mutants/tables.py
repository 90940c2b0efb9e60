"""The mutation table as a page of Markdown, and the report in Stryker's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from difftest.report.mutants.campaign import Campaign
from difftest.report.mutants.judge import NOT_COVERED, STATUSES, SURVIVED, SUSPECTED
from difftest.report.mutants.mutant import Mutant
from difftest.report.mutants.score import (
    ALIVE,
    DEAD,
    Score,
    lines_of,
    scores,
    total,
)
from difftest.simulator.errors import near

_HEAD = (
    "| mutants | found | survived | not covered | suspected equivalents | score "
    "| tests until the last is found | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def markdown(campaign: Campaign, command: str) -> str:
    """The table: a row a file, a row a kind of bug, then what no test found."""
    results = campaign.results
    rows = [
        "# Planted bugs",
        "",
        "Which bugs do the tests of the kernels find? [Plant bugs](../../how-to/mutate.md) says "
        f"what the words mean. nki-difftest {version('nki-difftest')} wrote this page, with "
        f"{campaign.settings.cases} drawn cases for each test:",
        "",
        f"```\n{command}\n```",
        "",
        f"{total(results.values())}; not judged: {len(campaign.mutants) - len(results)}",
        "",
        f"| file {_HEAD}",
        *(_row(near(file), score) for file, score in sorted(scores(results, "file").items())),
        "",
        f"| bug {_HEAD}",
        *(_row(name, score) for name, score in sorted(scores(results, "operator").items())),
    ]
    for title, kinds in (("Not found", ALIVE), ("Suspected equivalents", SUSPECTED)):
        several = [pair for pair in results.items() if pair[1].status in kinds]
        if several:
            rows += ["", f"## {title}", "", "```diff"]
            rows += [line for pair in several for line in (*lines_of(*pair), "")]
            rows[-1] = "```"
    return "\n".join(rows) + "\n"


def _row(name: str, score: Score) -> str:
    cells = (
        score.statuses.total(),
        score.of(DEAD),
        score.statuses[SURVIVED],
        score.statuses[NOT_COVERED],
        score.of(SUSPECTED),
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
            near(mutant.file), {"language": "python", "source": text, "mutants": []}
        )
        file["mutants"].append(_mutant(campaign, number, mutant))
    document = {
        "schemaVersion": "2.0",
        "thresholds": {"high": 95, "low": 80},
        "framework": {"name": "nki-difftest", "version": version("nki-difftest")},
        "files": files,
        "testFiles": {
            suite.name: {
                "tests": [{"id": f"{suite.name}: {test}", "name": test} for test in suite.tests]
            }
            for suite in campaign.suites.values()
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _mutant(campaign: Campaign, number: int, mutant: Mutant) -> Mapping[str, Any]:
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
