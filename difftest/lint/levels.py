"""How much a broken rule counts: allowed, warned of, or denied, by group or by id."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from difftest.lint.check import rules
from difftest.lint.rule import Group, Rule
from difftest.lint.sdk import SDKS, TARGETS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
        is_certain = {
            Group.CORRECTNESS: True,
            Group.PORTABILITY: self.is_target_named,
            Group.UPGRADE: self.is_sdk_named,
            Group.PERFORMANCE: False,
        }[rule.group]
        return own or (Level.DENY if is_certain else Level.WARN)


def levels_by_name(given: Mapping[Level, Iterable[str]]) -> dict[str, Level]:
    """The level of each name of a rule or a group.

    Raises
    ------
    SettingsError : there is no such rule or group, or a name has two levels.
    """
    chosen: dict[str, Level] = {}
    for level, names in given.items():
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
        own = {id for id, one in rules().items() if name in (id, one.group.value, ALL)}
        if not own:
            groups = ", ".join((ALL, *(one.value for one in Group)))
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
    files = (one / "pyproject.toml" for one in (folder, *folder.parents))
    file = next((one for one in files if one.is_file()), None)
    table = _table(file) if file else {}
    try:
        known = {"sdk": table.pop("sdk", None), "target": table.pop("target", None)}
        for name, values in (("sdk", SDKS), ("target", TARGETS)):
            if known[name] is not None and known[name] not in values:
                raise SettingsError(f"{name} is one of {', '.join(values)}; got {known[name]!r}")
        given = {one: table.pop(one.value, []) for one in Level}
        for level, names in given.items():
            if not isinstance(names, list):
                raise SettingsError(f"{level.value} is a list of ids and groups; got {names!r}")
        if table:
            raise SettingsError(f"there is no setting {', '.join(table)}")
        return {**known, "levels": levels_by_name(given)}
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
