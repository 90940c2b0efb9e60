"""Files and runs of kernels, read for one SDK, or for what is new in it since another one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from difftest.lint.check import Diagnostic, lint_file
from difftest.lint.sdk import Release
from difftest.lint.traced import lint_trace
from difftest.simulator.trace import Trace


def new_in_files(
    paths: Sequence[Path],
    sdk: Release | None,
    before: Release | None,
    target: str | None,
    ids: Collection[str],
) -> tuple[list[Diagnostic], list[str]]:
    """The diagnostics of files and folders, and what is to be said of those that nobody can read.

    Parameters
    ----------
    before : an SDK whose diagnostics are left out; None for all. The others as of ``lint_file``.
    """
    diagnostics: list[Diagnostic] = []
    unread = []
    for file in _python_files(paths):
        try:
            found = lint_file(file, sdk, target, ids)
            known = set(lint_file(file, before, target, ids)) if before else set()
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            unread.append(f"{file}: cannot be read as Python: {error}")
        else:
            diagnostics += [one for one in found if one not in known]
    return diagnostics, unread


def new_in_trace(
    trace: Trace, sdk: Release | None, before: Release | None, ids: Collection[str]
) -> list[Diagnostic]:
    """The same of the run of a kernel."""
    known = lint_trace(trace, before, ids) if before else []
    return [one for one in lint_trace(trace, sdk, ids) if one not in known]


def _python_files(paths: Sequence[Path]) -> list[Path]:
    return [
        file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
