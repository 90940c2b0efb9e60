"""The operators, against AWS's table (nki.api.shared.rst at v2.26.0) and NumPy's functions."""

import numpy as np
import pytest

from difftest.simulator import Engine, KernelError
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.alu import ALU_OPS, alu_op
from tests.every import every

V = Engine.VECTOR
G = Engine.GPSIMD
S = Engine.SCALAR
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


def test_the_operators_match_the_table():
    assert set(ALU_OPS) == set(TABLE) | ONLY_LANGUAGE
    for name, (bitvec, reduction, engines) in TABLE.items():
        op = ALU_OPS[name]
        assert (op.bitvec, op.reduction, set(op.engines)) == (
            bitvec,
            reduction,
            engines,
        ), name


OTHERS = {"max": "maximum", "amax": "maximum", "min": "minimum", "amin": "minimum"}
OTHERS |= {"sum": "add", "prod": "multiply"}
"""Functions that name an operator by another name than its own."""


def test_the_functions_of_numpy_and_nl_name_the_same_operators():
    same = {name: name for name in ALU_OPS if hasattr(np, name)}
    assert len(same) > 25
    for function, name in {**same, **OTHERS}.items():
        assert alu_op(getattr(np, function), "test") is ALU_OPS[name], function
    for function, name in {**dict.fromkeys(ALU_OPS), **OTHERS}.items():
        if not function.startswith("am"):  # amax and amin are NumPy's alone
            assert alu_op(getattr(nl, function), "test") is ALU_OPS[name or function], (
                function
            )


@every("op", [None, "add", np.exp, nl.exp, len, [np.add], np.ones(2)])
def test_a_value_that_is_no_operator_is_rejected(op):
    """The message has the function's name: its address differs in each run."""
    with pytest.raises(KernelError, match=" as its operator") as caught:
        alu_op(op, "tensor_tensor")
    assert caught.value.received == f"op={getattr(op, '__name__', repr(op))}"
    assert caught.value.limit == ", ".join(sorted(ALU_OPS))
