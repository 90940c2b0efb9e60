"""Cores that meet on bytes of shared HBM: additions to a row, tensors placed on one another."""

import numpy as np

from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import isa as classic_isa
from difftest.simulator.frontend.classic import language as classic
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl

RACE = ("program-race", "error")
APART = np.int32([[0, 1, 2, 3], [4, 5, 6, 7]]).reshape(2, 4, 1)
MEET = np.int32([[0, 1, 2, 3], [3, 4, 5, 6]]).reshape(2, 4, 1)


def both_scatter(barrier=False):
    """Each core adds four rows to the rows that its indices name."""

    def kernel(x, rows, out):
        mine = nl.program_id(0)
        at = nl.ndarray((4, 1), dtype=rows.dtype, buffer=nl.sbuf)
        tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=at, src=rows[mine])
        nisa.dma_copy(dst=tile, src=x)
        place = out.ap([[8, 4], [1, 8]], offset=0, vector_offset=at, indirect_dim=0)
        if barrier and mine == 1:
            nisa.core_barrier(data=out, cores=(0, 1))
        nisa.dma_compute(dst=place, srcs=[place, tile], reduce_op=nl.add)
        if barrier and mine == 0:
            nisa.core_barrier(data=out, cores=(0, 1))
        return out

    return nki.jit(kernel)[2]


@every(
    "rows, barrier, found",
    [(APART, False, []), (MEET, False, [RACE]), (MEET, True, [])],
)
def test_two_cores_that_add_to_one_row(rows, barrier, found):
    arrays = [normal(4, 8), rows, normal(8, 8)]
    assert found_in(both_scatter(barrier), arrays) == found


def test_the_row_that_both_cores_add_to_is_named():
    (finding,) = findings_in(both_scatter(), [normal(4, 8), MEET, normal(8, 8)])
    assert "adds to element [3, 0] of " in finding.happened
    assert finding.happened.endswith("adds to as well")


def classic_scatter(x, rows, out):
    line, column = classic.mgrid[0:4, 0:8]
    at = classic.load(rows[classic.program_id(0)])
    tile = classic.load(x)
    classic_isa.dma_copy(dst=out[at[line, 0], column], src=tile, dst_rmw_op=np.add)
    return out


def classic_atomic(x, rows, out):
    line, column = classic.mgrid[0:4, 0:8]
    at = classic.load(rows[classic.program_id(0)])
    classic.atomic_rmw(out[at[line, 0], column], value=classic.load(x), op=np.add)
    return out


@every(
    "kernel, grid, found",
    [
        (classic_scatter, (2,), [("program-race", "warning")]),
        (classic_scatter, (classic.nc(2),), [RACE]),
        (classic_atomic, (classic.nc(2),), []),
    ],
)
def test_programs_of_a_classic_grid_run_one_after_the_other_unless_they_have_cores(
    kernel, grid, found
):
    assert found_in(kernel, [normal(4, 8), MEET, normal(8, 8)], grid=grid) == found


def placed(first, *, barrier=False, dtype=nl.float32, written=True):
    """Core 0 reads a tensor at byte 0; core 1 stores to another one at byte ``first``."""

    def kernel(x):
        out = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        read = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.shared_hbm, address=(0,))
        over = nl.ndarray(
            (128, 16), dtype=dtype, buffer=nl.shared_hbm, address=(first,)
        )
        tile = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=read, src=tile)
            nisa.dma_copy(dst=out, src=read)
            if barrier:
                nisa.core_barrier(data=read, cores=(0, 1))
        else:
            if barrier:
                nisa.core_barrier(data=read, cores=(0, 1))
            half = nl.ndarray((128, 16), dtype=dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=half, data=tile, op0=nl.multiply, operand0=0.5)
            nisa.dma_copy(dst=over, src=half)
        return out

    return nki.jit(kernel)[2]


SIZE = 128 * 16 * 4


@every(
    "first, dtype, found",
    [
        (0, nl.float32, [RACE]),
        (SIZE - 4, nl.float32, [RACE]),
        (SIZE, nl.float32, []),
        (SIZE - 2, nl.bfloat16, [RACE]),
        (SIZE, nl.bfloat16, []),
    ],
)
def test_a_store_over_elements_that_the_other_core_reads(first, dtype, found):
    got = found_in(placed(first, dtype=dtype), [normal(128, 16)])
    assert list(dict.fromkeys(got)) == found
    assert found_in(placed(first, dtype=dtype, barrier=True), [normal(128, 16)]) == []


