"""The page of detectors has a section for each detector that its parts are about, and no other."""

import re
from pathlib import Path

from difftest.analysis.detectors import DETECTORS
from tests.every import every

PAGE = Path(__file__).parents[4] / "docs" / "detectors.md"
GROUPS = {one.group for one in DETECTORS}


def sections():
    """The ids under each heading that is a group's name."""
    found, group = {}, None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            group = line[3:] if line[3:] in GROUPS else None
        elif line.startswith("### ") and group:
            found.setdefault(group, []).append(line[4:])
    return found


@every("group", sorted(sections()))
def test_a_part_has_the_detectors_of_its_group(group):
    assert sections()[group] == [one.id for one in DETECTORS if one.group == group]


def test_the_parts_about_values_and_memory_are_there():
    assert {"Memory", "Uninitialised memory", "Numbers"} <= set(sections())


def test_each_section_says_why_and_what_to_do():
    text = PAGE.read_text(encoding="utf-8")
    for id in (one.id for one in DETECTORS if one.group in ("Memory", "Uninitialised memory")):
        section = re.split(rf"### {id}\n", text)[1].split("\n##")[0]
        assert "Remedy:" in section, id
        assert "Confidence:" in section or "public record" in section, id
