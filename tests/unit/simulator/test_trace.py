"""The trace of a small kernel, event by event."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import Engine, Space, launch
from difftest.simulator.dtypes import BFLOAT16, FLOAT32
from difftest.simulator.frontend import isa as nisa
from difftest.simulator.frontend import language as nl
from difftest.simulator.instructions.copy import memset
from difftest.simulator.trace import Allocation, Region

DATA = np.ones((8, 12), np.float32)


def kernel(x):
    out = nl.ndarray((8, 12), nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        half = nl.ds(6 * i, 6)
        tile = nl.ndarray((8, 6), nl.float32, buffer=nl.sbuf, name="half")
        nisa.dma_copy(dst=tile, src=x[:, half])
        doubled = nisa.tensor_scalar(tile[:, 0:6:2], np.multiply, 2.0)
        nisa.dma_copy(dst=out[:, nl.ds(6 * i, 3)], src=doubled)
    nl.store(out[2:4, 1:12:4], nl.exp(nl.load(x[2:4, 1:12:4])))
    return out


@pytest.fixture(scope="module")
def trace():
    return launch(kernel, [DATA]).trace


def test_opcodes_and_engines_in_program_order(trace):
    assert [(event.opcode, event.engine) for event in trace] == [
        *[
            ("dma_copy", Engine.DMA),
            ("tensor_scalar", Engine.VECTOR),
            ("dma_copy", Engine.DMA),
        ]
        * 2,
        ("dma_copy", Engine.DMA),
        ("activation", Engine.SCALAR),
        ("dma_copy", Engine.DMA),
    ]
    assert [event.number for event in trace] == list(range(9))
    assert (len(trace), trace.count("dma_copy"), trace.count("nc_matmul")) == (9, 6, 0)


@pytest.mark.parametrize(
    ("index", "partitions", "free_axes"),
    [
        (np.s_[:], 3, ((2, 12), (4, 1))),
        (np.s_[1], 3, ((4, 1),)),
        (np.s_[1, 2], 1, ((4, 1),)),
        (np.s_[:, 1], 1, ((2, 12), (4, 1))),
        (np.s_[0:1, 0:2, ::2], 2, ((1, 12), (2, 2))),
    ],
    ids=str,
)
def test_a_region_knows_its_partitions(index, partitions, free_axes):
    """Whatever was indexed away before, or stands before them as blocks."""

    def kernel():
        tile = nl.ndarray((2, nl.par_dim(3), 4), nl.float32)
        memset(tile[index], 0.0, Engine.VECTOR)

    (region,) = launch(kernel).trace.events[0].writes
    assert (region.partitions, region.free_axes) == (partitions, free_axes)


def test_regions(trace):
    """Offsets and strides are in elements of the allocation."""
    load, scale, store = trace.events[3:6]
    x, out = load.reads[0].allocation, store.writes[0].allocation
    assert (x.name, x.space, x.shape, x.dtype) == ("x", Space.SHARED_HBM, (8, 12), FLOAT32)
    assert load.reads == (Region(x, 6, (8, 6), (12, 1)),)
    tile = load.writes[0].allocation
    assert (tile.name, tile.space, tile.shape) == ("half", Space.SBUF, (8, 6))
    assert load.writes == (Region(tile, 0, (8, 6), (6, 1)),)
    assert scale.reads == (Region(tile, 0, (8, 3), (6, 2)),)
    assert store.writes == (Region(out, 6, (8, 3), (12, 1)),)
    assert store.reads == scale.writes
    strided = trace.events[-1].writes[0]
    assert strided == Region(out, 2 * 12 + 1, (2, 3), (12, 4))
    assert strided.elements == 6


def test_every_iteration_has_its_own_tile(trace):
    tiles = [a for a in trace.allocations if a.name == "half"]
    assert len(tiles) == 2
    assert [(a.first, a.last, a.reads, a.writes) for a in tiles] == [(0, 1, 1, 1), (3, 4, 1, 1)]
    assert not any(a.is_temporary for a in tiles)


def test_loops(trace):
    assert [event.loops for event in trace] == [((0, 0),)] * 3 + [((0, 1),)] * 3 + [()] * 3


def test_source_lines(trace):
    lines = [event.location.text for event in trace.events[:3]]
    assert lines == [
        "nisa.dma_copy(dst=tile, src=x[:, half])",
        "doubled = nisa.tensor_scalar(tile[:, 0:6:2], np.multiply, 2.0)",
        "nisa.dma_copy(dst=out[:, nl.ds(6 * i, 3)], src=doubled)",
    ]
    assert {event.location.file for event in trace} == {__file__}
    assert "half" in trace.allocations[2].location.text


def test_attributes(trace):
    load, scale = trace.events[0:2]
    assert load.attributes == {"dge": "unknown"}
    assert scale.attributes == {"op": "multiply"}


def test_what_an_allocation_takes():
    blocks = Allocation(3, Space.SBUF, (2, 128, 5, 3), BFLOAT16, 1, None, "blocks")
    assert (blocks.partitions, blocks.partition_bytes) == (128, 2 * 5 * 3 * 2)
    assert str(blocks) == "blocks [2, 128, 5, 3] bfloat16 in sbuf"
    assert (
        str(Allocation(3, Space.PSUM, (1, 2), FLOAT32, 0, None))
        == "tensor 3 [1, 2] float32 in psum"
    )


def test_spaces():
    assert [space.is_hbm for space in Space] == [True, True, False, False]
