"""Kernels that went wrong on devices because a run in order hid the fault: the detectors find it.

Each test names its public record: an issue of aws-neuron/aws-neuron-sdk, a test of
aws-neuron/nki-library, a fact in published notes on NKI 0.6 (trn1 and trn2), or in
published benchmarks in the classic dialect (trn2).
"""

import numpy as np
import pytest

from difftest.simulator import TRN1
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

with embedded():
    import nki
    import nki.isa as nisa32
    import nki.language as nl32


# -- iterations of affine_range --------------------------------------------------------------------


@every("own, found", [(False, [("affine-rewritten", "warning")]), (True, [])])
def test_issue_1045_only_the_weights_of_the_last_iteration_were_right(own, found):
    """One tile for all iterations, filled and read in each; indexed by the loop it was correct."""

    def kernel(w):
        out = nl.ndarray(w.shape, w.dtype, buffer=nl.shared_hbm)
        held = nl.ndarray((4, nl.par_dim(128), 16), w.dtype, buffer=nl.sbuf)
        for o in nl.affine_range(4):
            at = o if own else 0
            held[at] = nl.load(w[o])
            nl.store(out[o], nl.exp(held[at]))
        return out

    assert found_in(kernel, [normal(4, 128, 16)]) == found


def test_issue_1051_plus_equals_in_psum_without_a_matmul():
    def kernel(a, bias):
        out = nl.ndarray((128, 128), a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
        tile = nl.load(a)
        for _ in nl.affine_range(2):
            total += nl.matmul(tile, tile, transpose_x=True)
        total += nl.load(bias)
        nl.store(out, nl.copy(total))
        return out

    found = found_in(kernel, [normal(128, 128), normal(128, 128)])
    assert found == [("psum-addition", "warning")]


def test_issue_1052_a_reduction_in_sbuf_is_carried_by_the_loop():
    def kernel(a):
        out = nl.ndarray((128, 64), a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, 64), a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            total[...] = total + nl.load(a[i])
        nl.store(out, total)
        return out

    (finding,) = findings_in(kernel, [normal(4, 128, 64)])
    assert (finding.id, finding.severity.value) == ("affine-reduction", "warning")
    assert "nl.sequential_range" in finding.remedy


def test_buffers_before_a_pipelined_loop_need_no_promise():
    """A pipeline has its buffers before the loop; sequential_range says that they are carried."""

    def kernel(a):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        held = nl.ndarray((2, nl.par_dim(128), 16), a.dtype, buffer=nl.sbuf)
        held[0] = nl.load(a[0])
        for i in nl.sequential_range(3):
            held[(i + 1) % 2] = nl.load(a[i + 1])
            nl.store(out[i], nl.exp(held[i % 2]))
        nl.store(out[3], nl.exp(held[1]))
        return out

    assert found_in(kernel, [normal(4, 128, 16)]) == []


# -- cores of a logical NeuronCore -----------------------------------------------------------------


def tile_of(x):
    tile = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.sbuf)
    nisa32.dma_copy(dst=tile, src=x)
    return tile


@every("barrier", [False, True])
def test_issue_1298_partial_sums_through_shared_hbm(barrier):
    """Each core stores its row and adds the other's: right with a barrier between."""

    @nki.jit
    def kernel(x):
        shape = (1, x.shape[1])
        out = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        parts = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        mine = nl32.program_id(0)
        own = tile_of(x[mine : mine + 1, :])
        nisa32.dma_copy(dst=parts[mine : mine + 1, :], src=own)
        if barrier:
            nisa32.core_barrier(data=parts, cores=(0, 1))
        other = tile_of(parts[1 - mine : 2 - mine, :])
        total = nl32.ndarray(shape, dtype=x.dtype, buffer=nl32.sbuf)
        nisa32.tensor_tensor(dst=total, data1=own, data2=other, op=nl32.add)
        nisa32.dma_copy(dst=out[mine : mine + 1, :], src=total)
        return out

    found = found_in(kernel[2], [normal(2, 256)])
    assert set(found) == (set() if barrier else {("program-race", "error")})


