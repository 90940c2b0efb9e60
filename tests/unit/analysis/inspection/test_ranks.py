"""Kernels on several ranks are inspected rank by rank."""

import numpy as np

from difftest.analysis.inspection import Inspector
from difftest.simulator import launch_ranks
from difftest.simulator.entry.install import embedded
from difftest.simulator.launch_listeners import listening
from tests.every import every

with embedded():
    import nki
    import nki.collectives as ncc
    import nki.isa as nisa
    import nki.language as nl

RANKS = 2


def shared(adds, barrier=False):
    """Two cores of each rank write one output, then all ranks add theirs up."""

    @nki.jit
    def kernel(x):
        part = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(
            dst=tile, data=tile, op0=nl.add, operand0=float(adds(nl.program_id(0)))
        )
        nisa.dma_copy(dst=part, src=tile)
        if barrier:
            nisa.core_barrier(data=part, cores=(0, 1))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        ncc.all_reduce([part], [out], ncc.ReplicaGroup([list(range(RANKS))]), nl.add)
        return out

    return kernel[2]


def inspected(kernel, data):
    inspector = Inspector()
    with listening(inspector):
        results = launch_ranks(kernel, [(one,) for one in data], record=False)
    return inspector, results


DATA = [np.full((4, 8), rank, np.float32) for rank in range(RANKS)]


def test_a_race_on_each_rank_is_one_finding_that_names_the_first():
    inspector, _ = inspected(shared(int), DATA)
    races = [one for one in inspector.findings if one.id == "program-race"]
    assert races
    assert all(one.happened.startswith("on rank 0, ") for one in races)


def test_runs_in_other_orders_run_all_ranks():
    """Two writes of one value are not a race: every order gives equal outputs."""
    inspector, results = inspected(shared(lambda core: 1, barrier=True), DATA)
    assert {one.id for one in inspector.findings} <= {
        "program-written-twice",
        "program-id-ignored",
    }
    assert [one.outputs[0].max() for one in results] == [3.0, 3.0]


def test_a_hazard_of_one_rank_alone():
    """Only rank 1 makes a NaN, and the finding names that rank."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.subtract)
        nisa.dma_copy(dst=out, src=tile)
        return out

    data = [np.ones((4, 8), np.float32), np.full((4, 8), np.inf, np.float32)]
    (finding,) = inspected(kernel, data)[0].findings
    assert (finding.id, finding.happened[:11]) == ("nan-made", "on rank 1, ")


@every("record", [True, False])
def test_the_requested_traces_are_recorded(record):
    kernel = shared(lambda core: 1)
    results = launch_ranks(kernel, [(one,) for one in DATA], record=record)
    assert all(bool(len(one.trace)) is record for one in results)
