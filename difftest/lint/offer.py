"""What `difftest migrate` can do for a file, in one line, for those who have not run it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from difftest.lint.check import Diagnostic

_CLASSIC = "NKU301"
"""The rule for a file of the classic dialect."""


def offers(diagnostics: Iterable[Diagnostic]) -> Iterator[str]:
    """A line for each file that is of the classic dialect."""
    for path in dict.fromkeys(one.path for one in diagnostics if one.id == _CLASSIC):
        yield _offer(Path(path))


def _offer(file: Path) -> str:
    """What `difftest migrate` makes of a classic file that a newer SDK refuses."""
    if find_spec("libcst") is None:
        return f"{file}: `difftest migrate` rewrites it: pip install 'nki-difftest[migrate]'"
    from difftest.migration.rewriting import migrate

    left = len(migrate(file.read_text(encoding="utf-8")).left)
    if not left:
        return f"{file}: fix, safe: `difftest migrate {file}` rewrites all of it"
    places = f"{left} place{'s' * (left > 1)}"
    return f"{file}: fix, unsafe: `difftest migrate {file}` leaves {places} to do by hand"