def test_nki_library_both_cores_clear_all_of_an_output_and_fill_a_half_each():
    """Tag 2.29, test_cascaded_max_utils.py: no barrier between clearing and filling."""

    @nki.jit
    def kernel(x):
        out = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        zeros = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.sbuf)
        nisa32.memset(dst=zeros, value=0.0)
        nisa32.dma_copy(dst=out, src=zeros)
        start = 8 * nl32.program_id(0)
        tile = tile_of(x[start : start + 8, :])
        nisa32.dma_copy(dst=out[start : start + 8, :], src=tile)
        return out

    assert set(found_in(kernel[2], [normal(16, 32)])) == {("program-race", "error")}


def test_a_kernel_on_two_cores_that_ignores_its_program_id():
    @nki.jit
    def kernel(x):
        out = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        nisa32.dma_copy(dst=out, src=tile_of(x))
        return out

    assert found_in(kernel[2], [normal(16, 32)]) == [("program-id-ignored", "warning")]
    assert found_in(kernel[1], [normal(16, 32)]) == []


@pytest.mark.filterwarnings("ignore::difftest.simulator.frontend.levels.LevelWarning")
def test_trip_counts_that_differ_hang_two_cores():
    @nki.jit
    def kernel(x):
        out = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        mine = nl32.program_id(0)
        for _ in nl32.dynamic_range(3 - mine):
            nisa32.dma_copy(dst=out[8 * mine : 8 * mine + 8, :], src=tile_of(x[0:8, :]))
        return out

    (finding,) = findings_in(kernel[2], [normal(16, 32)])
    assert finding.id == "program-trip-counts"
    assert "program 0: 3; program 1: 2" in finding.happened


@every("apart", [False, True])
def test_exchanged_tensors_of_two_cores_have_one_address(apart):
    @nki.jit
    def kernel(x):
        mine = nl32.program_id(0)
        out = nl32.ndarray(x.shape, dtype=x.dtype, buffer=nl32.shared_hbm)
        own = tile_of(x[8 * mine : 8 * mine + 8, :])
        place = (0, 4096 * (1 + mine)) if apart else (0, 4096)
        other = nl32.ndarray((8, 32), dtype=x.dtype, buffer=nl32.sbuf, address=place)
        nisa32.sendrecv(
            src=own,
            dst=other,
            send_to_rank=1 - mine,
            recv_from_rank=1 - mine,
            pipe_id=0,
        )
        nisa32.dma_copy(dst=out[8 * mine : 8 * mine + 8, :], src=other)
        return out

    found = found_in(kernel[2], [normal(16, 32)])
    assert found == ([("program-other-address", "warning")] if apart else [])


# -- writes through indices ------------------------------------------------------------------------


def scatter_add(a, rows):
    """Rows of ``a`` added to rows of a table that was cleared before."""
    out = nl.ndarray((32, 16), a.dtype, buffer=nl.shared_hbm)
    line, column = nl.mgrid[0:8, 0:16]
    nl.store(out, nl.zeros((32, 16), a.dtype, buffer=nl.sbuf))
    at = nl.load(rows)
    tile = nl.load(a)
    nisa.dma_copy(dst=out[at[line, 0], column], src=tile, dst_rmw_op=np.add)
    return out


ROWS = np.int32([[3], [1], [4], [0], [5], [9], [2], [6]])


def test_a_copy_and_then_a_scatter_add_lost_one_row_of_128():
    found = found_in(scatter_add, [normal(8, 16), ROWS])
    assert found == [("scatter-after-write", "warning")]


def test_duplicate_rows_of_a_scatter_add_lost_additions():
    twice = np.where(ROWS == 9, 3, ROWS)
    found = found_in(scatter_add, [normal(8, 16), twice])
    assert found[0] == ("scatter-added-twice", "error")


