"""What stands at an operand's place."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator import BufferError
from difftest.simulator.instructions.checks import is_number, need_tile
from difftest.simulator.instructions.record import DMA_SPACES, HBM, ON_CHIP, SBUF_ONLY
from difftest.simulator.trace import Space
from tests.every import every
from tests.unit.simulator.stored import stored


def tile(*shape, space=Space.SBUF, dtype=np.float32):
    return stored(np.zeros(shape, dtype), space)


@every("value", [True, 1, 1.5, np.float64(2), np.int8(1), np.bool_(True), ml_dtypes.bfloat16(1)])
def test_numbers(value):
    assert is_number(value)


@every("value", [None, "1", 1j, np.complex64(1), np.str_("1"), np.ones(1), [1]])
def test_no_numbers(value):
    assert not is_number(value)


@every(
    "spaces, space, accepted, remedy",
    [
        (ON_CHIP, Space.SHARED_HBM, "sbuf or psum", "load it into SBUF first"),
        (SBUF_ONLY, Space.PSUM, "sbuf", "copy it to SBUF first"),
        (DMA_SPACES, Space.PSUM, "hbm or sbuf", "copy it to SBUF first"),
        (HBM, Space.SBUF, "hbm", "put it into hbm"),
    ],
)
def test_a_tile_in_the_wrong_memory(spaces, space, accepted, remedy):
    wrong = tile(4, 5, space=space)
    with pytest.raises(BufferError) as caught:
        need_tile(wrong, "src", "tensor_copy", spaces)
    assert caught.value.rule == f"tensor_copy takes src in {accepted}"
    assert caught.value.received == f"src = t [4, 5] float32 in {space.value}"
    assert caught.value.limit == accepted
    assert remedy in caught.value.remedy
