"""The warnings of a session, without repetitions of the package's own warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

OWN_WARNINGS = frozenset(
    {
        "AccumulationWarning",
        "BarrierWarning",
        "FindingWarning",
        "HazardWarning",
        "IndirectionWarning",
        "LevelWarning",
        "LostAdditionWarning",
        "RuleWarning",
        "SharedArgumentWarning",
        "TopKWarning",
        "TruthWarning",
    }
)
"""The names of the package's own warnings; pytest keeps only the text of a warning."""
_DETECTED = (
    ("AccumulationWarning", "", "psum-foreign"),
    ("LostAdditionWarning", "", "scatter-added-twice"),
    ("RuleWarning", "in a limited range", "activation-range"),
)
"""Simulator warnings about hazards: the class, a part of the rule, and the detector's id."""
_VARYING = re.compile(r"\[[\d, :]*\]|\b(?:b?float|u?int|bool)\w*|\d+")
"""The parts of a warning that differ between cases: shapes and indices, dtypes, counts."""
_RULE = re.compile(r"^\s*rule:\s*(.*)$", re.MULTILINE)
_WARNING = re.compile(r"^.*?:\d+: (\w+): (.*)", re.DOTALL)


def unique_warnings(warnings: list[Any]) -> list[Any]:
    """Return a session's warnings without duplicates of the package's own warnings.

    Two warnings at one line of a kernel are duplicates if they name one rule, or differ in numbers
    alone. The simulator's warning about a removed name is left out if the linter reports it. Its
    warning about a hazard is left out if the detector reports the hazard.
    """
    removed_names, hazards = _reported(warnings)
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for entry in warnings:
        kind = _class_and_rule(entry.message)
        if kind is None:
            kept.append(entry)
            continue
        if kind[0] == "LevelWarning" and _removed_name(entry) in removed_names:
            continue
        place = entry.fslocation
        if (place, kind) not in seen and (place, _detector_id(*kind)) not in hazards:
            kept.append(entry)
        seen.add((place, kind))
    return kept


def _reported(
    warnings: Iterable[Any],
) -> tuple[set[tuple[Any, str]], set[tuple[Any, str]]]:
    """Return the removed names and the hazards that HazardWarnings report, with their places."""
    removed_names = set()
    hazards = set()
    for entry in warnings:
        name, rule = _class_and_rule(entry.message) or ("", "")
        if name == "HazardWarning":
            removed_names.add(_removed_name(entry))
            hazards.add((entry.fslocation, rule))
    return removed_names, hazards


def _removed_name(entry: Any) -> tuple[Any, str]:
    """Return the place of a warning, and the name that it says has ended."""
    name = entry.message.partition(" ended with NKI")[0].rpartition(": ")[2]
    # the linter writes an argument as nl.f(x=)
    return entry.fslocation, name.replace("=", "")


def _detector_id(name: str, rule: str) -> str:
    """Return the detector that reports the hazard of a simulator's warning; empty if none does."""
    for warning, part, detector in _DETECTED:
        if warning == name and part in rule:
            return detector
    return ""


def _class_and_rule(message: str) -> tuple[str, str] | None:
    """Return the class and the rule of a warning of this package; None for other warnings."""
    found = _WARNING.match(message)
    if found is None or found[1] not in OWN_WARNINGS:
        return None
    name, text = found.groups()
    if name == "HazardWarning":  # "warning psum-foreign: nc_matmul adds to ..."
        return name, text.partition(":")[0].rpartition(" ")[2]
    rule = _RULE.search(text)
    if rule is not None:
        return name, rule[1]
    return name, _VARYING.sub("#", text.partition("\n")[0])
