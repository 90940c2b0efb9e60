"""A contract check that is missing from a kernel is seen: by a rejection, or by a call at an edge.

Each mutant is a kernel of the project without one of its asserts. Its own test's rejections and
edges run, and nothing that is drawn. The kernel as it is passes them: so says tests/kernels.
"""

from __future__ import annotations

import ast
import functools
import sys
import types
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import kernels
from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.edge_checks import check_edges
from difftest.harness.failures import NotRejectedError
from difftest.harness.runner import Runner
from difftest.harness.spec import KernelSpec
from difftest.simulator.frontend.install import embedded
from tests.meta.drawing import kernel_tests

FOLDER = Path(kernels.__file__).parent / "classic"
FILES = ("vector_add", "transpose", "matmul", "tutorial_matmul", "conv2d")


@dataclass(frozen=True)
class Check:
    """An assert of a kernel's source, by its place among all of the file."""

    file: str
    number: int
    text: str


def asserts_of(tree: ast.Module) -> list[ast.Assert]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]


def all_checks() -> list[Check]:
    return [
        Check(file, number, ast.unparse(node.test))
        for file in FILES
        for number, node in enumerate(asserts_of(ast.parse((FOLDER / f"{file}.py").read_text())))
    ]


class Without(ast.NodeTransformer):
    """Puts ``pass`` in the place of one assert."""

    def __init__(self, unwanted: ast.Assert) -> None:
        self.unwanted = unwanted

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if node is self.unwanted else node


def mutant_of(check: Check) -> types.ModuleType:
    """The module of kernels without the check."""
    path = FOLDER / f"{check.file}.py"
    tree = ast.parse(path.read_text())
    tree = Without(asserts_of(tree)[check.number]).visit(tree)
    module = types.ModuleType(f"{check.file}_without_a_check")
    with embedded():
        exec(compile(tree, str(path), "exec"), vars(module))
    return module


def specs_of(file: str, module: types.ModuleType) -> list[KernelSpec]:
    """The specs of a file's tests, the kernels of ``module`` in the place of its own."""
    found = []
    for _, spec in kernel_tests():
        if Path(sys.modules[spec.kernel.__module__].__file__) == FOLDER / f"{file}.py":
            found.append(replace(spec, kernel=getattr(module, spec.kernel.__name__)))
    return found


def seen_by(specs: list[KernelSpec]) -> str:
    """What tells a kernel from its contract; empty if nothing does. Edges take longer."""
    runner = Runner((EmbeddedSimulator(),))
    checks = [
        functools.partial(runner.check_rejection, spec, one)
        for spec in specs
        for one in spec.rejects
    ]
    for check in (*checks, *(functools.partial(check_edges, runner, spec) for spec in specs)):
        try:
            check()
        except NotRejectedError as error:
            return str(error)
    return ""


CHECKS = all_checks()


def test_there_are_checks():
    assert len(CHECKS) >= 24


@pytest.mark.parametrize("check", CHECKS, ids=[f"{one.file}-{one.text}" for one in CHECKS])
def test_a_missing_check_is_seen(check):
    specs = specs_of(check.file, mutant_of(check))
    assert specs
    assert seen_by(specs)
