"""docs/reference/field.md names each test that re-creates a public record, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "field.md").read_text(encoding="utf-8")
FIELD = ROOT / "tests" / "field"


def names_in(files):
    return {
        node.name
        for file in files
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


NAMED = set(re.findall(r"`(test_\w+)`", PAGE))


def test_each_test_that_is_named_exists():
    assert NAMED
    assert names_in(FIELD.glob("*.py")) >= NAMED


def test_each_test_about_devices_and_issues_is_named():
    about = [*FIELD.glob("*_on_devices.py"), FIELD / "test_neuron_sdk_issues.py"]
    assert len(about) > 1
    assert names_in(about) == NAMED


def test_each_record_has_a_test_or_a_reason():
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    for row in rows:
        last = row.rsplit(" | ", 1)[1].rstrip(" |")
        assert last == "here" or "`test" in last or len(last.split()) > 3, row
