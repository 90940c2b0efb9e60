"""Tiles over given arrays, without a launch: for tests of indexing and memory alone."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from difftest.simulator.dtypes import as_dtype
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.memory import Storage
from difftest.simulator.trace import Allocation, Space

_numbers = count()


def stored(
    array: np.ndarray[Any, Any],
    space: Space = Space.SHARED_HBM,
    *,
    partition_axis: int = 0,
    written: bool = True,
) -> Tensor:
    """The whole of a tensor whose data are a copy of ``array``."""
    data = np.array(array)
    dtype = as_dtype(data.dtype)
    allocation = Allocation(
        next(_numbers), space, data.shape, dtype, partition_axis, None, "t"
    )
    return Tensor._whole(Storage(allocation, data, written=written))
