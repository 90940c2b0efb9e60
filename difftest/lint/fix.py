"""What a fix is: pieces of a file that others replace, so that a rule is kept there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class TextRange(NamedTuple):
    """A place in a file, as editors count: lines and columns of characters from 1, end excluded."""

    line: int
    column: int
    end_line: int
    end_column: int


class Edit(NamedTuple):
    """The characters from ``start`` up to ``end`` of a file become ``text``."""

    start: int
    end: int
    text: str
    region: TextRange
    """The same place as lines and columns."""


class Fix(NamedTuple):
    """Edits that belong together.

    ``is_safe`` says that the kernel computes what it did: an unsafe fix needs a reader.
    """

    title: str
    edits: tuple[Edit, ...]
    is_safe: bool = True


def applied(text: str, fixes: Iterable[Fix]) -> tuple[str, int]:
    """The text with the fixes, and how many of them: one that meets an earlier one waits."""
    taken: list[Edit] = []
    count = 0
    for fix in fixes:
        pairs = ((one, other) for one in fix.edits for other in taken)
        if not any(one.start < other.end and other.start < one.end for one, other in pairs):
            taken += fix.edits
            count += 1
    for one in sorted(taken, reverse=True):
        text = text[: one.start] + one.text + text[one.end :]
    return text, count
