"""Examples in docstrings run and print the shown output; no example is skipped."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("cli", "plugin", "simulator", "support", "testing", "timing", "tools/course")
"""Folders of difftest whose docstrings are read here."""
FOR_THE_EYE_ALONE = ("::", "+SKIP")
"""A literal block, which nothing runs, and the directive that lets doctest run nothing."""
TELLING = re.compile(r">>> |::\s*$|\+SKIP", re.MULTILINE)
"""A pattern of docstrings with examples; files without a match are not parsed."""


@functools.cache
def docstrings(root: Path) -> list[tuple[str, str]]:
    """Return the docstrings of the package's folders: the module's name, and the text."""
    files = [
        file
        for room in ROOMS
        for file in sorted((root / "difftest" / room).rglob("*.py"))
    ]
    assert files, f"no modules in {root}"
    texts = []
    for file in files:
        source = file.read_text(encoding="utf-8")
        if not TELLING.search(source):
            continue
        parts = file.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text:
                    texts.append((module, text))
    return texts


def unrun(root: Path) -> list[str]:
    """The lines of docstrings that begin an example that nothing runs."""
    return [
        f"{module}: {line.strip()}"
        for module, text in docstrings(root)
        for line in text.splitlines()
        if line.rstrip().endswith(FOR_THE_EYE_ALONE[0]) or FOR_THE_EYE_ALONE[1] in line
    ]


def modules_with_examples(root: Path) -> list[str]:
    """The modules that have something to run, in the order of the tree."""
    return list(
        dict.fromkeys(module for module, text in docstrings(root) if ">>> " in text)
    )


def failures(module: object) -> tuple[str, int]:
    """Return the wrong output of a module's examples, and the number of examples."""
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    for test in tests:
        runner.run(test, out=said.append)
    return "".join(said), runner.tries


def test_examples_print_their_output():
    names = modules_with_examples(ROOT)
    results = {name: failures(importlib.import_module(name)) for name in names}
    assert len(names) >= 5
    assert [name for name, (said, tries) in results.items() if said or not tries] == []


def test_no_example_is_for_the_eye_alone():
    assert unrun(ROOT) == []


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one module with this docstring."""

    def make(docstring):
        folder = tmp_path / "difftest" / "timing"
        folder.mkdir(parents=True)
        (folder / "planted_example.py").write_text(f'"""Twice.\n\n{docstring}\n"""\n')
        monkeypatch.syspath_prepend(str(folder))
        return tmp_path

    return make


def test_an_example_that_is_no_longer_true_is_found(package):
    root = package(">>> 2 * 2\n5")
    assert modules_with_examples(root) == ["difftest.timing.planted_example"]
    said, tries = failures(importlib.import_module("planted_example"))
    assert "Expected:\n    5\nGot:\n    4\n" in said
    assert tries == 1


@pytest.mark.parametrize(
    "docstring", ["Like this::\n\n    2 * 2", ">>> f()  # doctest: +SKIP"]
)
def test_an_example_that_nothing_runs_is_found(package, docstring):
    assert len(unrun(package(docstring))) == 1


def test_a_tree_without_modules_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match="no modules in"):
        unrun(tmp_path)
