"""rng and rand2 (nki.isa at v2.32.0): their ranges and rules, not their bits."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import TRN3, Engine, launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.effects import rand2, rng
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles


def drawn(dtype, shape=(128, 64), buffer=nl.sbuf, engine=Engine.UNKNOWN):
    dst = nl.ndarray(shape, getattr(nl, dtype), buffer=buffer)
    return gate.issue(rng, (), dst=dst, engine=engine)


@every("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_rng_gives_random_bits(dtype):
    """Every bit is set in about half of 8192 numbers, twice the same in two launches."""

    def compute(x):
        return drawn(dtype), drawn(dtype)

    first, second = on_tiles(compute, normal(1, 1))
    again, _ = on_tiles(compute, normal(1, 1))
    assert first.dtype == np.dtype(dtype)
    assert (first != second).any()
    assert_array_equal(first, again)
    bits = np.unpackbits(first.view(np.uint8).reshape(first.size, -1), axis=1)
    assert (abs(bits.mean(axis=0) - 0.5) < 0.05).all()


def test_the_engines_of_rng():
    def kernel():
        drawn("uint32")
        drawn("uint32", engine=Engine.GPSIMD)

    assert [e.engine for e in launch(kernel).trace] == [Engine.VECTOR, Engine.GPSIMD]


@every("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_rand2_is_between_its_bounds(dtype):
    def compute(low, high):
        dst = [nl.ndarray((64, 30, 4), dtype) for _ in range(2)]
        return (
            gate.issue(rand2, (low, high), dst=dst[0]),
            gate.issue(rand2, (-3.0, 11.0), dst=dst[1]),
        )

    low = normal(64, 1) * 4
    vectors, numbers = on_tiles(compute, low, low + np.float32(8), machine=TRN3)
    bottom = low.astype(dtype).reshape(64, 1, 1).astype(float)
    top = (low + np.float32(8)).astype(dtype).reshape(64, 1, 1).astype(float)
    slack = 1 if dtype == np.int32 else 0  # a fractional bound is rounded
    assert (vectors.astype(float) >= bottom - slack).all()
    assert (vectors.astype(float) <= top + slack).all()
    assert numbers.astype(float).min() == pytest.approx(-3, abs=0.1)
    assert numbers.astype(float).max() == pytest.approx(11, abs=0.1)
    assert numbers.astype(float).mean() == pytest.approx(4, abs=0.2)
