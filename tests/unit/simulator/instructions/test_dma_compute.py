"""dma_compute without offsets (nki.isa at v2.32.0)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.testing import assert_array_equal

from difftest.simulator import launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.dma import MOST_SOURCES, dma_compute
from difftest.simulator.trace import Engine
from tests.every import every
from tests.unit.simulator.on_tiles import normal

ADD = ALU_OPS["add"]


def added(dst, *srcs, op=ADD, scales=None):
    srcs = (*srcs, *(None,) * (MOST_SOURCES - len(srcs)))
    return gate.issue(dma_compute, srcs, (op, scales), dst=dst)


def run(*arrays, dtype=nl.float32, on_chip=(), shape=None, scales=None):
    """The sum in HBM of the arrays, of which those ``on_chip`` are loaded first."""

    def kernel(*tensors):
        out = nl.ndarray(shape or tensors[0].shape, dtype, buffer=nl.shared_hbm)
        srcs = [nl.load(t) if k in on_chip else t for k, t in enumerate(tensors)]
        return added(out, *srcs, scales=scales)

    return launch(kernel, arrays)


@every("count", [1, 2, 3, 16])
def test_the_sum_is_in_float32_and_rounded_once(count):
    arrays = [normal(8, 6, seed=k, dtype=ml_dtypes.bfloat16) for k in range(count)]
    total = arrays[0].astype(np.float32)
    for other in arrays[1:]:
        total = total + other.astype(np.float32)
    result = run(*arrays, dtype=nl.bfloat16, on_chip=(1, 3), scales=(1.0,) * count)
    assert_array_equal(result.outputs[0], total.astype(ml_dtypes.bfloat16), strict=True)
    (event,) = [event for event in result.trace if event.opcode == "dma_compute"]
    assert event.engine is Engine.DMA
    assert [region.role for region in event.reads] == [f"src{k}" for k in range(count)]


def test_the_destination_may_be_a_source():
    def kernel(x):
        tile = nl.load(x)
        added(tile, tile, x)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        return added(out, tile)

    data = normal(4, 6)
    assert_array_equal(launch(kernel, [data]).outputs[0], data + data)
