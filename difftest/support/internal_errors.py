"""Errors of the package itself: each becomes one line, and the verdict ignores it.

An error in a rule, a detector, a report or a prediction is not evidence about the kernel.
"""

from __future__ import annotations

import os
import sys

_LINES: set[str] = set()


# a generator-based context manager takes three times as long
class internal_error_scope(str):
    """A context manager that turns an error into a line that starts with this string.

    Generators may hold it around a ``yield``.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, Exception):
            from traceback import extract_tb

            at = extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            line = f"{self} crashed at {os.path.basename(at.filename)}:{at.lineno} ({what})"
            whose = "this machine" if isinstance(error, OSError) else "nki-difftest"
            _LINES.add(f"{line}: a fault of {whose}, and no verdict on the kernel")
        return isinstance(error, Exception)


def drain_internal_errors() -> list[str]:
    """Return the lines recorded since the last call, and forget them."""
    return sorted(_LINES.pop() for _ in range(len(_LINES)))


def print_internal_errors() -> None:
    """Print the recorded lines to standard error, for commands without a summary."""
    sys.stderr.writelines(f"{line}\n" for line in drain_internal_errors())
