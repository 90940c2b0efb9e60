"""Collectives of ranks that have two cores each."""

import numpy as np
import pytest

from difftest.simulator import LimitError, launch_ranks
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.program_scheduler import DeadlockError

DATA = [np.arange(8, dtype=np.float32).reshape(4, 2) * 10**rank for rank in range(2)]


def gathered_by_halves(a):
    """Each core gathers its half of the rows in SBUF, then both sum all in HBM."""
    core = nl.program_id(0)
    group = ncc.ReplicaGroup([[0, 1]])
    rows = a.shape[0] // 2
    half = slice(rows * core, rows * (core + 1))
    out = nl.ndarray(
        (a.shape[0], 2 * a.shape[1]), a.dtype, buffer=nl.shared_hbm, name="out"
    )
    total = nl.ndarray(out.shape, a.dtype, buffer=nl.shared_hbm, name="total")
    mine = nl.ndarray((rows, a.shape[1]), a.dtype)
    all_of = nl.ndarray((rows, 2 * a.shape[1]), a.dtype)
    nisa.dma_copy(mine, a[half])
    ncc.all_gather([mine], [all_of], group, 1)
    nisa.dma_copy(out[half], all_of)
    nisa.core_barrier(out, (0, 1))
    ncc.all_reduce([out], [total], group, nl.add)
    return total


def test_a_program_meets_the_programs_of_its_number():
    pair = [DATA[0], DATA[1]]
    for one in launch_ranks(jit(gathered_by_halves)[2], [(data,) for data in pair]):
        np.testing.assert_array_equal(one.outputs[0], 2 * np.concatenate(pair, axis=1))


def test_ranks_whose_programs_call_in_another_order_never_meet():
    def kernel(first):
        mine = nl.zeros((1, 1), nl.float32)
        all_of = nl.zeros((1, 2), nl.float32)
        if nl.program_id(0) == first:
            ncc.all_gather([mine], [all_of], ncc.ReplicaGroup([[0, 1]]), 1)

    with pytest.raises(DeadlockError, match="program 0 of each") as caught:
        launch_ranks(jit(kernel)[2], [(0,), (1,)])
    assert "by program 1 of each" in str(caught.value)


def test_an_error_on_one_core_of_one_rank_ends_all():
    def kernel(wrong):
        mine = nl.zeros((1, 1), nl.float32)
        all_of = nl.zeros((1, 2), nl.float32)
        if wrong and nl.program_id(0) == 1:
            nl.ndarray((129, 1), nl.float32)
        ncc.all_gather([mine], [all_of], ncc.ReplicaGroup([[0, 1]]), 1)

    with pytest.raises(LimitError, match="129 partitions"):
        launch_ranks(jit(kernel)[2], [(False,), (True,)])
