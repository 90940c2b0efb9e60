"""The mutation table as a page of Markdown, and the report in Stryker's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from difftest.report.mutants.campaign import Campaign
from difftest.report.mutants.judge import NOT_COVERED, STATUSES, SURVIVED, SUSPECTED, Fate
from difftest.report.mutants.mutant import Mutant
from difftest.report.mutants.score import (
    ALIVE,
    DEAD,
    Score,
    lines_of,
    scores,
    shown,
    total,
)

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
        *(_row(shown(file), score) for file, score in sorted(scores(results, "file").items())),
        "",
        f"| bug {_HEAD}",
        *(_row(name, score) for name, score in sorted(scores(results, "operator").items())),
    ]
    alive = [one for one in results.items() if one[1].status in ALIVE]
    if alive:
        rows += ["", "## Not found", "", "```diff"]
        rows += [line for one in alive for line in (*lines_of(*one), "")]
        rows[-1] = "```"
    suspected = [one for one in results.items() if one[1].status in SUSPECTED]
    if suspected:
        rows += [
            "",
            "## Suspected equivalents",
            "",
            "| place | bug | line | why |",
            "|---|---|---|---|",
        ]
        rows += [_suspect(*one) for one in suspected]
    return "\n".join(rows) + "\n"


def _suspect(mutant: Mutant, fate: Fate) -> str:
    line = mutant.diff()[-1][1:].strip().replace("|", "\\|")
    place = f"{shown(mutant.file)}:{mutant.lines[0]}"
    return f"| {place} | {mutant.operator} | `{line}` | {fate.status}: {fate.why} |"


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
    place = mutant.source.region(mutant.change.start, mutant.change.end)
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
