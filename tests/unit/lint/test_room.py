"""The linter stands above what runs kernels: nobody below what asks it here knows it."""

from pathlib import Path

from tests.unit.imports import imports

ROOT = Path(__file__).parents[3]
ABOVE = ("cli", "plugin", "verdict", "lint", "report")  # of a mutant, where its line is


def test_nobody_below_imports_it():
    importers = {
        file.relative_to(ROOT / "difftest").parts[0]
        for file in (ROOT / "difftest").rglob("*.py")
        if "lint" in file.read_text(encoding="utf-8")  # to parse all takes a second
        for one in imports(ROOT, file)
        if one.within("difftest.lint")
    }
    assert importers == set(ABOVE)
