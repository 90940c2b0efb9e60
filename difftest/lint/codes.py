"""Codes and texts of the compiler and the runtime: what each means, and what to do.

The rows are data (``data/codes.csv``). Sources: AWS's table of codes
(aws-neuron/neuron-agentic-development, ``skills/neuron-nki-debugging/references/
compiler-error-codes.md``), its release notes, and records of the compiler's answers in public
threads and repositories, named with each row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Cause(NamedTuple):
    """What makes the compiler say a code.

    ``rules`` are the linter's that look for it in a kernel.
    """

    meaning: str
    remedy: str
    source: str
    rules: tuple[str, ...] = ()


def _rows(is_text: bool) -> dict[str, Cause]:
    with (Path(__file__).parent / "data/codes.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["said"]: Cause(
                row["meaning"], row["remedy"], row["source"], tuple(row["rules"].split())
            )
            for row in csv.DictReader(file)
            if bool(row["is_text"]) is is_text
        }


CODES = _rows(is_text=False)
"""By code, as a log prints it."""
TEXTS = _rows(is_text=True)
"""By a pattern of a text that comes without a code."""

_CODE = re.compile(r"\b(?:NCC_[A-Z]{4}\d{3}|NLA\d{3}|TEN\d{3})\b")
_LINE = re.compile(r"([\w./-]+\.py)(?:\", line |:)(\d+)")


class Explained(NamedTuple):
    """What a log says: the code or text, its cause if it is known, and the kernel's lines."""

    said: str
    cause: Cause | None
    lines: tuple[str, ...]


def explain(log: str) -> Iterator[Explained]:
    """Each code and each known text of a log, once, with the lines of Python beside it."""
    codes: dict[str, list[str]] = {}
    rows = log.splitlines()
    for number, row in enumerate(rows):
        near = "\n".join(rows[max(0, number - 2) : number + 3])
        lines = [f"{file}:{line}" for file, line in _LINE.findall(near)]
        said = _CODE.findall(row)
        said += [match.group(0) for text in TEXTS if (match := re.search(text, row))]
        for code in said:
            codes.setdefault(code, []).extend(lines)
    for key, lines in codes.items():
        yield Explained(key, cause_of(key), tuple(dict.fromkeys(lines)))


def cause_of(said: str) -> Cause | None:
    """The row of a code, or of a text that is known."""
    if said in CODES:
        return CODES[said]
    return next((row for text, row in TEXTS.items() if re.search(text, said)), None)
