"""Files and runs of kernels, read for an SDK or for what is new in it, and what each counts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any

from difftest.simulator.trace import Trace
from difftest.tools.lint.check import Diagnostic, lint_source, lint_trace, rules
from difftest.tools.lint.rule import NEWEST, SDKS, TARGETS, Confidence, Group, Release, Rule
from difftest.tools.lint.source import UNREADABLE, Source, applied

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ROUNDS = 20
"""A fix can make room for another one; each file comes to rest after a few."""


STDIN = Path("-")
"""The file whose text is a request's ``stdin``."""
TABLE = "[tool.difftest.lint]"
ALL = "all"


class Level(Enum):
    """What comes of a finding."""

    ALLOW = "allow"
    """It is not told."""
    WARN = "warn"
    """It is told."""
    DENY = "deny"
    """It is told, and the exit code is 1."""


class SettingsError(Exception):
    """A level or a setting that has no meaning."""


@dataclass(frozen=True)
class Levels:
    """The level of each rule.

    What the compiler that you name refuses is denied. So rules about SDKs are warnings until an SDK
    is named, those about machines until a target is named, and those of correctness never.

    Attributes
    ----------
    chosen : by ``all``, group or id; the closest wins.
    is_sdk_named, is_target_named : whether the rules are those of one SDK, or one machine.
    """

    chosen: Mapping[str, Level] = field(default_factory=dict)
    is_sdk_named: bool = False
    is_target_named: bool = False

    def of(self, rule: Rule) -> Level:
        """What comes of a finding of a rule."""
        names = (rule.id, rule.group.value, ALL)
        own = next((self.chosen[name] for name in names if name in self.chosen), None)
        named = {Group.PORTABILITY: self.is_target_named, Group.UPGRADE: self.is_sdk_named}
        is_certain = named.get(rule.group, rule.group is Group.CORRECTNESS)
        is_known = rule.confidence in (Confidence.DOCUMENTED, Confidence.RECORDED)
        return own or (Level.DENY if is_certain and is_known else Level.WARN)  # on a record


def levels_by_name(choices: Mapping[Level, Iterable[str]]) -> dict[str, Level]:
    """The level of each name of a rule or a group.

    Raises
    ------
    SettingsError : there is no such rule or group, or a name has two levels.
    """
    chosen: dict[str, Level] = {}
    for level, names in choices.items():
        for name in names:
            ids_of([name])
            if chosen.setdefault(name, level) is not level:
                raise SettingsError(f"{name} is to be {chosen[name].value} and {level.value}")
    return chosen


def ids_of(names: Iterable[str]) -> frozenset[str]:
    """The rules that ids and groups name.

    Raises
    ------
    SettingsError : there is no such rule or group.
    """
    ids: set[str] = set()
    for name in names:
        own = {id for id, rule in rules().items() if name in (id, rule.group.value, ALL)}
        if not own:
            groups = ", ".join((ALL, *(group.value for group in Group)))
            raise SettingsError(
                f"there is no rule {name}; the groups are {groups}, the rules {', '.join(rules())}"
            )
        ids |= own
    return frozenset(ids)


def project_settings(folder: Path) -> dict[str, Any]:
    """What the nearest pyproject.toml above a folder says in its table ``[tool.difftest.lint]``.

    Returns
    -------
    ``sdk`` and ``target``, None where they are not named, and ``levels`` by name.

    Raises
    ------
    SettingsError : it has a key or a value that has no meaning.
    """
    files = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    file = next((path for path in files if path.is_file()), None)
    table = _table(file) if file else {}
    try:
        settings = {"sdk": table.pop("sdk", None), "target": table.pop("target", None)}
        for name, values in (("sdk", SDKS), ("target", TARGETS)):
            if settings[name] is not None and settings[name] not in values:
                raise SettingsError(f"{name} is one of {', '.join(values)}; got {settings[name]!r}")
        choices = {level: table.pop(level.value, []) for level in Level}
        for level, names in choices.items():
            if not isinstance(names, list):
                raise SettingsError(f"{level.value} is a list of ids and groups; got {names!r}")
        if table:
            raise SettingsError(f"there is no setting {', '.join(table)}")
        return {**settings, "levels": levels_by_name(choices)}
    except SettingsError as error:
        raise SettingsError(f"{file}, {TABLE}: {error}") from None


def _table(file: Path) -> dict[str, Any]:
    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from None
    for name in ("tool", "difftest", "lint"):
        table = table.get(name, {}) if isinstance(table, dict) else {}
    return dict(table)


