from dataclasses import replace

import numpy as np
import pytest

import difftest
from difftest import Case, DifferentialFailure, KernelSpec, Ones
from difftest.simulator.entry.install import embedded
from difftest.testing.drawing.explicit import CaseError
from difftest.testing.harness.failures import HazardFailure
from difftest.testing.harness.verdict import Match
from tests.every import every

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl


@nki.jit
def first_twice(a_vec, b_vec):
    """Returns its first operand doubled."""
    (n,) = a_vec.shape
    out = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a_vec.reshape((n, 1)))
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=tile)
    return out.reshape((n,))


@nki.jit
def racing(a_vec, b_vec):
    """Both cores clear the output, then each adds its half, with no barrier between."""
    (n,) = a_vec.shape
    a_rows = a_vec.reshape((n, 1))
    b_rows = b_vec.reshape((n, 1))
    out = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    none = nl.zeros((n, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=out, src=none)
    half = n // 2
    rows = slice(nl.program_id(0) * half, (nl.program_id(0) + 1) * half)
    a_tile = nl.ndarray((half, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    b_tile = nl.ndarray((half, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a_tile, src=a_rows[rows, :])
    nisa.dma_copy(dst=b_tile, src=b_rows[rows, :])
    nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile, op=nl.add)
    nisa.dma_copy(dst=out[rows, :], src=a_tile)
    return out.reshape((n,))


def spec_of(name):
    with embedded():
        from kernels.classic.vector_add import vector_add_naive
    return KernelSpec(
        kernel=vector_add_naive,
        reference=lambda a, b: a.astype(np.float64) + (b if name == "sum" else 2 * b),
        domain={"n": (8,)},
        inputs={"a_vec": "n", "b_vec": "n"},
    )


@every(
    "case",
    [
        {"n": 8},
        Case({"n": 8}, "float32", {"a_vec": Ones(), "b_vec": Ones()}),
        '{"values":{"n":8},"dtype":"float32","data":{"a_vec":"iota","b_vec":"ones"}}',
    ],
)
def test_a_case_in_each_form(case):
    verdict = difftest.check(spec_of("sum"), case)
    assert isinstance(verdict, Match)
    assert verdict.elements == 8


def test_a_disagreement_is_the_report_of_pytest():
    with pytest.raises(DifferentialFailure, match="first wrong: out"):
        difftest.check(spec_of("another"), {"n": 8})


def test_each_of_several_kernels_is_checked():
    with embedded():
        from kernels.nki.vector_add import vector_add_naive
    several = replace(spec_of("sum"), others=(vector_add_naive,))
    assert isinstance(difftest.check(several, {"n": 8}), Match)
    wrong = replace(several, others=(first_twice,))
    with pytest.raises(
        DifferentialFailure, match="first_twice disagrees with its reference"
    ):
        difftest.check(wrong, {"n": 8})


def test_a_hazard_is_a_failure():
    spec = replace(spec_of("sum"), kernel=racing, lnc=2)
    with pytest.raises(HazardFailure, match="program-race"):
        difftest.check(spec, {"n": 8})


@every("case", [None, {}, {"m": 3}, "{"])
def test_documents_that_are_not_cases(case):
    with pytest.raises(CaseError, match="received"):
        difftest.check(spec_of("sum"), case)
