"""Integers, and the shapes of what is indexed."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator import KernelError, ShapeError
from difftest.simulator.index import as_integer, broadcast_shapes
from tests.every import every


def test_broadcast_shapes_names_its_operands():
    assert broadcast_shapes((4, 1), (3,), "x and y") == (4, 3)
    with pytest.raises(ShapeError) as caught:
        broadcast_shapes((4, 2), (3,), "x and y")
    assert caught.value.rule == "x and y must have shapes that broadcast"
    assert caught.value.received == "shapes (4, 2) and (3,)"


@every("value", [1.0, "1", None, 1j, np.arange(2), np.float32(2)])
def test_only_integers_are_indices(value):
    with pytest.raises(KernelError, match="indices and sizes are integers") as caught:
        as_integer(value, "index")
    assert type(value).__name__ in caught.value.received
