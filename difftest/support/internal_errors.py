"""A check of ours that breaks down is one line with its name, and the kernel is judged without it.

What goes wrong in a rule, a detector, a report or a prediction says nothing of the kernel.
"""

from __future__ import annotations

import os
import sys

_LINES: set[str] = set()


class internal_error_scope(str):  # it is the name; a generator would take three times as long
    """A scope whose error is a line, and ends there; generators may have it around a ``yield``."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, Exception):
            from traceback import extract_tb

            at = extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            line = f"{self} broke down at {os.path.basename(at.filename)}:{at.lineno} ({what})"
            whose = "this machine" if isinstance(error, OSError) else "nki-difftest"
            _LINES.add(f"{line}: a fault of {whose}, and no verdict on the kernel")
        return isinstance(error, Exception)


def drain_internal_errors() -> list[str]:
    """The lines since this was last asked: who shows them asks."""
    return sorted(_LINES.pop() for _ in range(len(_LINES)))


def print_internal_errors() -> None:
    """Print them, where no summary has them."""
    sys.stderr.writelines(f"{line}\n" for line in drain_internal_errors())
