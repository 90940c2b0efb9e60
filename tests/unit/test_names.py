"""One name for one thing: no class name twice in difftest, and no constant twice in a module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.every import every
from tests.unit.test_budgets import parsed, statements

PACKAGE = Path(__file__).parents[2] / "difftest"


def trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    """Each module's path and syntax tree; a folder without modules is an error."""
    files = sorted(folder.rglob("*.py"))
    assert files, f"no modules in {folder}"
    for file in files:
        path = file.relative_to(folder).as_posix()
        yield path, parsed(file.read_text(encoding="utf-8"))


def classes_of_one_name(folder: Path) -> list[str]:
    """Return the names that several classes share, and the places of these classes."""
    places = defaultdict(list)
    for path, tree in trees(folder):
        for node in statements(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    return [
        f"{name}: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1
    ]


def constants_assigned_twice(folder: Path) -> list[str]:
    """Constants that a module assigns more than once, outside of any condition."""
    found = []
    for path, tree in trees(folder):
        seen: set[str] = set()
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                targets = [node.target]
            names = [leaf for target in targets for leaf in ast.walk(target)]
            for name in names:
                is_bound = isinstance(name, ast.Name) and isinstance(
                    name.ctx, ast.Store
                )
                if not is_bound or not name.id.isupper():
                    continue
                if name.id in seen:
                    found.append(f"{path}:{name.lineno}: {name.id}")
                seen.add(name.id)
    return found


def test_each_class_has_a_name_of_its_own():
    assert classes_of_one_name(PACKAGE) == []


def test_each_constant_is_assigned_once():
    assert constants_assigned_twice(PACKAGE) == []


@pytest.fixture
def package(tmp_path):
    (tmp_path / "timing").mkdir()
    (tmp_path / "table.py").write_text("LIMIT = 1\n\nclass Span: ...\n")
    (tmp_path / "timing" / "plan.py").write_text(
        "A, LIMIT = 1, 2\n\nclass Plan:\n    LIMIT = 1\n"
    )
    return tmp_path


def test_one_name_in_two_modules_is_a_class_twice_and_a_constant_once(package):
    assert classes_of_one_name(package) == constants_assigned_twice(package) == []
    (package / "timing" / "plan.py").write_text("class Plan:\n    class Span: ...\n")
    assert classes_of_one_name(package) == ["Span: table.py:3, timing/plan.py:2"]


@every("again", ["LIMIT = 1", "A, LIMIT = 1, 2", "LIMIT: int = 1"])
def test_a_constant_that_is_assigned_again_is_found(package, again):
    (package / "table.py").write_text(f"LIMIT = 1\nWIDTH = 2\n{again}\n")
    assert constants_assigned_twice(package) == ["table.py:3: LIMIT"]


@every("find", [classes_of_one_name, constants_assigned_twice])
def test_an_empty_folder_is_an_error(tmp_path, find):
    with pytest.raises(AssertionError, match="no modules in"):
        find(tmp_path)
