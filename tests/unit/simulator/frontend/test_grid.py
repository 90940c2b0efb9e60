import pickle

import numpy as np
import pytest

from difftest.simulator import KernelError
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.launchable import grid_shape, physical_cores
from tests.every import every


@every(
    "key, shape",
    [
        (4, (4,)),
        ((4, 2), (4, 2)),
        (np.int64(3), (3,)),
        ((nl.nc(2), 2), (2, 2)),
        (nl.spmd_dim(nl.nc(2), 3), (6,)),
        ((nl.spmd_dim(4, nl.nc(2)), 2), (8, 2)),
        (nl.nc(2) * 2, (4,)),
        (2 * nl.nc(3), (6,)),
        (nl.nc(2) * nl.nc(3), (6,)),
        ((), ()),
    ],
)
def test_a_grid_has_its_documented_shape(key, shape):
    assert grid_shape(key) == shape


@every(
    "key, cores",
    [
        ((4, 2), ()),
        ((nl.nc(2), 2), (0, 0, 1, 1)),
        ((2, nl.nc(2)), (0, 1, 0, 1)),
        ((nl.spmd_dim(nl.nc(2), 2), 2), (0, 0, 0, 0, 1, 1, 1, 1)),
        ((nl.nc(2) * 2, 2), (0, 0, 0, 0, 1, 1, 1, 1)),
        ((nl.spmd_dim(2, nl.nc(2)), 2), (0, 0, 1, 1, 0, 0, 1, 1)),
        ((2 * nl.nc(2), 2), (0, 0, 1, 1, 0, 0, 1, 1)),
    ],
)
def test_the_physical_cores_of_the_documented_grids(key, cores):
    assert physical_cores(grid_shape(key)) == cores
    assert physical_cores(pickle.loads(pickle.dumps(grid_shape(key)))) == cores


@every("size", [0, -1])
def test_a_dimension_is_positive(size):
    for key in (size, (2, size)):
        with pytest.raises(KernelError, match="a grid dimension is positive") as caught:
            grid_shape(key)
        assert caught.value.received == str(size)
    with pytest.raises(KernelError, match="a grid dimension is positive"):
        nl.nc(size)


@every("dim", [1.5, "2", None, [2]])
def test_a_dimension_is_an_integer(dim):
    with pytest.raises(
        KernelError,
        match=r"a launch grid takes dimensions that are integers, nl\.nc or",
    ) as caught:
        grid_shape((2, dim))
    assert caught.value.received == f"{type(dim).__name__} {dim!r}"
