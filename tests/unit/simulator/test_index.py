"""Integers, ``nl.ds`` and the shapes of what is indexed."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import KernelError, NkiError, ShapeError
from difftest.simulator.index import DynamicSlice, as_integer, broadcast_shapes


def test_ds_keeps_integers():
    part = DynamicSlice(np.int64(3), 5)
    assert (part.start, part.size) == (3, 5)


def test_broadcast_shapes_names_its_operands():
    assert broadcast_shapes((4, 1), (3,), "x and y") == (4, 3)
    with pytest.raises(ShapeError) as caught:
        broadcast_shapes((4, 2), (3,), "x and y")
    assert caught.value.rule == "x and y must have shapes that broadcast"
    assert caught.value.received == "shapes (4, 2) and (3,)"


@pytest.mark.parametrize("value", [1.0, "1", None, 1j, np.arange(2), np.float32(2)])
def test_only_integers_are_indices(value):
    with pytest.raises(KernelError, match="indices and sizes are integers") as caught:
        as_integer(value, "index")
    assert type(value).__name__ in caught.value.received


@pytest.mark.parametrize(
    ("size", "received"), [(2.0, "nl.ds with size 2.0 (float)"), (0, "size 0")]
)
def test_ds_takes_a_size_of_at_least_one(size, received):
    with pytest.raises(NkiError) as caught:
        DynamicSlice(0, size)
    assert received in caught.value.received
