"""What the outputs of a trace follow from, element by element."""

from __future__ import annotations

import numpy as np

from difftest.simulator import launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.kernel import jit
from difftest.simulator.replay import replayed
from difftest.simulator.tape import taping
from difftest.verdict.evidence import Flow, dependence, gaps
from tests.every import every

SHAPE = (4, 6)


def loaded(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    return tile


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def filled(value):
    tile = nl.ndarray(SHAPE, nl.float32, buffer=nl.sbuf)
    nisa.memset(tile, value)
    return tile


@jit
def both(x, y):
    tile = loaded(x)
    nisa.tensor_tensor(tile, tile, loaded(y), nl.add)
    return stored(tile)


@jit
def constant(x, y):
    return stored(filled(1.0))


@jit
def the_input(x, y):
    return x


@jit
def a_row_of_constants(x, y):
    tile = loaded(x)
    nisa.memset(tile[2:3, 1:4], 0.0)
    return stored(tile)


@jit
def overwritten(x, y):
    tile = loaded(x)
    nisa.memset(tile, 0.0)
    return stored(tile)


@jit
def as_other_bits(x, y):
    halves = loaded(x).view(nl.uint16)
    nisa.memset(halves[:, 0:2], 0)
    return stored(halves.view(nl.float32))


@jit
def by_an_offset(x, y):
    index = nl.ndarray((4, 1), nl.int32, buffer=nl.sbuf)
    nisa.iota(index, [[0, 1]], 3, -1)
    tile = nl.ndarray(SHAPE, nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(tile, x.vector_select(0, index))
    return stored(tile)


@jit
def placed_over_each_other(x, y):
    tile = nl.ndarray(SHAPE, nl.float32, buffer=nl.sbuf, address=(0, 0))
    nisa.dma_copy(tile, x)
    return stored(nl.ndarray(SHAPE, nl.float32, buffer=nl.sbuf, address=(0, 0)))


@jit
def through_a_register(x, y):
    counts = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(counts, x[0:1, 0:1])
    register = nisa.register_alloc(0)
    nisa.register_load(register, counts)
    out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
    nisa.register_store(out, register)
    return out


def run(kernel, seed=0):
    """A tape of the kernel, and the trace of its replay."""
    data = np.random.default_rng(seed).standard_normal((2, *SHAPE)).astype(np.float32)
    with taping() as tapes:
        launch(kernel, [*data])
    return tapes[0], launch(replayed(tapes[0]), [*data]).trace


def founded(kernel):
    tape, trace = run(kernel)
    return Flow(tape, trace).of(tape.returned[0])


@every(
    "kernel, is_founded",
    [
        (both, True),
        (constant, False),
        (the_input, True),
        (overwritten, False),
        (by_an_offset, True),
        (placed_over_each_other, True),
        (through_a_register, True),
    ],
)
def test_whether_an_output_follows_from_an_input(kernel, is_founded):
    found = founded(kernel)
    assert (found == is_founded).all(), found


def test_elements_are_told_apart():
    constants = np.zeros(SHAPE, bool)
    constants[2, 1:4] = True
    assert (~founded(a_row_of_constants) == constants).all()
    assert not founded(as_other_bits)[:, 0].any()
    assert founded(as_other_bits)[:, 1:].all()


@every(
    "kernel, said",
    [
        (both, ()),
        (constant, ("output 0 follows from no input, in 24 of 24 elements",)),
        (the_input, ("output 0 is an input as it was given, in 24 of 24 elements",)),
        (a_row_of_constants, ("output 0 follows from no input, in 3 of 24 elements",)),
    ],
)
def test_what_is_said(kernel, said):
    tape, trace = run(kernel)
    found = gaps(tape, trace, [np.ones(SHAPE, bool)])
    assert tuple(map(str, found)) == said
    assert all(one.whole == (one.elements == 24) for one in found)
    assert gaps(tape, trace, [np.zeros(SHAPE, bool)]) == ()
    assert gaps(tape, trace, [None]) == ()


def test_an_output_that_is_an_argument_is_no_input_of_itself():
    @jit
    def kernel(x, out):
        nisa.dma_copy(out, filled(1.0))

    tape, trace = run(kernel)
    (gap,) = gaps(tape, trace, [np.ones(SHAPE, bool)], ["out"])
    assert gap.whole
    assert gap.first == (0, 0)


def test_where_a_reference_depends_on_its_inputs():
    def reference(arrays):
        x = arrays[0]
        return np.where(np.arange(6) < 2, 0.0, x), np.ones(3)

    x = np.ones(SHAPE)
    moved, still = dependence(reference, (x,), [(x + 1,)])
    assert (moved == (np.arange(6) >= 2)).all()
    assert not still.any()
