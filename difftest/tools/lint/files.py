"""Lint files and kernel runs for an SDK, and assign a level to each finding."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any

from difftest.simulator.trace import Trace
from difftest.support.pyproject import difftest_table
from difftest.tools.lint.check import Diagnostic, lint_source, lint_trace, rules
from difftest.tools.lint.rule import (
    NEWEST,
    SDKS,
    TARGETS,
    Confidence,
    Group,
    Release,
    Rule,
)
from difftest.tools.lint.source import UNREADABLE, Source, applied

_ROUNDS = 20
"""The maximum number of passes over a file, because a fix may enable another fix."""


STDIN = Path("-")
"""The file whose text is a request's ``stdin``."""
TABLE = "[tool.difftest.lint]"
ALL = "all"


class Level(Enum):
    """The consequence of a finding."""

    ALLOW = "allow"
    """The finding is not reported."""
    WARN = "warn"
    """The finding is reported."""
    DENY = "deny"
    """The finding is reported, and the exit code is 1."""


class SettingsError(Exception):
    """An invalid level or setting."""


@dataclass(frozen=True)
class Levels:
    """The level of each rule.

    Findings are denied if the compiler that you name rejects the code. Upgrade rules are therefore
    warnings until you name an SDK, and portability rules until you name a target. Correctness
    rules are denied by default.

    Attributes
    ----------
    chosen : the selected levels by ``all``, group or id. The most specific name wins.
    is_sdk_named, is_target_named : whether an SDK or a target is named.
    """

    chosen: Mapping[str, Level] = field(default_factory=dict)
    is_sdk_named: bool = False
    is_target_named: bool = False

    def of(self, rule: Rule) -> Level:
        """Return the level of a rule's findings."""
        for name in (rule.id, rule.group.value, ALL):
            if name in self.chosen:
                return self.chosen[name]
        is_certain = {
            Group.CORRECTNESS: True,
            Group.PORTABILITY: self.is_target_named,
            Group.UPGRADE: self.is_sdk_named,
            Group.PERFORMANCE: False,
        }
        is_known = rule.confidence in (Confidence.DOCUMENTED, Confidence.RECORDED)
        return Level.DENY if is_certain[rule.group] and is_known else Level.WARN

    def denied(self, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
        """Return the diagnostics that are denied."""
        return [entry for entry in diagnostics if self.of(entry.rule) is Level.DENY]


def levels_by_name(choices: Mapping[Level, Iterable[str]]) -> dict[str, Level]:
    """Return the level of each named rule or group.

    Raises
    ------
    SettingsError : a rule or group does not exist, or a name has two levels.
    """
    chosen: dict[str, Level] = {}
    for level, names in choices.items():
        for name in names:
            rule_ids([name])
            if chosen.setdefault(name, level) is not level:
                raise SettingsError(
                    f"{name} has two levels: {chosen[name].value} and {level.value}"
                )
    return chosen


def rule_ids(names: Iterable[str]) -> frozenset[str]:
    """Return the ids of the rules that ids and groups name.

    Raises
    ------
    SettingsError : a rule or group does not exist.
    """
    named: dict[str, set[str]] = {ALL: set(rules())}
    for id, rule in rules().items():
        named[id] = {id}
        named.setdefault(rule.group.value, set()).add(id)
    ids: set[str] = set()
    for name in names:
        if name not in named:
            groups = ", ".join([ALL, *(group.value for group in Group)])
            raise SettingsError(
                f"there is no rule {name}; the groups are {groups}, the rules {', '.join(rules())}"
            )
        ids |= named[name]
    return frozenset(ids)


def project_settings(folder: Path) -> dict[str, Any]:
    """Return the table ``[tool.difftest.lint]`` of the nearest pyproject.toml above a folder.

    Returns
    -------
    ``sdk`` and ``target``, or None if absent, and ``levels`` by name.

    Raises
    ------
    SettingsError : the table has an unknown key or an invalid value.
    """
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            try:
                return _checked_settings(table)
            except SettingsError as error:
                raise SettingsError(f"{file}, {TABLE}: {error}") from None
    return _checked_settings({})


def _checked_settings(table: dict[str, Any]) -> dict[str, Any]:
    settings = {"sdk": table.pop("sdk", None), "target": table.pop("target", None)}
    for name, values in (("sdk", SDKS), ("target", TARGETS)):
        if settings[name] is not None and settings[name] not in values:
            raise SettingsError(
                f"{name} is one of {', '.join(values)}; got {settings[name]!r}"
            )
    choices = {level: table.pop(level.value, []) for level in Level}
    for level, names in choices.items():
        if not isinstance(names, list):
            raise SettingsError(
                f"{level.value} is a list of ids and groups; got {names!r}"
            )
    if table:
        raise SettingsError(f"there is no setting {', '.join(table)}")
    return {**settings, "levels": levels_by_name(choices)}


def _table(file: Path) -> dict[str, Any]:
    try:
        table = difftest_table(file).get("lint", {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from None
    return dict(table) if isinstance(table, dict) else {}


@dataclass(frozen=True, kw_only=True)
class LintRequest:
    """The rules to check, and their levels.

    Attributes
    ----------
    sdk : the SDK. None for the newest SDK of a file's dialect.
    before : an earlier SDK, whose diagnostics are not reported. None to report all.
    target : a machine. None for the rules of all machines.
    ids : the ids of the rules to check. Empty for all rules.
    levels : the level of each rule.
    stdin : the text of the file ``-``.
    """

    sdk: Release | None = None
    before: Release | None = None
    target: str | None = None
    ids: Collection[str] = ()
    levels: Levels = field(default_factory=Levels)
    stdin: str = ""

    def of_source(self, source: Source) -> list[Diagnostic]:
        """Return the diagnostics of a file, in file order."""
        return self._reported(
            lambda sdk: lint_source(source, sdk or source.sdk, self.target, self.ids)
        )

    def of_trace(self, trace: Trace) -> list[Diagnostic]:
        """Return the diagnostics of a kernel's run."""
        return self._reported(lambda sdk: lint_trace(trace, sdk, self.ids))

    def _reported(
        self, read: Callable[[Release | None], list[Diagnostic]]
    ) -> list[Diagnostic]:
        earlier = set(read(self.before)) if self.before else set()
        new = (entry for entry in read(self.sdk) if entry not in earlier)
        return [entry for entry in new if self.levels.of(entry.rule) is not Level.ALLOW]

    def of_files(self, paths: Sequence[Path]) -> tuple[list[Diagnostic], list[str]]:
        """Return the diagnostics of files and folders, and messages about unreadable files."""
        diagnostics: list[Diagnostic] = []
        unread = [
            f"{path} has no Python file" for path in paths if not python_files([path])
        ]
        for file in python_files(paths):
            try:
                source = Source(file, self.text_of(file))
            except UNREADABLE as error:
                unread.append(f"{file}: cannot be read as Python: {error}")
            else:
                diagnostics += self.of_source(source)
        return diagnostics, unread

    def fixed_files(
        self, paths: Sequence[Path], unsafe: bool
    ) -> Iterator[tuple[Path, str, str]]:
        """Yield each file that fixes change, with its old and its new text. Nothing is written.

        Parameters
        ----------
        unsafe : whether to apply fixes that may change a kernel's results.
        """
        for file in python_files(paths):
            with suppress(*UNREADABLE):  # of_files reports unreadable files
                text = self.text_of(file)
                if (fixed := self._fixed(file, text, unsafe)) != text:
                    yield file, text, fixed

    def fixed_text(self, file: Path, unsafe: bool) -> str:
        """Return the text of a file with its fixes, or its own text if it cannot be parsed."""
        text = self.text_of(file)
        with suppress(*UNREADABLE):
            return self._fixed(file, text, unsafe)
        return text

    def text_of(self, file: Path) -> str:
        """Return the text of a file with its original line endings."""
        if file == STDIN:
            return self.stdin
        with file.open(encoding="utf-8-sig", newline="") as opened:
            return opened.read()

    def _fixed(self, file: Path, text: str, unsafe: bool) -> str:
        for _ in range(_ROUNDS):
            fixes = []
            for diagnostic in self.of_source(Source(file, text)):
                fix = diagnostic.fix
                if fix is not None and (fix.is_safe or unsafe):
                    fixes.append(fix)
            text, count = applied(text, fixes)
            if not count:
                break
        return text


def request_of(
    options: Mapping[str, Any], chosen: Mapping[Level, Iterable[str]]
) -> LintRequest:
    """Return the request of a project's settings and a command line.

    Parameters
    ----------
    options : the project's ``levels``, and optionally ``sdk``, ``before``, ``target`` and ``ids``.
        With ``before`` but without ``sdk``, the newest SDK is checked.
    chosen : the names of rules and groups by the level that the command line gives them.

    Raises
    ------
    SettingsError : a name is neither a rule nor a group.
    """
    before = options.get("before")
    target = options.get("target")
    sdk = options.get("sdk") or (NEWEST.version if before else None)
    levels = {**options["levels"], **levels_by_name(chosen)}
    return LintRequest(
        sdk=SDKS.get(sdk or ""),
        before=SDKS.get(before or ""),
        target=target,
        ids=rule_ids(options.get("ids", ())),
        levels=Levels(levels, sdk is not None, target is not None),
    )


def diff(file: Path, text: str, fixed: str) -> str:
    """Return the changes of a file as a unified diff."""
    name = file.as_posix()
    old = StringIO(text).readlines()  # StringIO splits lines as git does
    new = StringIO(fixed).readlines()
    changes = ""
    for line in unified_diff(old, new, name, name):
        changes += line
        if not line.endswith("\n"):
            changes += "\n\\ No newline at end of file\n"
    return changes


def python_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files and, for each folder, its Python files in sorted order."""
    files: list[Path] = []
    for path in paths:
        files += sorted(_inside(path)) if path.is_dir() else [path]
    return files


def _inside(folder: Path) -> Iterator[Path]:
    """Yield the Python files of a folder, except in hidden folders and virtual environments."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        yield from (here / name for name in names if name.endswith(".py"))
        seen = (name for name in folders if not name.startswith("."))
        folders[:] = [
            name for name in seen if not (here / name / "pyvenv.cfg").exists()
        ]