@dataclass(frozen=True, kw_only=True)
class LintRequest:
    """Which rules are asked, and how much each counts.

    Attributes
    ----------
    sdk : None for the newest that a file's dialect was written for.
    before : an SDK whose diagnostics are left out; None for all.
    target : a machine; None for the rules of all.
    ids : of rules, if not all are meant.
    stdin : the text of the file ``-``.
    """

    sdk: Release | None = None
    before: Release | None = None
    target: str | None = None
    ids: Collection[str] = ()
    levels: Levels = field(default_factory=Levels)
    stdin: str = ""

    def of_source(self, source: Source) -> list[Diagnostic]:
        """The diagnostics of a file; in its own order."""
        return self._told(lambda sdk: lint_source(source, sdk or source.sdk, self.target, self.ids))

    def of_trace(self, trace: Trace) -> list[Diagnostic]:
        """The same of the run of a kernel."""
        return self._told(lambda sdk: lint_trace(trace, sdk, self.ids))

    def _told(self, read: Callable[[Release | None], list[Diagnostic]]) -> list[Diagnostic]:
        earlier = set(read(self.before)) if self.before else set()
        new = (entry for entry in read(self.sdk) if entry not in earlier)
        return [entry for entry in new if self.levels.of(entry.rule) is not Level.ALLOW]

    def of_files(self, paths: Sequence[Path]) -> tuple[list[Diagnostic], list[str]]:
        """The diagnostics of files and folders, and what is to be said of those nobody can read."""
        diagnostics: list[Diagnostic] = []
        unread = [f"{path} has no Python file" for path in paths if not python_files([path])]
        for file in python_files(paths):
            try:
                source = Source(file, self.text_of(file))
            except UNREADABLE as error:
                unread.append(f"{file}: cannot be read as Python: {error}")
            else:
                diagnostics += self.of_source(source)
        return diagnostics, unread

    def fixed_files(self, paths: Sequence[Path], unsafe: bool) -> Iterator[tuple[Path, str, str]]:
        """Each file that fixes change, its text, and what becomes of it; nothing is written.

        Parameters
        ----------
        unsafe : whether fixes are applied that may change what a kernel computes.
        """
        for file in python_files(paths):
            with suppress(*UNREADABLE):  # who reads the files says so
                text = self.text_of(file)
                if (fixed := self._fixed(file, text, unsafe)) != text:
                    yield file, text, fixed

    def fixed_text(self, file: Path, unsafe: bool) -> str:
        """Return the text of a file with its fixes; its own text if it cannot be read."""
        text = self.text_of(file)
        with suppress(*UNREADABLE):
            return self._fixed(file, text, unsafe)
        return text

    def text_of(self, file: Path) -> str:
        """Return the text of a file, with the ends of lines that it has."""
        if file == STDIN:
            return self.stdin
        with file.open(encoding="utf-8-sig", newline="") as opened:
            return opened.read()

    def _fixed(self, file: Path, text: str, unsafe: bool) -> str:
        for _ in range(_ROUNDS):
            fixes = (diagnostic.fix for diagnostic in self.of_source(Source(file, text)))
            text, count = applied(text, [fix for fix in fixes if fix and (fix.is_safe or unsafe)])
            if not count:
                break
        return text


def request_of(options: Mapping[str, Any], chosen: Mapping[Level, Iterable[str]]) -> LintRequest:
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
    before = options.get("before")
    target = options.get("target")
    sdk = options.get("sdk") or (NEWEST.version if before else None)
    levels = {**options["levels"], **levels_by_name(chosen)}
    return LintRequest(
        sdk=SDKS.get(sdk or ""),
        before=SDKS.get(before or ""),
        target=target,
        ids=ids_of(options.get("ids", ())),
        levels=Levels(levels, sdk is not None, target is not None),
    )


def diff(file: Path, text: str, fixed: str) -> str:
    """How a file changes, as a unified diff."""
    lines = StringIO(text).readlines(), StringIO(fixed).readlines()  # as git ends lines
    name = file.as_posix()
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in unified_diff(*lines, name, name)
    )


def python_files(paths: Iterable[Path]) -> list[Path]:
    """What is read of files and folders."""
    return [file for path in paths for file in (sorted(_inside(path)) if path.is_dir() else [path])]


def _inside(folder: Path) -> Iterator[Path]:
    """The Python files of a folder, but for hidden folders in it and virtual environments."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        yield from (here / name for name in names if name.endswith(".py"))
        seen = (name for name in folders if not name.startswith("."))
        folders[:] = [name for name in seen if not (here / name / "pyvenv.cfg").exists()]
