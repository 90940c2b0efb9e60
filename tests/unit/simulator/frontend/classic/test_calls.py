"""What a stub leaves open is an error when the module is imported."""

from __future__ import annotations

import pytest

from difftest.simulator.frontend.classic.calls import Functions
from difftest.simulator.instructions.elementwise import tensor_scalar


def whole(data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False):
    return locals()


def without_reverse1(data, op0, operand0, reverse0=False, op1=None, operand1=None):
    return locals()


def test_each_operand_and_option_of_the_record_is_said():
    functions = Functions()
    functions.issues(tensor_scalar)(whole)
    functions.issues(tensor_scalar, reverse1=False)(without_reverse1)
    assert list(functions) == ["whole", "without_reverse1"]
    with pytest.raises(TypeError, match="without_reverse1 and tensor_scalar differ in reverse1"):
        functions.issues(tensor_scalar)(without_reverse1)
    with pytest.raises(TypeError, match="whole and tensor_scalar differ in negate"):
        functions.issues(tensor_scalar, negate=False)(whole)
