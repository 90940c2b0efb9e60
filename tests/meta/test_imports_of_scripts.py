"""Benchmarks and conformance scripts, which no other test runs, find what they import from here."""

import ast
import importlib
from pathlib import Path

from tests.every import every

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    file
    for folder in ("benchmarks", "conformance")
    for file in ROOT.glob(f"{folder}/*.py")
)
OWN = ("difftest", "kernels", "reference", "tests")


def own_imports(file):
    """Yield the module and the name of each import from this repository's folders."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in OWN:
            for alias in node.names:
                yield node.module, alias.name


@every("file", {file.stem: file for file in SCRIPTS}.values())
def test_a_script_finds_what_it_imports(file):
    lost = []
    for module, name in own_imports(file):
        found = importlib.import_module(module)
        if not hasattr(found, name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                lost.append(f"{module}.{name}")
    assert lost == []


def test_scripts_have_imports():
    assert sum(1 for file in SCRIPTS for _ in own_imports(file)) > 100
