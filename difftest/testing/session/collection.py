"""Collect kernel tests for pytest: the modules with them, and their explicit checks.

Imports of kernels need ``neuronxcc``. So the syntax tree of a module shows whether it has kernel
tests, and the module is imported only if the session has a backend.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from difftest.testing.session.options import SESSION

if TYPE_CHECKING:
    from difftest.testing.backends.base import Backend
    from difftest.testing.harness.decorated import KernelTest

_NAME = "kernel_test"


def holds_kernel_tests(path: Path) -> bool:
    """Return whether a module uses ``kernel_test`` of difftest.

    A module that cannot be read or parsed does not count, because its import reports the error.
    """
    tree = _parsed(path)
    return tree is not None and any(_names_kernel_test(node) for node in ast.walk(tree))


def holds_other_tests(path: Path) -> bool:
    """Return whether a module of kernel tests has tests of another kind: functions, or classes."""
    tree = _parsed(path)
    return tree is not None and any(_is_another_test(node) for node in tree.body)


def _parsed(path: Path) -> ast.Module | None:
    try:
        source = path.read_bytes()
        may_hold = path.suffix == ".py" and _NAME.encode() in source
        return ast.parse(source) if may_hold else None
    except (OSError, SyntaxError, ValueError):
        return None


def _is_another_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test")
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    takes_case = any(argument.arg == "case" for argument in node.args.args)
    return node.name.startswith("test") and not (node.decorator_list and takes_case)


def _names_kernel_test(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        is_ours = node.level == 0 and (node.module or "").split(".")[0] == "difftest"
        return is_ours and any(alias.name == _NAME for alias in node.names)
    named = isinstance(node, ast.Attribute) and node.attr == _NAME
    return named and ast.unparse(node) == f"difftest.{_NAME}"


class UncollectedModule(pytest.File):
    """A module of kernel tests in a session without a backend: it has no items."""

    def collect(self) -> Iterable[pytest.Item]:
        """Return no items, and note the module: pytest also makes modules that are not selected."""
        self.config.stash[SESSION].uncollected.add(self.nodeid)
        return []


def explicit_checks(
    test: KernelTest, marks: list[pytest.Mark], backends: Iterable[Backend]
) -> Iterator[Any]:
    """Yield test functions for the spec's examples and rejections, with ids, and for its edges."""
    from difftest.testing.drawing.explicit import explicit_cases
    from difftest.testing.harness.edges import has_edges

    cases = list(explicit_cases(test.spec))
    rejects = test.spec.rejects
    if cases:
        yield checks_of(
            test.check_case, marks, "case", cases, [case.label() for case in cases]
        )
    # Other checks do not take the parameters of the test function.
    marks = [mark for mark in marks if mark.name != "parametrize"]
    if rejects:
        ids = [rejection.label() for rejection in rejects]
        yield checks_of(test.check_rejection, marks, "rejection", rejects, ids)
    if has_edges(test.spec, backends):
        yield checks_of(test.check_edges, marks, "calls", ["edges"], ["edges"])


def checks_of(
    check: Any,
    marks: Iterable[pytest.Mark],
    name: str,
    values: Collection[Any],
    ids: list[str],
) -> Any:
    """Return a test function for these values of its argument only."""
    check.pytestmark = [*marks, pytest.mark.parametrize(name, values, ids=ids).mark]
    return check
