"""Each instruction alone against its documented meaning, on all that its record promises.

The meaning is the plain mode's: written once more after AWS's documentation. Each drawn call of the
classic dialect runs three times, and all three leave the same bits. A call of the current dialect
alone runs twice, once with the oracle. A record without an example fails.
"""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from difftest.simulator import OracleError
from difftest.simulator.dtypes import DTYPES, dtype_name
from difftest.simulator.instructions.record import INSTRUCTIONS, OperandKind
from difftest.simulator.oracle.use import MEANINGS
from tests.every import every
from tests.kernels.budget import NIGHTLY, half
from tests.unit.simulator.instructions.calls.drawn import (
    ISSUED,
    MODES,
    Operand,
    difference,
)
from tests.unit.simulator.instructions.calls.examples import EXAMPLES, FORMS, drawn

EXAMPLES_EACH = 4
"""Drawn calls of each instruction; more where the profile draws more (nightly)."""
WITHOUT_DATA = (OperandKind.NUMBER, OperandKind.INDEX)


def agree(call, modes=MODES):
    """Assert that the modes agree on every destination.

    The oracle follows a call of the current dialect as it is issued, in place of a spelled one.
    """
    first, *others = modes if call.is_classic else ISSUED
    result = call.run(first)
    for mode in others:
        for number, (one, other) in enumerate(zip(result, call.run(mode), strict=True)):
            found = difference(call, one, other)
            assert not found, (
                f"{call!r}, destination {number}, {first} and {mode}: {found}"
            )


def promises(record):
    """Each buffer and dtype that the record allows, with its role."""
    for role in (*record.operands, *record.destinations):
        if role.takes not in WITHOUT_DATA:
            yield from ((role.name, one) for one in role.buffers)
            yield from ((role.name, one) for one in role.dtypes or DTYPES)


def test_each_record_has_an_example():
    assert set(EXAMPLES) - FORMS.keys() == set(INSTRUCTIONS)


def keeps(call, role, promised):
    """Return whether a call has the promised buffer or dtype at a role."""
    operand = call.role(role)
    if not isinstance(operand, Operand):
        return False
    return promised == (
        operand.dtype if isinstance(promised, np.dtype) else operand.space
    )


@every("name", sorted(EXAMPLES))
def test_each_buffer_and_dtype_of_the_record_agrees_with_the_oracle(name):
    """Every buffer and every dtype of every role is requested, one at a time.

    By default half of them are drawn, and only if no earlier call had them. Every night each has a
    call of its own.
    """
    kept = []
    for seed, (role, promised) in half(
        enumerate(promises(INSTRUCTIONS[FORMS.get(name, name)]))
    ):
        if not NIGHTLY and any(keeps(call, role, promised) for call in kept):
            continue
        call = drawn(name, random.Random(seed).choice, {role: promised})
        assert keeps(call, role, promised), (
            f"the example of {name} leaves out {role} = {promised}"
        )
        try:
            agree(call, MODES if NIGHTLY else MODES[1:])
        except Exception as error:
            shown = (
                dtype_name(promised)
                if isinstance(promised, np.dtype)
                else promised.value
            )
            raise AssertionError(
                f"{name} promises {role} = {shown}\n{call!r}"
            ) from error
        kept.append(call)
    assert kept


def test_a_wrong_oracle_of_an_instruction_of_the_current_dialect_is_found(monkeypatch):
    meaning = MEANINGS["nonzero_with_count"]

    def off_by_one(use):
        result = meaning(use)
        return result._replace(values=result.values + 1)

    monkeypatch.setitem(MEANINGS, "nonzero_with_count", off_by_one)
    with pytest.raises(OracleError, match="nonzero_with_count wrote other values"):
        agree(drawn("nonzero_with_count", random.Random(1).choice))


@every("name", sorted(EXAMPLES))
def test_drawn_calls_agree_with_the_oracle(name):
    """Shapes, dtypes, buffers, engines and options together."""

    @settings(
        max_examples=max(EXAMPLES_EACH, settings().max_examples // 10), deadline=None
    )
    @given(st.data())
    def check(data):
        agree(drawn(name, lambda options: data.draw(st.sampled_from(options))))

    check()
