"""Error codes and texts of the compiler and the runtime: the meaning and the blame of each.

The rows are data (``codes.csv``), which the device and ``difftest explain`` read. Each row names
its source. Pages are AWS's public documentation at the tag in the row. Other sources are AWS's
table of codes (aws-neuron/neuron-agentic-development,
``skills/neuron-nki-debugging/references/compiler-error-codes.md``) and the compiler's output in
public threads and repositories.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from difftest.support.csv_rows import csv_rows


class Blame(Enum):
    """The side to blame for an error."""

    KERNEL = "kernel"
    INFRASTRUCTURE = "infrastructure"


class Cause(NamedTuple):
    """The cause of a code of the compiler or the runtime.

    Attributes
    ----------
    rules : the linter's rules that find the cause in a kernel.
    number : the number of a runtime status; None for a code of the compiler.
    """

    meaning: str
    remedy: str
    source: str
    rules: tuple[str, ...] = ()
    number: int | None = None
    blame: Blame = Blame.KERNEL


def _rows(is_text: bool) -> dict[str, Cause]:
    """Return the causes by code, or those by the pattern of a text."""
    causes = {}
    for row in csv_rows(Path(__file__).with_name("codes.csv")):
        if bool(row["is_text"]) is is_text:
            causes[row["said"]] = Cause(
                row["meaning"],
                row["remedy"],
                row["source"],
                tuple(row["rules"].split()),
                int(row["number"]) if row["number"] else None,
                Blame(row["blame"] or Blame.KERNEL.value),
            )
    return causes


CODES = _rows(is_text=False)
"""Causes by code, with the prefix of its newest form."""
TEXTS = _rows(is_text=True)
"""Causes by a pattern of a text without a code."""
BY_NUMBER = {
    cause.number: code for code, cause in CODES.items() if cause.number is not None
}
"""The name of each status of the runtime by its number."""

_PREFIXED = r"NCC_[A-Z]+\d+"
_NAME = r"NRT_[A-Z_]+[A-Z]"
_SHORT = r"(?:[A-Z]{3,4}|F)\d{3}"
_CODE = re.compile(rf"\b(?:{_PREFIXED}|{_NAME})\b|\[({_SHORT})\]|\b({_SHORT})\b")
_STATUS = re.compile(
    r"(?<!exit )\b(?:NRT|nrt_\w+|status(?:_code)?|ret(?:urned)?)\b[^\n\d]{0,24}?\b(\d{1,4})\b"
)
_DISTINCT = 1000
"""Numbers from here on are runtime statuses; smaller ones only in a line on the runtime."""
_NO_STATUS = re.compile(
    r"NRT_(?:SUCCESS|(?:STATE|DTYPE|OP|TENSOR|FRAMEWORK|MAJOR|MINOR)_.*)"
)
"""Names of the runtime that report no failure."""
_LINE = re.compile(r"([\w./-]+\.py)(?:\", line |:)(\d+)")


class Explanation(NamedTuple):
    """A code or text in a log, with its cause if known, and the kernel's lines near it.

    ``times`` is its number of occurrences in the log.
    """

    said: str
    cause: Cause | None
    lines: tuple[str, ...]
    times: int = 1


def explain_log(log: str) -> Iterator[Explanation]:
    """Yield each code and each known text of a log once, with the Python lines near it."""
    found: dict[str, list[str]] = {}
    near: dict[str, list[str]] = {}
    rows = log.splitlines()
    for number, row in enumerate(rows):
        beside = "\n".join(rows[max(0, number - 2) : number + 3])
        lines = [f"{file}:{line}" for file, line in _LINE.findall(beside)]
        texts = [match.group(0) for text in TEXTS if (match := re.search(text, row))]
        for said in codes_in(row) + texts:
            key = full_code(said)
            found.setdefault(key, []).append(said)
            near.setdefault(key, []).extend(lines)
    for key, every in found.items():
        yield Explanation(
            every[0], cause_of(key), tuple(dict.fromkeys(near[key])), len(every)
        )


def codes_in(row: str) -> list[str]:
    """Return the codes in a line as written; a status by number only if no status has a name.

    A code without ``NCC_`` counts if it is known or in brackets: other words look like codes.
    """
    codes = []
    for match in _CODE.finditer(row):
        said = match[1] or match[0]
        is_bare = match[2] is not None and full_code(said) not in CODES
        if not is_bare and not _NO_STATUS.fullmatch(said):
            codes.append(said)
    if not any(code.startswith("NRT_") for code in codes):
        codes += _named_statuses(row)
    return codes


def _named_statuses(row: str) -> Iterator[str]:
    """Yield the names of the statuses that a line gives by number."""
    is_of_runtime = re.search("nrt|neuron", row, re.IGNORECASE) is not None
    for match in _STATUS.finditer(row):
        number = int(match[1])
        if number in BY_NUMBER and (is_of_runtime or number >= _DISTINCT):
            yield BY_NUMBER[number]


def full_code(said: str) -> str:
    """Return a code with the prefix of its newest form: ``NCC_ITEN404`` for ``TEN404``.

    Older releases print ``EVRF007`` or, of an internal error, ``TEN404``.
    """
    if said in CODES or not re.fullmatch(rf"(?:NCC_)?{_SHORT}", said):
        return said
    short = said.removeprefix("NCC_")
    for full in (f"NCC_{short}", f"NCC_I{short}"):
        if full in CODES:
            return full
    return said


def cause_of(code: str) -> Cause | None:
    """Return the cause of a code, or of a known text; else None."""
    code = full_code(code)
    if code in CODES:
        return CODES[code]
    for text, cause in TEXTS.items():
        if re.search(text, code):
            return cause
    return None
