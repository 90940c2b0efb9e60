"""Outcomes of a suite's tests or examples, and the causes of failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"

_NUMBERS = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
_OBJECTS = re.compile(r" at 0x[0-9a-f]+")
_PATHS = re.compile(r"(?<!\w)/[^\s:'\"]*/")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_DENIAL = re.compile(r"\bdiffer\b|\bFAILED\b|\b(?:pass|matches)\? False\b")
"""Texts that the documentation's programs print for a wrong result, instead of an assertion."""
_LONGEST = 160
"""Characters of a cause that a table shows."""


@dataclass(frozen=True)
class Outcome:
    """One test or example: the group it belongs to (its file), its name, and what came of it.

    ``why`` is empty where it passed, else the error's text.
    """

    group: str
    name: str
    result: str
    why: str = ""


@dataclass
class Count:
    """The number of each outcome in a group of tests."""

    results: Counter[str] = field(default_factory=Counter)

    @property
    def tried(self) -> int:
        """Those that ran: a skipped test did not."""
        return self.results[PASSED] + self.results[FAILED]


def denial(printed: str) -> str:
    """Return the output line that reports a wrong result; empty if none."""
    return next(
        (line.strip() for line in printed.splitlines() if _DENIAL.search(line)), ""
    )


def cause(text: str) -> str:
    """Return the first line of an error, without parts that differ between tests.

    Numbers become N and folders are removed, so that each cause is counted once. A line is cut at
    160 characters.
    """
    lines = (_COLOURS.sub("", line).strip() for line in text.splitlines())
    line = next((line for line in lines if line), "no message")
    line = _NUMBERS.sub("N", _PATHS.sub("", _OBJECTS.sub("", line)))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def by_group(outcomes: Iterable[Outcome]) -> dict[str, Count]:
    """Return the counts of each group, in order of appearance."""
    counts: dict[str, Count] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.group, Count()).results[outcome.result] += 1
    return counts


def by_cause(outcomes: Iterable[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """Return the failures of each cause, the most frequent cause first."""
    causes: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.result == FAILED:
            causes.setdefault(cause(outcome.why), []).append(outcome)
    return sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
