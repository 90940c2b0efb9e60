"""Bugs that `difftest mutate` plants in the kernels of Part 1: found, shrunk, and said.

The last tile forgotten, a tile written to the place of another, the right instruction on the wrong
tile or the wrong one on the right tile, the wrong dtype, and memory that is never written.
"""

from dataclasses import replace

import pytest

from difftest.simulator import OutOfBoundsError, UnwrittenError
from difftest.simulator.entry.install import embedded
from difftest.testing.contract.recipes import Iota, Ones, Zeros
from difftest.tools.mutants.generation import mutants_of
from difftest.tools.mutants.mutant import (
    apply_mutant,
    mutable_functions,
    qualified_name,
)
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    from kernels.classic import matmul as classic_matmul
    from kernels.classic import transpose as classic_transpose
    from kernels.classic import vector_add as classic
    from kernels.nki import vector_add as todays

NAIVE = specs.naive(todays.vector_add_naive)
TILED = specs.tiled(todays.vector_add_tiled)
STREAM = specs.stream(classic.vector_add_stream)
TURNED = specs.transposition(classic_transpose.transpose_by_tiles)
SQUARE = replace(TURNED, inputs={"a_tensor": "M M"})
TWO_TILES = replace(TURNED, domain={**TURNED.domain, "N": (256,)})
PRODUCT = specs.product(classic_matmul.nki_matmul_tiled_)
TILES = {"TILE_M": 1, "TILE_K": 1, "TILE_N": 1, "M": 1, "K": 1, "N": 1}

LAST = "last tile missing"
SWAPPED = "indices swapped"
DTYPE = "dtype hard-coded"
# A spec, a bug of its kernel and the bug's line; the smallest case, and its report.
BUGS = [
    (
        TILED,
        LAST,
        "for m in range((n // ROW_CHUNK) - 1):",
        {"ROW_CHUNK": 1, "n": 1},
        {Zeros()},
        UnwrittenError,
    ),
    (
        TWO_TILES,
        LAST,
        "for j in nl.affine_range((N // tile) - 1):",
        {"M": 128, "N": 256},
        {Zeros()},
        "unwritten",
        "got never written, expected 0.0",
    ),
    (
        PRODUCT,
        LAST,
        "for k in nl.affine_range((K // TILE_K) - 1):",
        TILES,
        {Ones()},
        "value",
    ),
    (
        TURNED,
        SWAPPED,
        "nisa.dma_copy(dst=out[rows, columns], src=turned)",
        {"M": 128, "N": 256},
        {Zeros()},
        OutOfBoundsError,
    ),
    (
        SQUARE,
        SWAPPED,
        "nisa.dma_copy(dst=out[rows, columns], src=turned)",
        {"M": 256, "N": 128},
        {Iota()},
        "value",
    ),
    (
        NAIVE,
        "one operand twice",
        "nisa.tensor_tensor(dst=total, data1=a_tile, data2=a_tile, op=nl.add)",
        {"n": 1},
        {Zeros(), Ones()},
        "value",
    ),
    (
        STREAM,
        "another operation",
        "total = nisa.tensor_tensor(a_tile, b_tile, op=nl.subtract)",
        {"FREE_DIM": 1, "n": 128},
        {Zeros(), Ones()},
        "value",
    ),
    (
        TURNED,
        "transpose left out",
        "turned = nisa.tensor_copy(block)",
        {"M": 128, "N": 128},
        {Iota()},
        "value",
    ),
    (
        TURNED,
        DTYPE,
        "out = nl.ndarray((N, M), dtype=nl.float32, buffer=nl.shared_hbm)",
        {"M": 128, "N": 128},
        {Zeros()},
        "dtype",
        "the kernel's dtype is float32, expected is float16",
    ),
]


def bug_on(kernel, bug, line):
    """The function of a kernel with a line, and the mutant that has a bug there."""
    functions = mutable_functions(kernel)
    (mutant,) = (
        one
        for one in mutants_of(functions)
        if one.operator == bug and one.diff()[-1][1:].strip() == line
    )
    (function,) = (one for one in functions if qualified_name(one) == mutant.function)
    return function, mutant


@pytest.mark.parametrize("row", BUGS, ids=[row[1] for row in BUGS])
def test_a_bug_is_found_with_a_small_case_and_a_report(row):
    spec, bug, line, values, data, found, *said = row
    with apply_mutant(*bug_on(spec.kernel, bug, line)):
        failure = smallest_failure(spec)
    assert failure.case.values == values
    assert set(failure.case.data.values()) == data
    assert failure.case.dtype == ("float16" if found == "dtype" else "float32")
    verdict = failure.verdicts["embedded"]
    if isinstance(found, str):
        assert verdict.kind == found
    else:
        assert isinstance(verdict.error, found)
    assert all(text in str(failure) for text in said)
    if found == "unwritten":
        assert verdict.box == ((128, 256), (0, 128))
        assert "filling [128:256, 0:128], the tail of axis 0" in str(failure)
