"""Limits on parameters of functions, slots of objects, and places that make errors."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "difftest"


PARAMETERS = 6
# AWS defines the parameters of these functions.
OF_NKI = ("simulator/frontend/",)
WIDE = {"simulator/instructions/mx.py:nc_matmul_mx", "simulator/launch.py:launch"}
"""Functions with more parameters. The list may only shrink: remove a name that fits."""

SLOTS = 12
HEAVY: set[str] = set()
"""Classes with more slots. This list may only shrink, too."""

ERROR_SITES = 64
"""The number of places in the simulator that make an error. It may only fall.

Rules in the records of instructions and converters of arguments do not count. Errors of other
misuses belong into misuses.py.
"""
CONVERTERS = ("arguments.py", "index.py", "constants.py")


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _nodes(
    package: Path, of: Callable[[ast.AST], Iterator[ast.AST]]
) -> Iterator[tuple[str, ast.AST]]:
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package).as_posix()
        for node in of(parsed(file.read_text(encoding="utf-8"))):
            yield place, node


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """A tree's statements at every depth: a tenth of its nodes, with all definitions."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            pending += inner if isinstance(inner, list) else ()


def wide_functions(package: Path) -> set[str]:
    """The functions with more parameters than six, ``self`` not counted."""
    wide = set()
    for place, node in _nodes(package, statements):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = [one.arg for one in given if one.arg not in ("self", "cls")]
            if len(names) > PARAMETERS and not place.startswith(OF_NKI):
                wide.add(f"{place}:{node.name}")
    return wide


def heavy_classes(package: Path) -> set[str]:
    """The classes that name more than twelve in ``__slots__``."""
    return {
        f"{place}:{node.name}"
        for place, node in _nodes(package, statements)
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__slots__"
        if isinstance(line.value, ast.Tuple) and len(line.value.elts) > SLOTS
    }


def error_sites(simulator: Path) -> list[str]:
    """Return where an NkiError is made outside instructions and converters: ``file:line``."""
    nodes = list(_nodes(simulator, ast.walk))
    kinds = {"NkiError"}
    bases = [one for _, one in nodes if isinstance(one, ast.ClassDef)]
    for _ in bases:
        kinds |= {
            one.name
            for one in bases
            if kinds & {ast.unparse(base) for base in one.bases}
        }
    return [
        f"{place}:{node.lineno}"
        for place, node in nodes
        if isinstance(node, ast.Call)
        if not place.startswith("instructions/") and Path(place).name not in CONVERTERS
        if getattr(node.func, "id", "") in kinds
        or any(keyword.arg == "happened" for keyword in node.keywords)
    ]


def test_functions_have_few_parameters():
    assert wide_functions(PACKAGE) ^ WIDE == set(), (
        "narrow it, or take the narrowed one off WIDE"
    )


def test_objects_have_few_slots():
    assert heavy_classes(PACKAGE) ^ HEAVY == set(), (
        "share them out, or take it off HEAVY"
    )


def test_errors_are_rules_misuses_or_converters():
    assert len(error_sites(PACKAGE / "simulator")) == ERROR_SITES, (
        "lower ERROR_SITES, or your own"
    )


# Each check must be able to fail.
@pytest.fixture
def package(tmp_path):
    (tmp_path / "harness").mkdir()
    return tmp_path


def test_a_parameter_or_a_slot_too_many_is_found(package):
    names = ", ".join("abcdef")
    source = f"class C:\n    __slots__ = {tuple('abcdefghijkl')}\n    def f(self, {names}): ...\n"
    (package / "harness" / "case.py").write_text(source)
    assert wide_functions(package) == heavy_classes(package) == set()
    wider = source.replace("f):", "f, *, g):").replace("'l')", "'l', 'm')")
    (package / "harness" / "case.py").write_text(wider)
    assert wide_functions(package) == {"harness/case.py:f"}
    assert heavy_classes(package) == {"harness/case.py:C"}


def test_an_error_in_a_place_of_its_own_is_found(package):
    (package / "index.py").write_text("raise NkiError(happened='')\n")
    source = "class LateError(EarlyError): ...\nclass EarlyError(NkiError): ...\n"
    (package / "harness" / "case.py").write_text(source)
    assert error_sites(package) == []
    (package / "harness" / "case.py").write_text(
        f"{source}LateError('a rule')\nerror(happened=1)\n"
    )
    assert error_sites(package) == ["harness/case.py:3", "harness/case.py:4"]
