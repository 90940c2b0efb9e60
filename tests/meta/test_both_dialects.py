"""A bug in one dialect's kernel is found and shrunk, although the other dialect's is correct."""

from dataclasses import replace

import pytest

from difftest.simulator.entry.install import embedded
from difftest.tools.mutants.mutant import apply_mutant
from tests.meta import specs
from tests.meta.search import smallest_failure
from tests.meta.test_planted_bugs import LAST, bug_on

with embedded():
    from kernels.classic import vector_add as classic
    from kernels.nki import vector_add as todays


CLASSIC = (
    classic.vector_add_tiled,
    LAST,
    "for m in nl.affine_range((n // ROW_CHUNK) - 1):",
    specs.tiled,
    "unwritten",
)
TODAYS = (
    todays.vector_add_naive,
    "one operand twice",
    "nisa.tensor_tensor(dst=total, data1=a_tile, data2=a_tile, op=nl.add)",
    specs.naive,
    "value",
)


@pytest.mark.parametrize(
    ("wrong", "bug", "line", "spec_of", "kind", "correct", "told", "first"),
    [
        (*CLASSIC, todays.vector_add_tiled, "vector_add_tiled (nki)", True),
        (*TODAYS, classic.vector_add_naive, "vector_add_naive (neuronxcc)", False),
    ],
    ids=["classic, first", "todays, last"],
)
def test_the_wrong_one_is_named_and_its_case_is_small(
    wrong, bug, line, spec_of, kind, correct, told, first
):
    kernels = (wrong, correct) if first else (correct, wrong)
    spec = replace(spec_of(kernels[0]), others=kernels[1:])
    with apply_mutant(*bug_on(wrong, bug, line)):
        failure = smallest_failure(spec)
    assert set(failure.case.values.values()) == {1}
    assert failure.spec.kernel is wrong
    assert getattr(failure.verdicts["embedded"], "kind", "unwritten") == kind
    assert failure.others == (f"{told} agrees with the reference",)
