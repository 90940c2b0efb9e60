"""The trace of a small kernel, event by event."""

import numpy as np
import pytest

from difftest.simulator import Space, launch
from difftest.simulator.dtypes import BFLOAT16, FLOAT32
from difftest.simulator.entry.kernel import jit
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
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


def test_regions_are_in_elements_of_their_allocation(trace):
    """Offsets and strides are in elements of the allocation."""
    load, scale, store = trace.events[3:6]
    x = load.reads[0].allocation
    out = store.writes[0].allocation
    assert (x.name, x.space, x.shape, x.dtype) == (
        "x",
        Space.SHARED_HBM,
        (8, 12),
        FLOAT32,
    )
    assert load.reads == (Region(x, 6, (8, 6), (12, 1), role="src"),)
    tile = load.writes[0].allocation
    assert (tile.name, tile.space, tile.shape) == ("half", Space.SBUF, (8, 6))
    assert load.writes == (Region(tile, 0, (8, 6), (6, 1), role="dst"),)
    assert scale.reads == (Region(tile, 0, (8, 3), (6, 2), role="data"),)
    assert store.writes == (Region(out, 6, (8, 3), (12, 1), role="dst"),)
    assert store.reads == (scale.writes[0]._replace(role="src"),)
    strided = trace.events[-1].writes[0]
    assert strided == Region(out, 2 * 12 + 1, (2, 3), (12, 4), role="dst")
    assert strided.elements == 6


def last_event(kernel, *arrays):
    return launch(kernel, arrays).trace.events[-1]


def test_operands_have_the_names_of_the_instruction():
    """Each destination and operand by the name that the instruction has for it."""

    def kernel(x):
        tile = nl.load(x)
        total = nl.ndarray((4, 1), nl.float32)
        bias = nl.zeros((4, 1), nl.float32)
        nisa.activation_reduce(
            nl.exp, tile, reduce_op=np.add, reduce_res=total, bias=bias
        )

    event = last_event(kernel, np.zeros((4, 6), np.float32))
    assert [region.role for region in event.writes] == ["dst", "reduce_res"]
    assert [region.role for region in event.reads] == ["data", "bias"]
    assert event.operand("bias") is event.reads[1]
    assert event.operand("scale") is None


def diagonal(x):
    i = nl.arange(4)[:, None]
    j = nl.arange(6)[None, :]
    nl.load(x, mask=i <= j)


def rectangle(x):
    i = nl.arange(4)[:, None]
    j = nl.arange(6)[None, :]
    nl.load(x, mask=(i < 2) & (j < 3))


def gather(x):
    rows = nisa.iota(nl.arange(4)[:, None] + nl.arange(1)[None, :], nl.int32)
    nl.load(x[rows, nl.arange(6)[None, :]])


@pytest.mark.parametrize(
    ("kernel", "partial"),
    [(diagonal, ["dst", "src"]), (rectangle, []), (gather, ["src"])],
)
def test_operands_that_are_touched_partly(kernel, partial):
    event = last_event(kernel, np.zeros((4, 6), np.float32))
    regions = event.writes + event.reads
    assert [region.role for region in regions if not region.whole] == partial


def test_the_bytes_of_an_allocation():
    blocks = Allocation(3, Space.SBUF, (2, 128, 5, 3), BFLOAT16, 1, None, "blocks")
    assert (blocks.partitions, blocks.partition_bytes) == (128, 2 * 5 * 3 * 2)
    assert str(blocks) == "blocks [2, 128, 5, 3] bfloat16 in sbuf"
    assert (
        str(Allocation(3, Space.PSUM, (1, 2), FLOAT32, 0, None))
        == "tensor 3 [1, 2] float32 in psum"
    )


@jit
def inner(x):
    doubled = x * 2.0  # inner operator
    return nl.exp(doubled)  # inner call


def helper(x):
    return nl.copy(x)  # helper


def test_each_instruction_has_its_own_line_on_every_path():
    """Paths of many lengths through the simulator, and kernels that call functions and kernels."""

    F32 = nl.float32

    def kernel(x):
        for _ in nl.affine_range(3):
            tile = nl.load(x)  # load
            tile[...] = inner(tile)  # assignment
            tile += helper(tile)  # update
            nisa.activation(nl.exp, tile, bias=nl.zeros((4, 1), F32))  # two in a line

    trace = launch(kernel, [np.zeros((4, 6), np.float32)]).trace
    marks = [[line.text.split("# ")[-1] for line in event.stack] for event in trace]
    turn = [
        ["load"],
        ["inner operator", "assignment"],
        ["inner call", "assignment"],
        ["helper", "update"],
        ["update"],
        ["two in a line"],
        ["two in a line"],
    ]
    assert marks == turn * 3
    named = {a.location.text.split("# ")[-1] for a in trace.allocations if a.location}
    # the rest was moved
    assert named == {
        "load",
        "inner operator",
        "helper",
        "two in a line",
    }


def zeros_on_demand():
    while True:
        yield nl.zeros((2, 2), nl.float32)  # made


def test_a_generator_works_for_whoever_asks_it():
    def kernel():
        made = zeros_on_demand()
        next(made)  # first
        next(made)  # second

    events = launch(kernel, []).trace
    marks = [[line.text.split("# ")[-1] for line in event.stack] for event in events]
    assert marks == [["made", "first"], ["made", "second"]]
