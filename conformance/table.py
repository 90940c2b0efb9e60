"""Outcomes as Markdown, and their place in docs/contributing/generated/conformance.md."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Sequence
from pathlib import Path

from conformance.outcomes import (
    FAILED,
    PASSED,
    SKIPPED,
    Outcome,
    by_cause,
    by_group,
    cause,
)

PAGE = (
    Path(__file__).parents[1] / "docs" / "contributing" / "generated" / "conformance.md"
)


def section(
    title: str,
    command: str,
    checkout: Path,
    outcomes: Sequence[Outcome],
    *,
    each: bool = False,
) -> str:
    """Return the Markdown of one run: its origin, the counts of each group, causes of failures.

    Parameters
    ----------
    title
        The heading; it names the run and is unique on the page.
    command
        The command that reproduces the figures, with PATH for the checkout.
    checkout
        The folder that was run; git names its commit.
    outcomes
        The outcome of each test or example.
    each
        Whether to list everything that was skipped or failed, instead of an example of each cause.
    """
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    counts = by_group(outcomes)
    lines = [
        f"## {title}",
        "",
        f"Generated on {today} from {commit_of(checkout)} by",
        "",
        "```",
        command,
        "```",
        "",
        "| file | tried | passed | failed | skipped |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for group, count in counts.items():
        lines.append(_row(group, count.tried, *(count.results[r] for r in _RESULTS)))
    total = [sum(count.results[r] for count in counts.values()) for r in _RESULTS]
    lines.append(_row("**all**", sum(count.tried for count in counts.values()), *total))
    causes = by_cause(outcomes)
    if each:
        lines += _list_of_each(outcomes)
    elif causes:
        lines += ["", "| failures | cause | one of them |", "| ---: | --- | --- |"]
        for why, failures in causes:
            lines.append(_row(len(failures), _code(why), _code(failures[0].name)))
    return "\n".join(lines) + "\n"


_RESULTS = (PASSED, FAILED, SKIPPED)


def _list_of_each(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a table of failures and skips; the names of one file and cause share a row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for one in outcomes:
        if one.result != PASSED:
            part = one.name.removeprefix(one.group).lstrip(":/")
            rows.setdefault((one.group, one.result, cause(one.why)), []).append(part)
    lines = ["", "| file | which | result | why |", "| --- | --- | --- | --- |"]
    ordered = sorted(rows.items(), key=lambda item: (item[0][1], item[0][0]))
    lines += [
        _row(g, ", ".join(which), r, _code(why)) for (g, r, why), which in ordered
    ]
    return lines


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _code(text: str) -> str:
    """``text`` in a cell, as code: a bar would end the cell, a backtick the code."""
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def commit_of(checkout: Path) -> str:
    """``commit abc… of DATE`` of a checkout, or that it is not one of git.

    A folder inside another checkout is not one itself: git would name the outer commit.
    """
    git = ["git", "-C", str(checkout)]
    top = subprocess.run(
        [*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True
    )
    if top.returncode or Path(top.stdout.strip()).resolve() != checkout.resolve():
        return "a folder that is no git checkout"
    shown = subprocess.run(
        [*git, "show", "-s", "--format=commit %H of %cs"],
        capture_output=True,
        text=True,
        check=True,
    )
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"],
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.strip() + (", changed since," if changed.stdout else "")


def place(text: str, page: Path = PAGE) -> None:
    """Write a section on the page: replace the section with its heading, or append it."""
    heading, _, _ = text.partition("\n")
    before, *sections = ("\n" + page.read_text(encoding="utf-8")).split("\n## ")
    kept = [before.lstrip("\n")]
    placed = False
    for old in sections:
        same = f"## {old.partition(chr(10))[0]}" == heading
        kept.append(text.removeprefix("## ") if same else old)
        placed = placed or same
    if not placed:
        kept.append(text.removeprefix("## "))
    page.write_text(
        "\n## ".join(part.rstrip("\n") + "\n" for part in kept), encoding="utf-8"
    )
