"""Programs of a classic grid: planted races, and ordered accesses."""

import numpy as np
import pytest

from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

HALF = 64
IGNORED = "program-id-ignored", "warning"


def spread(index):
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        program = nl.program_id(0)
        tile = nl.load(a[:, nl.ds(HALF * program, HALF)])
        nl.store(out[:, nl.ds(index(program), HALF)], tile)
        return out

    return kernel


@every(
    "index, found",
    [
        (lambda program: HALF * program, []),
        (lambda program: (HALF - 1) * program, [("program-race", "error")]),
    ],
)
def test_programs_of_a_classic_grid_race_if_their_rows_overlap(index, found):
    got = findings_in(spread(index), [normal(128, 4 * HALF)], grid=(4,))
    assert [(one.id, one.severity.value) for one in got] == found
    assert all("core_barrier" not in one.remedy for one in got)  # it has none


def by_way_of_hbm(buffer, *, divided=True):
    """Each program stores its part to HBM and reads it back; ``buffer`` is of the scratch."""

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        scratch = nl.ndarray((128, HALF), dtype=a.dtype, buffer=buffer)
        program = nl.program_id(0) if divided else 0
        own = nl.ds(HALF * program, HALF)
        nl.store(scratch, nl.load(a[:, own]))
        nl.store(out[:, own], nl.load(scratch))
        return out

    return kernel


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (by_way_of_hbm(nl.shared_hbm), [("program-race", "error")]),
        (by_way_of_hbm(nl.private_hbm), []),
        (by_way_of_hbm(nl.shared_hbm, divided=False), [IGNORED]),
    ],
    ids=["shared", "private", "shared-and-all-of-the-work"],
)
def test_scratch_that_each_program_of_a_classic_grid_reads_back(kernel, found):
    """In sequence no program reads another one's data; in parallel they do."""
    assert (
        list(dict.fromkeys(found_in(kernel, [normal(128, 2 * HALF)], grid=(2,))))
        == found
    )


def test_programs_that_scatter_to_rows_of_their_own():
    def kernel(a, rows):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        program = nl.program_id(0)
        at = nl.load(rows[program])
        line, column = nl.mgrid[0:4, 0:8]
        tile = nl.load(a[nl.ds(4 * program, 4), :])
        nisa.dma_copy(dst=out[at[line, 0], column], src=tile)
        return out

    a = normal(8, 8)
    apart = np.int32([0, 2, 4, 6, 1, 3, 5, 7]).reshape(2, 4, 1)
    assert found_in(kernel, [a, apart], grid=(2,)) == []
    meeting = np.int32([0, 2, 4, 6, 1, 3, 5, 6]).reshape(2, 4, 1)
    assert found_in(kernel, [a, meeting], grid=(2,)) == [("program-order", "error")]
