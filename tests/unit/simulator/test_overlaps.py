"""Tensors that a kernel places in HBM."""

import ml_dtypes
import numpy as np
import pytest

from difftest.analysis.footprint import footprint
from difftest.simulator import TRN2, UnwrittenError, launch
from difftest.simulator.core import Core
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.instructions.gate import write
from difftest.simulator.trace import Space

FLOAT32 = np.dtype(np.float32)
UINT8 = np.dtype(np.uint8)
INT32 = np.dtype(np.int32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def core():
    with Core(TRN2, (), record=True, tile=Tensor).running() as core:
        yield core


def placed(core, shape, dtype, address, space=Space.PRIVATE_HBM):
    return Tensor._whole(core.allocate(shape, dtype, space, address=(address,)))


def test_random_overlaps_agree_with_one_array_of_bytes(core):
    """Also where a third tensor joins two that had nothing in common."""
    rng = np.random.default_rng(7)
    memory = np.zeros(400, np.uint8)
    written = np.zeros(400, bool)
    tensors = []
    for turn in range(40):
        size = int(rng.integers(1, 60))
        start = int(rng.integers(0, 340))
        tensor = placed(core, (size,), UINT8, start)
        tensors.append((tensor, start, size))
        if turn % 4:
            values = rng.integers(0, 256, size).astype(np.uint8)
            write(tensor, values.astype(np.float32))
            memory[start : start + size] = values
            written[start : start + size] = True
        for one, low, length in tensors:
            missing = one._unwritten()
            known = np.ones(length, bool) if missing is None else ~missing
            part = slice(low, low + length)
            assert known.tolist() == written[part].tolist()
            np.testing.assert_array_equal(one._elements()[known], memory[part][known])


def test_overlapping_tensors_know_their_unwritten_bytes(core):
    first = placed(core, (4,), INT32, 0)
    write(first[0:2], np.ones(2, np.float32))
    second = placed(core, (4,), INT32, 4)
    assert second._unwritten().tolist() == [False, True, True, True]
    with pytest.raises(UnwrittenError):
        second._read()
    second._forget_written(np.array([True, False, False, False]), "a test")
    assert first._unwritten().tolist() == [False, True, True, True]


def test_the_trace_knows_that_they_overlap():
    def kernel():
        a, b, c = (
            nl.ndarray((4, 4), nl.float32, buffer=nl.private_hbm, address=(start,))
            for start in (0, 32, 64)
        )
        for tensor in (a, b, c):
            nisa.dma_copy(tensor, nl.zeros((4, 4), nl.float32))

    events = launch(jit(kernel)).trace.events
    a, b, c = (
        footprint(event.writes[0]) for event in events if event.opcode == "dma_copy"
    )
    assert a.overlaps(b)
    assert b.overlaps(c)
    assert not a.overlaps(c)