def test_the_report_has_both_names_of_the_bytes_and_the_readers_element():
    findings = findings_in(placed(SIZE - 4), [normal(128, 16)])
    (read,) = [finding for finding in findings if " reads element" in finding.happened]
    assert "reads element [127, 15] of " in read.happened
    assert "[128, 16] float32 in shared_hbm, placed on the same bytes" in read.happened


def scattered_over(rows):
    """Core 1 scatters to rows of a tensor that overlaps core 0's input, a row further on."""

    def kernel(x, rows):
        out = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        read = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm, address=(0,))
        over = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm, address=(32,))
        tile = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=read[0:4], src=tile[0:4])
            nisa.dma_copy(dst=out[0:4], src=read[0:4])
        else:
            at = nl.ndarray((2, 1), dtype=rows.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=at, src=rows)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
            place = over.ap(
                [[8, 2], [1, 8]], offset=0, vector_offset=at, indirect_dim=0
            )
            nisa.dma_copy(dst=place, src=tile[0:2])
        return out

    arrays = [normal(8, 8), np.int32(rows).reshape(2, 1)]
    return [one for one in found_in(nki.jit(kernel)[2], arrays) if one[1] == "error"]


@every("rows, found", [((3, 4), []), ((7, 2), [RACE])])
def test_a_scatter_over_rows_that_the_other_core_reads_counts_them(rows, found):
    """Row 2 of the one tensor is row 3 of the other."""
    got = scattered_over(rows)
    assert bool(got) is bool(found)
    assert {id for id, _ in got} <= {"program-race", "program-order"}


def test_bytes_of_private_hbm_are_each_cores_own():
    def kernel(x):
        out = nl.ndarray((2, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.program_id(0)
        own = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.private_hbm, address=(0,))
        nisa.dma_copy(dst=own, src=x)
        nisa.dma_copy(dst=out[mine], src=own)
        return out

    assert found_in(nki.jit(kernel)[2], [normal(128, 16)]) == []


def named(first, second, *, buffer=nl.shared_hbm, cores=2):
    """Each program makes two tensors by names, and stores its part of ``x`` by way of them."""

    def kernel(x):
        out = nl.ndarray((2, 2, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.program_id(0)
        for number, name in enumerate((first, second)):
            held = nl.ndarray((2, 128, 16), dtype=x.dtype, buffer=buffer, name=name)
            nisa.dma_copy(dst=held[mine], src=x)
            nisa.dma_copy(dst=out[mine, number], src=held[mine])
        return out

    def on_chip(x):
        out = nl.ndarray((2, 2, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        for number, name in enumerate((first, second)):
            held = nl.ndarray((128, 16), dtype=x.dtype, buffer=buffer, name=name)
            nisa.dma_copy(dst=held, src=x)
            nisa.dma_copy(dst=out[nl.program_id(0), number], src=held)
        return out

    chosen = kernel if buffer is nl.shared_hbm else on_chip
    return nki.jit(chosen)[2] if cores == 2 else nki.jit(chosen)


@every(
    "kernel, found",
    [
        (named("a", "a"), [("shared-name-twice", "warning")]),
        (named("a", "b"), []),
        (named("", ""), []),
        (named("a", "a", buffer=nl.sbuf), []),
        (named("a", "a", buffer=nl.private_hbm), []),
        (named("a", "a", cores=1), []),
    ],
)
def test_shared_tensors_of_one_name(kernel, found):
    assert found_in(kernel, [normal(128, 16)]) == found


def test_a_barrier_on_another_tensor_orders_no_additions():
    def kernel(x, rows, out, other):
        mine = nl.program_id(0)
        at = nl.ndarray((4, 1), dtype=rows.dtype, buffer=nl.sbuf)
        tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=at, src=rows[mine])
        nisa.dma_copy(dst=tile, src=x)
        place = out.ap([[8, 4], [1, 8]], offset=0, vector_offset=at, indirect_dim=0)
        for program in range(2):
            if program == mine:
                nisa.dma_compute(dst=place, srcs=[place, tile], reduce_op=nl.add)
            if program == 0:
                nisa.core_barrier(data=other, cores=(0, 1))
        return out, other

    arrays = [normal(4, 8), MEET, normal(8, 8), normal(8, 8)]
    found = found_in(nki.jit(kernel)[2], arrays)
    assert set(found) == {("program-other-barrier", "warning")}
