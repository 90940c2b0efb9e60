"""Functions of nl on views that an offset moves, held in SBUF or in a register."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import BufferError, KernelError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored

DATA = np.arange(4 * 16, dtype=np.float32).reshape(4, 16) - 20


def in_sbuf(number):
    return nl.full((1, 1), number, nl.int32)


def wide(x, at):
    return x.ap([[16, 4], [1, 5]], scalar_offset=at, indirect_dim=1)


FUNCTIONS = {
    "copy": (lambda x, at: nl.copy(x.select(1, at)), DATA[:, 3:4]),
    "a number": (lambda x, at: nl.subtract(2.0, wide(x, at)), 2 - DATA[:, 3:8]),
    "two tiles": (lambda x, at: nl.add(wide(x, at), x[:, 0:5]), DATA[:, 3:8] + DATA[:, :5]),
    "two views": (
        lambda x, at: nl.multiply(x.select(1, at), wide(x, at)[:, 1:2]),
        DATA[:, 3:4] * DATA[:, 4:5],
    ),
    "an activation": (lambda x, at: nl.relu(wide(x, at)), np.maximum(DATA[:, 3:8], 0)),
    "a unary operator": (lambda x, at: nl.logical_not(wide(x, at)), DATA[:, 3:8] == 0),
    "reciprocal": (
        lambda x, at: nl.reciprocal(wide(x, at)[:, 0:1]),
        np.float32(1) / DATA[:, 3:4],
    ),
    "a rounding": (lambda x, at: nl.floor(wide(x, at)), np.floor(DATA[:, 3:8])),
    "a comparison": (lambda x, at: nl.greater(wide(x, at), 0.0), DATA[:, 3:8] > 0),
    "a sum": (lambda x, at: nl.sum(wide(x, at), 1), DATA[:, 3:8].sum(1, keepdims=True)),
}


@every("at", [in_sbuf, nisa.register_alloc])
@every("name", FUNCTIONS)
def test_a_function_reads_where_the_offset_is(name, at):
    function, expected = FUNCTIONS[name]
    result = launch(lambda a: stored(function(nl.load(a), at(3))), (DATA,)).outputs[0]
    np.testing.assert_array_equal(result, expected)


def test_the_trace_says_that_the_offset_is_read():
    def kernel(a):
        x, index = nl.load(a), in_sbuf(3)
        nl.relu(x.select(1, index))

    event = launch(kernel, (DATA,)).trace.events[-1]
    assert {(one.role, one.offset) for one in event.reads} == {("data", 3), ("index", 0)}


def test_what_is_no_view_on_chip_is_refused():
    def assigned(a):
        nl.load(a).select(1, nisa.register_alloc(1))[...] = 1.0

    with pytest.raises(BufferError, match="in hbm"):
        launch(lambda a: nl.relu(a.select(0, nisa.register_alloc(1))), (DATA,))
    with pytest.raises(KernelError, match="an assignment was asked of a view"):
        launch(assigned, (DATA,))
