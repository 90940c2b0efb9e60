"""The trace of a small kernel, event by event."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from difftest.simulator import Engine, Space, launch
from difftest.simulator.core import Core, current
from difftest.simulator.dtypes import BFLOAT16, FLOAT32
from difftest.simulator.frontend import isa as nisa
from difftest.simulator.frontend import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.copy import memset
from difftest.simulator.trace import Allocation, Attributes, LoopKind, Region

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
        gate.issue(memset, (0.0,), (None,), dst=tile[index])

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
    loops = [event.loops for event in trace]
    assert loops == [loops[0]] * 3 + [loops[3]] * 3 + [()] * 3
    ((first,), (second,)) = loops[0], loops[3]
    assert first.loop == second.loop
    assert (first.loop.id, first.loop.kind) == (0, LoopKind.AFFINE)
    assert first.loop.location.text == "for i in nl.affine_range(2):"
    assert [(turn.number, turn.value) for turn in (first, second)] == [(0, 0), (1, 1)]


def test_a_loops_values_are_not_its_iterations():
    def downwards():
        for _ in nl.sequential_range(6, 0, -3):
            nl.zeros((2, 2), nl.float32)

    turns = [event.loops[0] for event in launch(downwards).trace]
    assert [(turn.number, turn.value) for turn in turns] == [(0, 6), (1, 3)]


def test_the_program_of_a_grid():
    def twice():
        nl.zeros((2, 2), nl.float32)

    trace = launch(twice, grid=(2, 1)).trace
    assert [event.program for event in trace] == [(0, 0), (1, 0)]
    assert [event.program for event in launch(twice).trace] == [()]
    assert (trace.grid, trace.machine) == ((2, 1), "trn2")
    assert trace.kernel == "test_the_program_of_a_grid.<locals>.twice"


def test_source_lines(trace):
    lines = [event.location.text for event in trace.events[:3]]
    assert lines == [
        "nisa.dma_copy(dst=tile, src=x[:, half])",
        "doubled = nisa.tensor_scalar(tile[:, 0:6:2], np.multiply, 2.0)",
        "nisa.dma_copy(dst=out[:, nl.ds(6 * i, 3)], src=doubled)",
    ]
    assert {event.location.file for event in trace} == {__file__}
    assert {len(event.stack) for event in trace} == {1}
    assert "half" in trace.allocations[2].location.text


def test_attributes(trace):
    load, scale = trace.events[0:2]
    assert load.attributes == Attributes(dge="unknown")
    assert scale.attributes == Attributes(op="multiply")
    cleared = launch(lambda: [nl.zeros((2, 2), nl.float32)].clear()).trace.events[0]
    assert cleared.attributes == Attributes(value=0.0)


def test_an_attribute_that_events_do_not_have():
    def emit(**keywords):
        current().emit("tensor_copy", Engine.VECTOR, (), **keywords)

    for record in (True, False):
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            launch(lambda: emit(colour=1), record=record)


def test_an_instruction_can_be_told_each_attribute():
    parameters = inspect.signature(Core.emit).parameters
    names = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert names[3:] == list(Attributes._fields)
    given = {name: parameters[name].default for name in names[3:]}
    assert given == Attributes()._asdict()


def emitted(**keywords):
    """The event of an instruction that writes one tile and reads it and another."""

    def kernel():
        one, other = (nl.ndarray((2, 2), nl.float32, buffer=nl.sbuf) for _ in range(2))
        parts = {"partial": (one,)} if keywords.pop("partly", False) else {}
        current().emit("where", Engine.VECTOR, (one,), (other, one), **keywords, **parts)

    (event,) = launch(kernel).trace.events
    return event


def test_operands_by_role():
    event = emitted(roles=("dst", "on_true", "dst"))
    assert [region.role for region in event.writes + event.reads] == ["dst", "on_true", "dst"]
    assert event.operand("on_true") is event.reads[0]
    assert event.operand("dst") is event.writes[0]
    assert event.operand("on_false") is None
    assert emitted().operand("dst") is None


@pytest.mark.parametrize("roles", [("dst",), ("dst", "data"), ("dst", "data", "dst", "data")])
def test_each_operand_has_a_role_or_none_has(roles):
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is (shorter|longer)"):
        emitted(roles=roles)


def test_operands_that_are_touched_partly():
    regions = emitted(partly=True)
    assert [region.whole for region in regions.writes + regions.reads] == [False, True, False]
    regions = emitted()
    assert all(region.whole for region in regions.writes + regions.reads)


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
