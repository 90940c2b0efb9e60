"""Comments that silence one place: ``# difftest: ignore[ID] reason``."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field

_IGNORE = re.compile(r"#\s*difftest:\s*ignore\[([^\]]*)\]")


@dataclass
class Ignored:
    """One comment: the ids that it names, and the lines of the statement that it stands at."""

    line: int
    column: int
    ids: frozenset[str]
    lines: range
    used: set[str] = field(default_factory=set)

    def silences(self, id: str, line: int) -> bool:
        """Whether it is about a rule at a line."""
        return id in self.ids and line in self.lines


def ignored_in(text: str) -> list[Ignored]:
    """The comments of a file of Python."""
    if "difftest:" not in text:
        return []
    statements = [
        range(node.lineno, (_last_line(node)) + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt)
    ]
    comments = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
        if match:
            line, column = token.start
            ids = frozenset(map(str.strip, match.group(1).split(",")))
            own = [lines for lines in statements if line in lines] or [range(line, line + 2)]
            comments.append(Ignored(line, column + 1, ids, min(own, key=len)))
    return comments


def _last_line(node: ast.stmt) -> int:
    """The last line of a statement; of one with a body, of what stands before it."""
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
