"""The SPMD launch grid: ``kernel[4, nl.nc(2)]`` and what its dimensions may be.

The simulator runs the instances one after the other; which physical core would run them does not
change what they compute.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError


class GridDim:
    """One dimension of a launch grid, with its distribution over NeuronCores."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise KernelError(
                "a grid dimension is positive",
                happened=f"a grid has a dimension of {size}",
                received=f"{size}",
            )
        self.size = size

    def __mul__(self, other: Any) -> GridDim:
        return GridDim(self.size * grid_size(other))

    __rmul__ = __mul__


def nc(size: Any) -> GridDim:
    """A dimension spread over physical NeuronCores."""
    return GridDim(grid_size(size))


def spmd_dim(*parts: Any) -> GridDim:
    """A dimension made of sub-dimensions: the product of their sizes."""
    total = 1
    for part in parts:
        total *= grid_size(part)
    return GridDim(total)


def grid_size(dim: Any) -> int:
    """The number of instances along one dimension of the grid."""
    if isinstance(dim, GridDim):
        return dim.size
    try:
        size = dim.__index__()
    except (AttributeError, TypeError):
        raise KernelError(
            "a launch grid is made of integers, nl.nc and nl.spmd_dim",
            happened=f"a grid has a dimension that is a {type(dim).__name__}",
            received=f"{dim!r} ({type(dim).__name__})",
        ) from None
    return GridDim(int(size)).size


def grid_shape(key: Any) -> tuple[int, ...]:
    """The shape of ``kernel[key]``."""
    dims = key if isinstance(key, tuple) else (key,)
    return tuple(grid_size(dim) for dim in dims)
