"""Markdown of the generated pages and reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

_FENCE = "~~~~"


def table_lines(
    head: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0
) -> Iterator[str]:
    """Yield the lines of a table; the last ``numbers`` columns are aligned to the right."""
    yield _row(head)
    yield f"|{'---|' * (len(head) - numbers)}{'--:|' * numbers}"
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def cell(text: str) -> str:
    """Return a text for a cell of a table, with its characters of Markdown escaped."""
    return text.replace("|", "\\|").replace("_", "\\_")


def inline_code(text: str) -> str:
    """Return a text as code within a line."""
    return f"`{text.replace('`', chr(39))}`"


def code_block(text: str, language: str = "") -> str:
    """Return lines of code, with a line end after the block."""
    return f"{_FENCE}{language}\n{text.replace(_FENCE, '~~~')}\n{_FENCE}\n"
