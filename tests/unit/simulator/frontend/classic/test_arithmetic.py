"""Operators as functions: they broadcast and promote."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import KernelError, ShapeError
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles

A = normal(6, 4, 5)
B = normal(6, 4, 5, seed=1)


@every("shape", [(1, 1), (1, 5)])
def test_one_partition_of_fewer_dimensions_broadcasts(shape):
    """It lacks partitions that could meet the other's free dimensions."""
    small = normal(*shape, seed=2)
    right, left, chosen = on_tiles(
        lambda x, y: (x * y, y - x, nl.where(x > 0, x, 0.0) + y), A, small
    )
    assert_array_equal(right, A * small)
    assert_array_equal(left, small - A)
    assert_array_equal(chosen, np.where(A > 0, A, 0) + small)


@every(
    "compute",
    [
        lambda x, y: x * y,
        lambda x, y: y * x,
        lambda x, y: nl.where(y > 0, x, x),
        lambda x, y: nl.where(x > 0, x, y),
        lambda x, y: nisa.tensor_tensor(x, y, np.add),
    ],
)
def test_partitions_do_not_meet_free_dimensions(compute):
    """NumPy would align the partitions of [4, 5] with the second dimension of [4, 4, 5]."""
    with pytest.raises(
        ShapeError, match="takes operands with the same number of dim"
    ) as caught:
        on_tiles(compute, normal(4, 4, 5), normal(4, 5))
    assert "[4, 4, 5]" in caught.value.received
    assert caught.value.remedy.endswith("tile[:, None, :]")


@every(
    "compute, error",
    [
        (lambda x: nl.add(1.0, 2.0), KernelError),
        (lambda x: nl.add(x, x[:, :, 0:3]), ShapeError),
        (lambda x: nl.where(x, "1", x), KernelError),
    ],
)
def test_operands_that_no_engine_takes_are_rejected(compute, error):
    with pytest.raises(error):
        on_tiles(compute, A)
