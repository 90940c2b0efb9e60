"""Files and runs of kernels, read for one SDK, or for what is new in it since another one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any

from difftest.lint.check import Diagnostic, lint
from difftest.lint.fix import applied
from difftest.lint.levels import Level, Levels, ids_of, levels_by_name
from difftest.lint.sdk import NEWEST, SDKS, Release
from difftest.lint.source import Source
from difftest.lint.traced import lint_trace
from difftest.simulator.trace import Trace

_ROUNDS = 20
"""A fix can make room for another one; each file comes to rest after a few."""


@dataclass(frozen=True, kw_only=True)
class LintRequest:
    """Which rules are asked, and how much each counts.

    Attributes
    ----------
    sdk : None for the newest that a file's dialect was written for.
    before : an SDK whose diagnostics are left out; None for all.
    target : a machine; None for the rules of all.
    ids : of rules, if not all are meant.
    """

    sdk: Release | None = None
    before: Release | None = None
    target: str | None = None
    ids: Collection[str] = ()
    levels: Levels = field(default_factory=Levels)

    def of_source(self, source: Source) -> list[Diagnostic]:
        """The diagnostics of a file; in its own order."""
        found = lint(source, self.sdk or source.sdk, self.target, self.ids)
        before = self.before
        known = set(lint(source, before, self.target, self.ids)) if before else set()
        return [one for one in found if one not in known and self._is_told(one)]

    def of_trace(self, trace: Trace) -> list[Diagnostic]:
        """The same of the run of a kernel."""
        known = lint_trace(trace, self.before, self.ids) if self.before else []
        found = lint_trace(trace, self.sdk, self.ids)
        return [one for one in found if one not in known and self._is_told(one)]

    def of_files(self, paths: Sequence[Path]) -> tuple[list[Diagnostic], list[str]]:
        """The diagnostics of files and folders, and what is to be said of those nobody can read."""
        diagnostics: list[Diagnostic] = []
        unread = []
        for file in _python_files(paths):
            try:
                diagnostics += self.of_source(Source(file, _text(file)))
            except (OSError, SyntaxError, UnicodeDecodeError) as error:
                unread.append(f"{file}: cannot be read as Python: {error}")
        return diagnostics, unread

    def fixed_files(self, paths: Sequence[Path], unsafe: bool) -> Iterator[tuple[Path, str, str]]:
        """Each file that fixes change, its text, and what becomes of it; nothing is written.

        Parameters
        ----------
        unsafe : whether fixes are applied that may change what a kernel computes.
        """
        for file in _python_files(paths):
            try:
                text = _text(file)
                fixed = self._fixed(file, text, unsafe)
            except (OSError, SyntaxError, UnicodeDecodeError):
                continue  # who reads the files says so
            if fixed != text:
                yield file, text, fixed

    def _fixed(self, file: Path, text: str, unsafe: bool) -> str:
        for _ in range(_ROUNDS):
            fixes = (one.fix for one in self.of_source(Source(file, text)))
            text, count = applied(text, [one for one in fixes if one and (one.is_safe or unsafe)])
            if not count:
                break
        return text

    def _is_told(self, one: Diagnostic) -> bool:
        return self.levels.of(one.rule) is not Level.ALLOW


def request_of(asked: Mapping[str, Any], chosen: Mapping[Level, Iterable[str]]) -> LintRequest:
    """What a project and a command line ask for.

    Parameters
    ----------
    asked : ``sdk``, ``before``, ``target``, ``ids`` and the project's ``levels``, where they are
        named. What is new since ``before`` is asked of the newest SDK, if none is named.
    chosen : the names of rules and groups that the command line gives a level.

    Raises
    ------
    SettingsError : a name is no rule's and no group's.
    """
    before, target = asked.get("before"), asked.get("target")
    sdk = asked.get("sdk") or (NEWEST.version if before else None)
    levels = {**asked["levels"], **levels_by_name(chosen)}
    return LintRequest(
        sdk=SDKS.get(sdk or ""),
        before=SDKS.get(before or ""),
        target=target,
        ids=ids_of(asked.get("ids", ())),
        levels=Levels(levels, sdk is not None, target is not None),
    )


def diff(file: Path, text: str, fixed: str) -> str:
    """How a file changes, as a unified diff."""
    lines = text.splitlines(keepends=True), fixed.splitlines(keepends=True)
    name = file.as_posix()
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in unified_diff(*lines, name, name)
    )


def write(file: Path, text: str) -> None:
    """Write a file with the ends of lines that its text has."""
    with file.open("w", encoding="utf-8", newline="") as opened:
        opened.write(text)


def _text(file: Path) -> str:
    with file.open(encoding="utf-8", newline="") as opened:
        return opened.read()


def _python_files(paths: Sequence[Path]) -> list[Path]:
    return [
        file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
