"""The documentation section of each detector: its evidence and its remedy."""

from pathlib import Path

from difftest.analysis.detectors import DETECTORS

ROOT = Path(__file__).parents[4]


def test_each_section_says_why_and_what_to_do():
    for one in DETECTORS:
        page = (ROOT / one.page.partition("#")[0]).read_text(encoding="utf-8")
        section = page.partition(f"## {one.id}\n")[2].partition("\n## ")[0]
        assert "- **Remedy:**" in section, one.id
        assert "- **Source:**" in section, one.id
        assert f"- **Severity:** {one.severity.value}" in section, one.id
