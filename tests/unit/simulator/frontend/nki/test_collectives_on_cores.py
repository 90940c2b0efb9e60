"""Collectives where each rank has two cores: how they meet, and how they end together."""

import threading

import numpy as np
import pytest

from difftest.simulator import BufferError, launch_ranks
from difftest.simulator.baton import DeadlockError
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.kernel import jit

DATA = [np.arange(8, dtype=np.float32).reshape(4, 2) * 10**rank for rank in range(4)]
PAIR = ncc.ReplicaGroup([[0, 1]])


def results(kernel, data=DATA):
    return [one.outputs[0] for one in launch_ranks(kernel, [(array,) for array in data])]


@jit
def gathered_by_cores(a):
    """Each core gathers its rows by way of SBUF, as nki-library's allgather_sb2sb_tiled does."""
    rows = a.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * rows, rows)
    src, dst = nl.ndarray((rows, 2), a.dtype), nl.ndarray((rows, 4), a.dtype)
    out = nl.ndarray((a.shape[0], 4), a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(src, a[mine])
    ncc.all_gather([src], [dst], PAIR, 1)
    nisa.dma_copy(out[mine], dst)
    return out


def test_each_core_of_a_rank_meets_its_like():
    expected = np.concatenate(DATA[:2], axis=1)
    for result in results(gathered_by_cores[2], DATA[:2]):
        np.testing.assert_array_equal(result, expected)


def test_both_cores_of_a_rank_reduce_what_they_share():
    """As nki-library's tests of collectives do: each core copies, reduces and copies all of it."""

    @jit
    def kernel(a):
        src = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name="src")
        dst = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name="dst")
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(src, a)
        ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0, 1, 2, 3]]), nl.add)
        nisa.dma_copy(out, dst)
        return out

    for result in results(kernel[2]):
        np.testing.assert_array_equal(result, sum(DATA))


def test_a_core_gives_what_the_other_core_wrote_before():
    @jit
    def kernel(a):
        src = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name="src")
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 1:
            nisa.dma_copy(src, a)
        else:
            nisa.memset(nl.ndarray((1, 1), a.dtype), 0.0)
            nisa.memset(nl.ndarray((1, 1), a.dtype), 0.0)
            ncc.all_reduce([src], [out], PAIR, nl.add)
        return out

    for result in results(kernel[2], DATA[:2]):
        np.testing.assert_array_equal(result, DATA[0] + DATA[1])


@pytest.mark.parametrize("fails", ["error", "deadlock"])
def test_what_ends_one_core_ends_all_cores_of_all_ranks(fails):
    @jit
    def kernel(a, rank):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.core_barrier(out, (0, 1))
        if nl.program_id(0) == 1:
            if rank == 1 and fails == "error":
                nisa.memset(out, 1.0)
            if rank == 1:
                return out
            ncc.all_reduce([a], [out], PAIR, nl.add)
        nisa.core_barrier(out, (0, 1))
        return out

    before = threading.active_count()
    with pytest.raises(BufferError if fails == "error" else DeadlockError):
        launch_ranks(kernel[2], [(DATA[0], 0), (DATA[1], 1)])
    assert threading.active_count() == before
