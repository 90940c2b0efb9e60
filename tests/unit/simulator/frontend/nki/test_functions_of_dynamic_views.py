"""Functions of nl on views that an offset moves, held in SBUF or in a register."""

import numpy as np
import pytest

from difftest.simulator import BufferError, KernelError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl

DATA = np.arange(4 * 16, dtype=np.float32).reshape(4, 16) - 20


def test_the_trace_says_that_the_offset_is_read():
    def kernel(a):
        x = nl.load(a)
        index = nl.full((1, 1), 3, nl.int32)
        nl.relu(x.select(1, index))

    event = launch(kernel, (DATA,)).trace.events[-1]
    assert {(one.role, one.offset) for one in event.reads} == {
        ("data", 3),
        ("index", 0),
    }


def test_an_operand_that_is_no_on_chip_view_is_rejected():
    def assigned(a):
        nl.load(a).select(1, nisa.register_alloc(1))[...] = 1.0

    with pytest.raises(BufferError, match="in hbm"):
        launch(lambda a: nl.relu(a.select(0, nisa.register_alloc(1))), (DATA,))
    with pytest.raises(KernelError, match="an assignment was applied to a view"):
        launch(assigned, (DATA,))
