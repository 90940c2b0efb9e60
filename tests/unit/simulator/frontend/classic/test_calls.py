"""An unbound part of a stub is an error at import; few functions are without a stub."""

import re
from pathlib import Path

import pytest

from difftest.simulator.frontend.classic import calls, isa, language
from difftest.simulator.frontend.classic.calls import Functions
from difftest.simulator.instructions.elementwise import tensor_scalar


def whole(data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False):
    return locals()


def without_reverse1(data, op0, operand0, reverse0=False, op1=None, operand1=None):
    return locals()


def test_each_operand_and_option_of_the_record_has_an_argument():
    functions = Functions()
    functions.issues(tensor_scalar)(whole)
    functions.issues(tensor_scalar, reverse1=False)(without_reverse1)
    assert list(functions) == ["whole", "without_reverse1"]
    with pytest.raises(
        TypeError, match="without_reverse1 and tensor_scalar differ in reverse1"
    ):
        functions.issues(tensor_scalar)(without_reverse1)
    with pytest.raises(TypeError, match="whole and tensor_scalar differ in negate"):
        functions.issues(tensor_scalar, negate=False)(whole)


def by_hand(source):
    """The hand-written functions of a module, and the ones among them that give a reason."""
    found = re.findall(
        r"^@\w+\.by_hand(  # \w.*)?\n(?:def|class) (\w+)", source, re.MULTILINE
    )
    return [name for _, name in found], [name for why, name in found if why]


def test_at_most_one_function_in_five_is_by_hand_and_says_why():
    assert by_hand(
        "@ISA.by_hand\ndef f(): ...\n@ISA.by_hand  # a view\ndef g(): ...\n"
    ) == (
        ["f", "g"],
        ["g"],
    )
    source = "".join(
        file.read_text() for file in Path(calls.__file__).parent.glob("*.py")
    )
    written, reasoned = by_hand(source)
    assert written == reasoned
    assert {"nc_matmul", "ndarray"} < set(written) < {*language.__all__, *isa.__all__}
    assert 5 * len(written) <= len(calls.ISA) + len(calls.LANGUAGE)
