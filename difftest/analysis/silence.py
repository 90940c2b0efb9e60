"""Comments that silence a finding at one place: ``# difftest: ignore[id, other] a reason``.

The comment stands anywhere in a statement, or alone on the line before it. ``allow`` is the same
word: detectors of hazards have it in their texts.
"""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from functools import lru_cache
from typing import NamedTuple

from difftest.simulator.trace import Location

_COMMENT = re.compile(r"#\s*difftest:\s*(?:allow|ignore)\[([^\]]*)\]")


class Silencing(NamedTuple):
    """One comment: where it begins, the ids that it names, and the lines that it is about."""

    line: int
    column: int
    ids: frozenset[str]
    lines: range

    def silences(self, id: str, line: int) -> bool:
        """Whether it is about an id at a line."""
        return id in self.ids and line in self.lines


def is_silenced(id: str, *places: Location) -> bool:
    """Whether a comment silences an id at one of these lines, or at a line that called it."""
    return any(
        comment.silences(id, line.line)
        for place in places
        for line in (place, *place.calls)
        for comment in silencing_in("".join(linecache.getlines(line.file)))
    )


@lru_cache(maxsize=64)
def silencing_in(text: str) -> tuple[Silencing, ...]:
    """The comments of a file; none of what is no Python."""
    if "difftest:" not in text:
        return ()
    try:
        statements = [_lines(node) for node in ast.walk(ast.parse(text)) if _is_statement(node)]
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return ()
    comments = []
    for token in tokens:
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match:
            line, column = token.start
            ids = frozenset(map(str.strip, match.group(1).split(",")))
            own = [lines for lines in statements if line in lines] or [range(line, line + 2)]
            comments.append(Silencing(line, column + 1, ids, min(own, key=len)))
    return tuple(comments)


def _is_statement(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt)


def _lines(node: ast.AST) -> range:
    """The lines of a statement; of one with a body, those before it."""
    first, body = getattr(node, "lineno", 1), getattr(node, "body", None)
    last = max(first, body[0].lineno - 1) if body else getattr(node, "end_lineno", None) or first
    return range(first, last + 1)
