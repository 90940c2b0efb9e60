"""Collectives pass unwritten elements on, as each record does."""

import numpy as np
import pytest

from difftest.simulator import UnwrittenError, launch_ranks
from difftest.simulator.core import current
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import collectives as ncc
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every

DATA = [np.arange(8, dtype=np.float32).reshape(4, 2) * 10**rank for rank in range(2)]
GROUP = ncc.ReplicaGroup([[0, 1]])
PARTLY = {
    "all_reduce": ((4, 2), lambda a, b: ncc.all_reduce([a], [b], GROUP, nl.add)),
    "all_gather": ((8, 2), lambda a, b: ncc.all_gather([a], [b], GROUP, 0)),
    "reduce_scatter": (
        (2, 2),
        lambda a, b: ncc.reduce_scatter([a], [b], GROUP, 0, nl.add),
    ),
    "all_to_all": ((4, 2), lambda a, b: ncc.all_to_all([a], [b], GROUP, 0)),
    "collective_permute": (
        (4, 2),
        lambda a, b: ncc.collective_permute([a], [b], [[0, 1], [1, 0]]),
    ),
    "collective_permute_implicit": (
        (4, 2),
        lambda a, b: ncc.collective_permute_implicit([[a]], [[b]], GROUP),
    ),
    "collective_permute_implicit_reduce": (
        (4, 2),
        lambda a, b: ncc.collective_permute_implicit_reduce(
            [[a]], [[a]], [[b]], GROUP, nl.add
        ),
    ),
}
NOTHING = [np.array([[0, 0], [0, 1], [0, 0], [0, 0]], bool), np.zeros((4, 2), bool)]
"""By rank, the unwritten elements of the tensor that it sends."""
CAME = {
    "all_reduce": [NOTHING[0], NOTHING[0]],
    "all_gather": [np.concatenate(NOTHING)] * 2,
    "reduce_scatter": [NOTHING[0][:2], NOTHING[0][2:]],
    "all_to_all": [
        np.concatenate([NOTHING[0][:2], NOTHING[1][:2]]),
        np.zeros((4, 2), bool),
    ],
}


@every("name", PARTLY)
def test_collectives_pass_on_unwritten_elements(name):
    shape, call = PARTLY[name]
    came = {}

    @jit
    def kernel(a):
        held, got = (
            nl.ndarray(s, a.dtype, buffer=nl.shared_hbm) for s in (a.shape, shape)
        )
        rank = current().seat.rank.number
        for row, column in np.argwhere(~NOTHING[rank]).tolist():
            cut = (slice(row, row + 1), slice(column, column + 1))
            nisa.dma_copy(held[cut], a[cut])
        call(held, got)
        missing = got._unwritten()
        came[rank] = np.zeros(shape, bool) if missing is None else missing
        if came[rank].any():
            with pytest.raises(UnwrittenError, match="sent by rank 0"):
                got._read()
        return a

    launch_ranks(kernel, [(DATA[0],), (DATA[1],)])
    for rank, expected in enumerate(CAME.get(name, NOTHING[::-1])):
        np.testing.assert_array_equal(came[rank], expected)
