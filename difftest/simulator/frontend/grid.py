"""The SPMD launch grid: ``kernel[4, nl.nc(2)]`` and what its dimensions may be.

The simulator runs the instances one after the other; which physical core would run them does not
change what they compute. The trace says which it is where the launch does.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from difftest.simulator.errors import KernelError
from difftest.simulator.instructions.operands import wrong_kind


class GridDim(int):
    """One dimension of a launch grid: its size, and what of it is spread over physical cores.

    Attributes
    ----------
    parts : (size, whether its instances are on different physical cores) of each sub-dimension, the
        one that changes last first.
    """

    parts: tuple[tuple[int, bool], ...]

    def __new__(cls, *parts: tuple[int, bool]) -> GridDim:
        size = math.prod(size for size, _ in parts)
        if size < 1:
            raise KernelError(
                "a grid dimension is positive",
                happened=f"a grid has a dimension of {size}",
                received=f"{size}",
            )
        made = super().__new__(cls, size)
        made.parts = parts
        return made

    def __reduce__(self) -> tuple[type[GridDim], tuple[tuple[int, bool], ...]]:
        return GridDim, self.parts

    def __mul__(self, other: Any) -> GridDim:
        return GridDim(*self.parts, *grid_dim(other).parts)

    def __rmul__(self, other: Any) -> GridDim:
        return GridDim(*grid_dim(other).parts, *self.parts)


def nc(size: Any) -> GridDim:
    """A dimension spread over physical NeuronCores."""
    return GridDim((int(grid_dim(size)), True))


def spmd_dim(*parts: Any) -> GridDim:
    """A dimension made of sub-dimensions: the product of their sizes."""
    return GridDim(*itertools.chain.from_iterable(grid_dim(part).parts for part in parts))


def grid_dim(dim: Any) -> GridDim:
    """One dimension of the grid."""
    if isinstance(dim, GridDim):
        return dim
    try:
        size = dim.__index__()
    except (AttributeError, TypeError):
        takes = "dimensions that are integers, nl.nc or nl.spmd_dim"
        raise wrong_kind(dim, takes, "a launch grid") from None
    return GridDim((int(size), False))


def grid_shape(key: Any) -> tuple[GridDim, ...]:
    """The shape of ``kernel[key]``; equal to the tuple of its sizes."""
    dims = key if isinstance(key, tuple) else (key,)
    return tuple(grid_dim(dim) for dim in dims)


def physical_cores(grid: tuple[int, ...]) -> tuple[int, ...]:
    """The physical core of each instance in their order; empty if no dimension is spread."""
    parts = tuple(itertools.chain.from_iterable(grid_dim(dim).parts for dim in grid))
    if not any(spread for _, spread in parts):
        return ()
    found = []
    for instance in itertools.product(*(range(size) for size, _ in parts)):
        core = 0
        for index, (size, spread) in zip(instance, parts, strict=True):
            core = core * size + index if spread else core
        found.append(core)
    return tuple(found)
