from __future__ import annotations

import pytest

from difftest.simulator import Engine, KernelError
from difftest.simulator.instructions.table import INSTRUCTIONS, choose_engine, instruction


def test_each_instruction_has_its_record():
    assert len(INSTRUCTIONS) > 30
    for name, record in INSTRUCTIONS.items():
        assert record.name == name
        assert record.engines
        assert record.execute.__doc__.startswith(record.summary)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="instruction nc_matmul is registered twice"):

        @instruction("nc_matmul", Engine.TENSOR)
        def another() -> None:
            """Another."""


def test_the_engine_is_the_first_unless_named():
    assert choose_engine("nc_transpose", Engine.UNKNOWN) is Engine.TENSOR
    assert choose_engine("nc_transpose", Engine.VECTOR) is Engine.VECTOR
    assert choose_engine("tensor_tensor", Engine.UNKNOWN, (Engine.GPSIMD,)) is Engine.GPSIMD


def test_an_engine_that_does_not_have_the_instruction():
    with pytest.raises(KernelError) as caught:
        choose_engine("nc_transpose", Engine.SCALAR)
    assert caught.value.received == "engine=scalar"
    assert caught.value.limit == "tensor, vector"
