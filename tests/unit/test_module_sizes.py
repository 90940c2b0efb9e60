"""No module outgrows 500 lines: one that does hides a noun that deserves a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.every import every

ROOT = Path(__file__).parents[2]
FOLDERS = ("reference", "kernels", "difftest", "tests", "benchmarks", "conformance")
LIMIT = 500


def too_long(folder: Path) -> list[str]:
    """The modules of a folder over the limit; a folder without modules is an error."""
    files = sorted(folder.rglob("*.py"))
    assert files, f"no modules in {folder}"
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    return [f"{file.name} has {count} lines" for file, count in lines.items() if count > LIMIT]


@every("folder", FOLDERS)
def test_modules_are_small(folder):
    assert too_long(ROOT / folder) == []


def test_a_long_module_is_found(tmp_path):
    (tmp_path / "fits.py").write_text("x = 1\n" * LIMIT)
    (tmp_path / "long.py").write_text("x = 1\n" * (LIMIT + 1))
    assert too_long(tmp_path) == ["long.py has 501 lines"]


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match="no modules in"):
        too_long(tmp_path)
