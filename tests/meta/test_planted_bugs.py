"""Bugs that `difftest mutate` plants in the kernels of Part 1: found, shrunk, and said.

The last tile forgotten, a tile written to the place of another, the right instruction on the wrong
tile or the wrong one on the right tile, the wrong dtype, and memory that is never written.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from difftest.harness.recipes import Iota, Ones, Zeros
from difftest.report.mutants.mutant import planted
from difftest.report.mutants.plant import mutants_of
from difftest.report.mutants.reached import functions_of, name_of
from difftest.simulator import OutOfBoundsError, ShapeError, UnwrittenError
from difftest.simulator.frontend.install import embedded
from tests.meta import specs
from tests.meta.search import smallest_failure

with embedded():
    from kernels.classic import matmul as classic_matmul
    from kernels.classic import transpose as classic_transpose
    from kernels.classic import vector_add as classic
    from kernels.nki import vector_add as todays

NAIVE, TILED = specs.naive(todays.vector_add_naive), specs.tiled(todays.vector_add_tiled)
STREAM = specs.stream(classic.vector_add_stream)
TURNED = specs.transposition(classic_transpose.transpose_by_tiles)
SQUARE = replace(TURNED, inputs={"a_tensor": "M M"})
TWO_TILES = replace(TURNED, domain={**TURNED.domain, "N": (256,)})
PRODUCT = specs.product(classic_matmul.nki_matmul_tiled_)
TILES = {"TILE_M": 1, "TILE_K": 1, "TILE_N": 1, "M": 1, "K": 1, "N": 1}

LAST, SWAPPED, DTYPE = "last tile missing", "indices swapped", "dtype hard-coded"
# A spec, a bug of its kernel and the line that has it; the smallest case, and what is said of it.
BUGS = [
    (
        *(TILED, LAST, "for m in range((n // ROW_CHUNK) - 1):"),
        *({"ROW_CHUNK": 1, "n": 1}, {Zeros()}, UnwrittenError),
    ),
    (
        *(STREAM, LAST, "for m in nl.affine_range((width // FREE_DIM) - 1):"),
        *({"FREE_DIM": 1, "n": 128}, {Zeros()}, UnwrittenError),
    ),
    (
        *(TWO_TILES, LAST, "for j in nl.affine_range((N // tile) - 1):"),
        *({"M": 128, "N": 256}, {Zeros()}, "unwritten"),
    ),
    (
        *(PRODUCT, LAST, "for k in nl.affine_range((K // TILE_K) - 1):"),
        *(TILES, {Ones()}, "value"),
    ),
    (
        *(TURNED, SWAPPED, "nisa.dma_copy(dst=out[rows, columns], src=turned)"),
        *({"M": 128, "N": 256}, {Zeros()}, OutOfBoundsError),
    ),
    (
        *(SQUARE, SWAPPED, "nisa.dma_copy(dst=out[rows, columns], src=turned)"),
        *({"M": 256, "N": 128}, {Iota()}, "value"),
    ),
    (
        *(PRODUCT, SWAPPED, "nisa.dma_copy(dst=result[columns, rows], src=rounded)"),
        *({**TILES, "N": 2}, {Zeros()}, OutOfBoundsError),
    ),
    (
        *(NAIVE, "one operand twice"),
        "nisa.tensor_tensor(dst=total, data1=a_tile, data2=a_tile, op=nl.add)",
        *({"n": 1}, {Zeros(), Ones()}, "value"),
    ),
    (
        *(STREAM, "another operation"),
        "total = nisa.tensor_tensor(a_tile, b_tile, op=nl.subtract)",
        *({"FREE_DIM": 1, "n": 128}, {Zeros(), Ones()}, "value"),
    ),
    (
        *(TURNED, "transpose left out", "turned = nisa.tensor_copy(block)"),
        *({"M": 128, "N": 128}, {Iota()}, "value"),
    ),
    (
        *(PRODUCT, "total overwritten", "total = nisa.nc_matmul(lhsT_tile, rhs_tile)"),
        *({**TILES, "K": 2}, {Ones()}, "value"),
    ),
    (
        *(PRODUCT, "operands swapped", "total += nisa.nc_matmul(rhs_tile, lhsT_tile)"),
        *({**TILES, "TILE_N": 2, "N": 2}, {Zeros()}, ShapeError),
    ),
    (
        *(TILED, DTYPE, "out = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.shared_hbm)"),
        *({"ROW_CHUNK": 1, "n": 1}, {Zeros()}, "dtype"),
    ),
    (
        *(TURNED, DTYPE, "out = nl.ndarray((N, M), dtype=nl.float32, buffer=nl.shared_hbm)"),
        *({"M": 128, "N": 128}, {Zeros()}, "dtype"),
    ),
]


def failure_of(spec, bug, line):
    """The smallest failure of a spec while its kernel has a bug on a line."""
    functions = functions_of(spec.kernel)
    (mutant,) = (
        one
        for one in mutants_of(functions)
        if one.operator == bug and one.diff()[-1][1:].strip() == line
    )
    (function,) = (one for one in functions if name_of(one) == mutant.function)
    with planted(function, mutant):
        return smallest_failure(spec)


@pytest.mark.parametrize(("spec", "bug", "line", "values", "data", "found"), BUGS)
def test_a_bug_is_found_and_its_case_is_small(spec, bug, line, values, data, found):
    failure = failure_of(spec, bug, line)
    assert failure.case.values == values
    assert set(failure.case.data.values()) == data
    assert failure.case.dtype == ("float16" if found == "dtype" else "float32")
    verdict = failure.verdicts["embedded"]
    if isinstance(found, str):
        assert verdict.kind == found
    else:
        assert isinstance(verdict.error, found)


def test_where_it_is_wrong_is_said():
    bug, line = LAST, "for j in nl.affine_range((N // tile) - 1):"
    failure = failure_of(TWO_TILES, bug, line)
    assert failure.verdicts["embedded"].box == ((128, 256), (0, 128))
    assert "got never written, expected 0.0" in str(failure)
    assert "filling [128:256, 0:128], the tail of axis 0" in str(failure)
    wrong = failure_of(
        TURNED, DTYPE, "out = nl.ndarray((N, M), dtype=nl.float32, buffer=nl.shared_hbm)"
    )
    assert "the kernel's dtype is float32, expected is float16" in str(wrong)
