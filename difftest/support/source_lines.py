"""The source of files as tracebacks and reports show it."""

from __future__ import annotations

import ast
import contextlib
import linecache
from collections.abc import Iterator, Mapping, Sequence


def parsed_file(file: str) -> ast.Module:
    """Return the syntax tree of a file, a notebook's cell too; empty if it is not Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ast.Module([], [])


@contextlib.contextmanager
def lines_shown(files: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Show these lines, each with its line end, as the source of their files within the block."""
    cache = linecache.cache
    before = {file: cache.get(file) for file in files}
    for file, lines in files.items():
        cache[file] = (sum(map(len, lines)), None, list(lines), file)
    try:
        yield
    finally:
        for file, entry in before.items():
            if entry is None:
                cache.pop(file, None)
            else:
                cache[file] = entry
