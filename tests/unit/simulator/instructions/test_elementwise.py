"""The engines compute in float32 and round once; integers of 32 bits are exact on GpSimd."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import Engine, NkiError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import integers, normal, on_tiles


def test_bit_patterns_are_not_cast():
    """Neither to float32 nor beyond their width: a number may be spelled signed or unsigned."""
    values = integers(4, 8, low=-(2**31), high=2**31, dtype=np.int32)
    results = on_tiles(
        lambda x: (
            nl.bitwise_and(x, 0xFFFFFFFF),
            nl.bitwise_and(x, -1),
            nl.bitwise_xor(x, 0x80000000),
            nisa.tensor_scalar(x, nl.right_shift, 8, op1=nl.bitwise_and, operand1=0xFF),
        ),
        values,
    )
    bits = values.view(np.uint32)
    expected = [bits, bits, bits ^ np.uint32(0x80000000), (bits >> 8) & 0xFF]
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == np.int32
        assert_array_equal(result.view(np.uint32), wanted)


def engine_of(compute, *arrays):
    """The engine of the last instruction before the result is stored."""

    def kernel(*tensors):
        compute(*(nl.load(tensor) for tensor in tensors))

    return launch(kernel, arrays).trace.events[-1].engine


F = normal(4, 8)
N = np.ones((4, 8), np.int32)
ENGINES = [
    ("tensor_tensor", lambda x, n: nisa.tensor_tensor(x, x, np.add), Engine.VECTOR),
    (
        "tensor_tensor on gpsimd",
        lambda x, n: nisa.tensor_tensor(x, x, np.add, engine=nisa.gpsimd_engine),
        Engine.GPSIMD,
    ),
    ("integer add", lambda x, n: nisa.tensor_tensor(n, n, np.add), Engine.GPSIMD),
    (
        "integer maximum",
        lambda x, n: nisa.tensor_tensor(n, n, np.maximum),
        Engine.VECTOR,
    ),
    ("power", lambda x, n: nisa.tensor_tensor(x, x, nl.power), Engine.GPSIMD),
    ("tensor_scalar", lambda x, n: nisa.tensor_scalar(x, np.add, 1.0), Engine.VECTOR),
    ("rsqrt", lambda x, n: nisa.tensor_scalar(n, nl.rsqrt, 0.0), Engine.GPSIMD),
    (
        "multiply, add on scalar",
        lambda x, n: nisa.tensor_scalar(
            x, np.multiply, 2.0, op1=np.add, operand1=1.0, engine=nisa.scalar_engine
        ),
        Engine.SCALAR,
    ),
    (
        "add on scalar",
        lambda x, n: nisa.tensor_scalar(x, np.add, 2.0, engine=nisa.scalar_engine),
        Engine.SCALAR,
    ),
    ("reciprocal", lambda x, n: nisa.reciprocal(x), Engine.VECTOR),
]


@every("compute, engine", [row[1:] for row in ENGINES])
def test_each_call_runs_on_its_documented_engine(compute, engine):
    assert engine_of(compute, F, N) is engine


def test_bits_of_a_promoted_result_say_how_to_name_its_dtype():
    """(uint32, 3): the 3 counts as int32, and both promote to float32, as documented."""
    with pytest.raises(NkiError) as caught:
        on_tiles(lambda x: nl.bitwise_and(x, 3), N.astype(np.uint32))
    assert caught.value.received == "result of float32"
    assert "dtype=nl.uint32" in caught.value.remedy
