"""exponential and tensor_scalar_cumulative, and the registers they share (nki.isa at v2.32.0)."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import TRN1, TRN3
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.activation import exponential, tensor_scalar_cumulative
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.reduce import tensor_scalar_reduce
from difftest.simulator.instructions.registers import Accumulate
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

RESET, REDUCE, LOAD = Accumulate.RESET_REDUCE, Accumulate.REDUCE, Accumulate.LOAD_REDUCE
DATA = normal(6, 10)
OP0, OP1 = ALU_OPS["multiply"], ALU_OPS["add"]


def column(dtype=nl.float32, partitions=6):
    return nl.ndarray((partitions, 1), dtype)


# -- exponential -----------------------------------------------------------------------------------


def test_exponential_goes_on_or_starts_from_a_value():
    def kernel(x, start):
        totals = [column() for _ in range(3)]
        gate.issue(exponential, (x, 0.5, None), (RESET,), others=(None,))
        gate.issue(exponential, (x, 0.5, None), (REDUCE,), others=(totals[0],))
        gate.issue(exponential, (x, 0.5, start), (LOAD,), others=(totals[1],))
        gate.issue(exponential, (x, 0.5, 3.0), (LOAD,), others=(totals[2],))
        return tuple(totals)

    start = normal(6, 1)
    twice, loaded, number = on_tiles(kernel, DATA, start, machine=TRN3)
    once = np.exp(DATA.astype(np.float64) - 0.5).sum(axis=1, keepdims=True)
    assert_allclose(twice, 2 * once, rtol=1e-6)
    assert_allclose(loaded, start + once, rtol=1e-5)
    assert_allclose(number, 3 + once, rtol=1e-6)


def test_the_registers_are_shared_on_the_vector_engine():
    def kernel(x):
        total = column()
        gate.issue(exponential, (x, 0.0, None), (RESET,), others=(None,))
        gate.issue(
            tensor_scalar_reduce,
            (x, 2.0, None),
            (OP0, OP1, REDUCE, False),
            others=(total,),
        )
        return total

    total = on_tiles(kernel, DATA, machine=TRN3)
    wide = DATA.astype(np.float64)
    assert_allclose(total[:, 0], np.exp(wide).sum(axis=1) + 2 * wide.sum(axis=1), rtol=1e-5)


# -- tensor_scalar_cumulative ----------------------------------------------------------------------


def cumulated(data, op0, op1, start):
    """The documentation's pseudocode, element by element in float32."""
    result = np.empty(data.shape, np.float32)
    for p, row in enumerate(data.reshape(len(data), -1)):
        register = np.float32(start)
        for i, value in enumerate(row):
            register = np.float32(op1(op0(value), register))
            result.reshape(len(data), -1)[p, i] = register
    return result


IDENTITY = {"add": 0, "subtract": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}


@every("name", IDENTITY)
def test_a_cumulative_result_and_its_start(name):
    def kernel(x):
        ops = (OP0, ALU_OPS[name])
        first = gate.issue(tensor_scalar_cumulative, (x, 1.5, None), (*ops, RESET))
        loaded = gate.issue(tensor_scalar_cumulative, (x, 1.5, 0.75), (*ops, LOAD))
        return first, loaded

    data = normal(3, 4, 5)
    first, loaded = on_tiles(kernel, data, machine=TRN1)
    op1 = ALU_OPS[name].compute
    for result, start in ((first, IDENTITY[name]), (loaded, 0.75)):
        expected = cumulated(data, lambda v: v * np.float32(1.5), op1, start)
        assert_array_equal(result, expected)


# -- tensor_scalar_reduce's registers --------------------------------------------------------------


@every(
    "name, combine",
    [("add", np.add), ("multiply", np.multiply), ("maximum", np.maximum), ("minimum", np.minimum)],
)
def test_tensor_scalar_reduce_goes_on_loads_and_negates(name, combine):
    def kernel(x, start):
        totals = [column() for _ in range(4)]
        ops = (OP0, ALU_OPS[name])
        for k, (init, command, negate) in enumerate(
            (
                (None, RESET, False),
                (None, REDUCE, True),
                (None, REDUCE, False),
                (start, LOAD, False),
            )
        ):
            gate.issue(
                tensor_scalar_reduce, (x, 1.25, init), (*ops, command, negate), others=(totals[k],)
            )
        return tuple(totals)

    start = normal(6, 1)
    once, negated, thrice, loaded = on_tiles(kernel, DATA, start)
    lines = (DATA * np.float32(1.25)).astype(np.float64)
    reduced = combine.reduce(lines, axis=1, keepdims=True)
    assert_allclose(once, reduced, rtol=1e-5, atol=1e-6)
    assert_allclose(negated, -combine(reduced, reduced), rtol=1e-5, atol=1e-6)
    assert_allclose(thrice, combine(combine(reduced, reduced), reduced), rtol=1e-5, atol=1e-6)
    assert_allclose(loaded, combine(start, reduced), rtol=1e-5, atol=1e-6)
