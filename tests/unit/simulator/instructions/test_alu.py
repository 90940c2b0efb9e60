"""The operators, against AWS's table (nki.api.shared.rst at v2.26.0) and NumPy's functions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import Engine, KernelError
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.alu import ALU_OPS, alu_op
from tests.every import every
from tests.unit.simulator.on_tiles import integers, normal, on_tiles

V, G, S = Engine.VECTOR, Engine.GPSIMD, Engine.SCALAR
TABLE = {  # operator: (bitvec, legal for a reduction, engines)
    "invert": (True, False, {V}),
    "bitwise_and": (True, True, {V}),
    "bitwise_or": (True, True, {V}),
    "bitwise_xor": (True, True, {V}),
    "left_shift": (True, False, {V}),
    "right_shift": (True, False, {V}),
    "add": (False, True, {V, G, S}),
    "subtract": (False, True, {V}),
    "multiply": (False, True, {V, G, S}),
    "maximum": (False, True, {V}),
    "minimum": (False, True, {V}),
    "equal": (False, False, {V}),
    "not_equal": (False, False, {V}),
    "greater_equal": (False, False, {V}),
    "greater": (False, False, {V}),
    "less_equal": (False, False, {V}),
    "less": (False, False, {V}),
    "logical_not": (False, False, {V}),
    "logical_and": (False, True, {V}),
    "logical_or": (False, True, {V}),
    "logical_xor": (False, True, {V}),
    "rsqrt": (False, False, {G, S}),
    "reciprocal": (False, False, {V, S}),
    "abs": (False, False, {V, S}),
    "power": (False, False, {G}),
}
ONLY_LANGUAGE = {"divide", "mod", "fmod"}
"""nki.language has functions for them; the table of the instructions' operators does not."""


def test_the_operators_are_those_of_the_table():
    assert set(ALU_OPS) == set(TABLE) | ONLY_LANGUAGE
    for name, (bitvec, reduction, engines) in TABLE.items():
        op = ALU_OPS[name]
        assert (op.bitvec, op.reduction, set(op.engines)) == (bitvec, reduction, engines), name


@every("name", ALU_OPS)
def test_an_operator_is_named_by_its_function_in_nl(name):
    assert alu_op(getattr(nl, name), "test") is ALU_OPS[name]


@every(
    "function, name",
    [
        (np.add, "add"),
        (np.subtract, "subtract"),
        (np.multiply, "multiply"),
        (np.divide, "divide"),
        (np.maximum, "maximum"),
        (np.minimum, "minimum"),
        (np.max, "maximum"),
        (np.amax, "maximum"),
        (np.min, "minimum"),
        (np.amin, "minimum"),
        (np.sum, "add"),
        (np.prod, "multiply"),
        (np.bitwise_and, "bitwise_and"),
        (np.bitwise_or, "bitwise_or"),
        (np.bitwise_xor, "bitwise_xor"),
        (np.invert, "invert"),
        (np.left_shift, "left_shift"),
        (np.right_shift, "right_shift"),
        (np.equal, "equal"),
        (np.not_equal, "not_equal"),
        (np.greater, "greater"),
        (np.greater_equal, "greater_equal"),
        (np.less, "less"),
        (np.less_equal, "less_equal"),
        (np.logical_and, "logical_and"),
        (np.logical_or, "logical_or"),
        (np.logical_xor, "logical_xor"),
        (np.logical_not, "logical_not"),
        (np.abs, "abs"),
        (np.power, "power"),
        (np.mod, "mod"),
        (np.fmod, "fmod"),
        (np.reciprocal, "reciprocal"),
        (nl.max, "maximum"),
        (nl.min, "minimum"),
        (nl.sum, "add"),
        (nl.prod, "multiply"),
    ],
)
def test_numpys_functions_name_the_same_operators(function, name):
    assert alu_op(function, "test") is ALU_OPS[name]


@every("op", [None, "add", np.exp, nl.exp, len, [np.add], np.ones(2)])
def test_what_is_no_operator(op):
    with pytest.raises(KernelError) as caught:
        alu_op(op, "tensor_tensor")
    assert caught.value.received == f"op={op!r}"
    assert caught.value.limit == ", ".join(sorted(ALU_OPS))


A, B = normal(4, 9), normal(4, 9, seed=1)
B[0, 0] = A[0, 0]


@every("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_bitvec_operators_work_on_bits(dtype):
    info = np.iinfo(dtype)
    a = integers(4, 16, low=info.min, high=info.max, dtype=dtype)
    b = integers(4, 16, low=info.min, high=info.max, dtype=dtype, seed=1)
    shifts = integers(4, 16, low=0, high=info.bits, dtype=dtype, seed=2)
    results = on_tiles(
        lambda x, y, s: (
            nl.bitwise_and(x, y),
            nl.bitwise_or(x, y),
            nl.bitwise_xor(x, y),
            nl.invert(x),
            nl.left_shift(x, s),
            nl.right_shift(x, s),
        ),
        *(a, b, shifts),
    )
    bits = a.view(f"u{info.bits // 8}")
    logical = (bits >> shifts.view(bits.dtype)).view(dtype)  # zeros move in, not the sign
    for result, expected in zip(
        results, (a & b, a | b, a ^ b, ~a, a << shifts, logical), strict=True
    ):
        assert_array_equal(result, expected, strict=True)
