"""Source lines that tracebacks and reports show in place of a file's own."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator, Mapping, Sequence


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
