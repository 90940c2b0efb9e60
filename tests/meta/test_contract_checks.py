"""A rejection or a call at an edge finds each contract check that is missing from a kernel.

Each mutant is a kernel of the project without one of its asserts. Only its own test's rejections
and edges run, without drawn cases. The original kernel passes them in tests/kernels.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import kernels
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.edges import check_edges
from difftest.testing.harness.failures import NotRejectedError
from difftest.testing.harness.runner import Runner
from difftest.tools.mutants.generation import mutants_of
from difftest.tools.mutants.mutant import (
    apply_mutant,
    mutable_functions,
    qualified_name,
)
from tests.meta.drawing import kernel_tests

FOLDER = Path(kernels.__file__).parent / "classic"
FILES = ("vector_add", "transpose", "matmul", "tutorial_matmul", "conv2d")


def checks():
    """Each check of a kernel: the mutant without it, its function, the specs that call it."""
    found = {}
    for _, spec in kernel_tests():
        functions = mutable_functions(spec.kernel)
        if Path(functions[0].__code__.co_filename) in [
            FOLDER / f"{file}.py" for file in FILES
        ]:
            for mutant in mutants_of(functions):
                (function,) = (
                    one for one in functions if qualified_name(one) == mutant.function
                )
                if mutant.operator == "check removed":
                    found.setdefault(mutant, (function, []))[1].append(spec)
    return [(mutant, *rest) for mutant, rest in found.items()]


def seen_by(specs: list[KernelSpec]) -> str:
    """Return the failure that shows a broken contract, or empty text. Edges take longer."""
    runner = Runner((EmbeddedSimulator(),))
    rejections = [
        functools.partial(runner.check_rejection, spec, one)
        for spec in specs
        for one in spec.rejects
    ]
    for check in (
        *rejections,
        *(functools.partial(check_edges, runner, one) for one in specs),
    ):
        try:
            check()
        except NotRejectedError as error:
            return str(error)
    return ""


CHECKS = checks()


def test_there_are_checks():
    assert len(CHECKS) >= 24


@pytest.mark.parametrize(
    ("mutant", "function", "specs"),
    CHECKS,
    ids=[one.diff()[1][1:].strip() for one, *_ in CHECKS],
)
def test_a_missing_check_is_seen(mutant, function, specs):
    with apply_mutant(function, mutant):
        assert seen_by(specs)