def skipping(x, rows):
    """A scatter that adds, and skips an index that is out of bounds."""
    out = nl32.ndarray((16, 8), dtype=x.dtype, buffer=nl32.shared_hbm)
    zeros = nl32.ndarray((16, 8), dtype=x.dtype, buffer=nl32.sbuf)
    nisa32.memset(dst=zeros, value=0.0)
    nisa32.dma_copy(dst=out, src=zeros)
    at = tile_of(rows)
    tile = tile_of(x)
    target = out.ap([[8, 4], [1, 8]], vector_offset=at, indirect_dim=0)
    nisa32.dma_compute(
        dst=target,
        srcs=[target, tile],
        reduce_op=nl32.add,
        unique_indices=True,
        oob_mode=nisa32.oob_mode.skip,
    )
    return out


@every("last, machine, found", [(99, None, True), (9, None, False), (99, TRN1, False)])
def test_a_scatter_add_that_skips_aborted_the_dma_on_trn2(last, machine, found):
    rows = np.int32([[3], [1], [4], [last]])
    ids = [
        one
        for one, _ in found_in(nki.jit(skipping), [normal(4, 8), rows], machine=machine)
    ]
    assert ("scatter-skipped" in ids) is found


# -- PSUM ------------------------------------------------------------------------------------------


@every(
    "steps, apart, found",
    [(3, False, [("psum-chains", "warning")]), (3, True, []), (1, False, [])],
)
def test_all_chains_but_the_last_lost_their_first_product(steps, apart, found):
    """Chains of three matmuls in columns of one PSUM tensor: a sum of the last two (trn1)."""

    @nki.jit
    def kernel(x):
        tile = tile_of(x)
        outs = []
        total = nl32.ndarray((128, 32), dtype=nl32.float32, buffer=nl32.psum)
        places = [total[:, 0:16], total[:, 16:32]]
        if apart:
            places[1] = nl32.ndarray((128, 16), dtype=nl32.float32, buffer=nl32.psum)
        for place in places:
            for step in range(steps):
                nisa32.nc_matmul(
                    place, tile[:, 0:128], tile[:, 0:16], accumulate=step > 0
                )
        for place in places:
            held = nl32.ndarray((128, 16), dtype=x.dtype, buffer=nl32.sbuf)
            nisa32.tensor_copy(dst=held, src=place)
            out = nl32.ndarray((128, 16), dtype=x.dtype, buffer=nl32.shared_hbm)
            nisa32.dma_copy(dst=out, src=held)
            outs.append(out)
        return outs

    assert found_in(kernel, [normal(128, 128)], machine=TRN1) == found


def test_a_start_left_out_on_a_tensor_that_is_used_again():
    """The compiler joined the matmuls of a reused tensor to one group: 62 instead of 4.7 (trn1)."""

    @nki.jit
    def kernel(x):
        tile = tile_of(x)
        out = nl32.ndarray((2, 128, 16), dtype=x.dtype, buffer=nl32.shared_hbm)
        total = nl32.ndarray((128, 16), dtype=nl32.float32, buffer=nl32.psum)
        for turn in range(2):
            nisa32.nc_matmul(total, tile[:, 0:128], tile[:, 0:16])
            held = nl32.ndarray((128, 16), dtype=x.dtype, buffer=nl32.sbuf)
            nisa32.tensor_copy(dst=held, src=total)
            nisa32.dma_copy(dst=out[turn], src=held)
        return out

    assert found_in(kernel, [normal(128, 128)], machine=TRN1) == [
        ("psum-start", "warning")
    ]


# -- the classic compiler --------------------------------------------------------------------------


def test_a_reduction_beside_a_result_accumulated_over_chunks():
    """Row sums of exponentials, added up chunk by chunk: relative error 7 on trn2."""

    def kernel(scores):
        out = nl.ndarray((128, 1), np.float32, buffer=nl.shared_hbm)
        total = nl.zeros((128, 1), np.float32, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            chunk = nl.load(scores[:, nl.ds(64 * i, 64)])
            part = nl.ndarray((128, 1), np.float32, buffer=nl.sbuf)
            nisa.activation_reduce(np.exp, chunk, reduce_op=np.add, reduce_res=part)
            total += part
        nl.store(out, total)
        return out

    found = found_in(kernel, [normal(128, 256)])
    assert ("reduce-res-accumulated", "warning") in found
