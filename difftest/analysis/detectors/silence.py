"""Findings that the kernel's author has looked at and allows: ``# difftest: allow[id]``.

The comment stands on one of the lines that a finding names, or anywhere in the statement there;
``allow[one, other]`` allows several ids.
"""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache

from difftest.analysis.finding import Finding
from difftest.simulator.trace import Location

_ALLOW = re.compile(r"#\s*difftest:\s*allow\[([^\]]*)\]")


def is_silenced(finding: Finding) -> bool:
    """Whether a comment at one of the finding's lines allows it."""
    lines = (line for place in finding.locations for line in (place, *place.calls))
    return any(finding.id in allowed_at(line) for line in lines)


def allowed_at(location: Location) -> frozenset[str]:
    """The ids that comments allow in the statement at a line of a kernel."""
    source = "".join(linecache.getlines(location.file))
    return _allowed(source).get(location.line, frozenset())


@lru_cache(maxsize=64)
def _allowed(source: str) -> dict[int, frozenset[str]]:
    """For each line that has any, the ids that comments allow in its statement."""
    said = dict(_comments(source))
    if not said:
        return {}
    allowed: dict[int, frozenset[str]] = {}
    for lines in _statements(source):
        ids = frozenset[str]().union(*(said.get(line, frozenset()) for line in lines))
        if ids:
            for line in lines:
                allowed[line] = allowed.get(line, frozenset()) | ids
    return allowed


def _comments(source: str) -> Iterator[tuple[int, frozenset[str]]]:
    """(line, ids) of each comment that allows any."""
    if "difftest:" not in source:
        return
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and (match := _ALLOW.search(token.string)):
                yield token.start[0], frozenset(map(str.strip, match.group(1).split(",")))
    except (tokenize.TokenError, SyntaxError):  # not a file of Python: what it has said counts
        return


def _statements(source: str) -> Iterator[range]:
    """The lines of each statement; of one with a body, those before it."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            last = node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if body:
                last = max(node.lineno, body[0].lineno - 1)
            yield range(node.lineno, last + 1)
