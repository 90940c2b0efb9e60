"""What the rules of an instruction may know of a tile: no data, and of its place what rules ask."""

from __future__ import annotations

import contextvars
import math
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.dtypes import dtype_name
from difftest.simulator.trace import Space

Shape = tuple[int, ...]

RUNNING: contextvars.ContextVar[Any] = contextvars.ContextVar("difftest_core")
"""Where the launch that runs is found: set for its time, and no longer."""


class Descriptor(NamedTuple):
    """A tile without its data."""

    space: Space
    dtype: np.dtype[Any]
    shape: Shape
    """Partition axis first and at least two dimensions; in HBM the tile's own."""
    start: int
    """The first partition; 0 in HBM."""
    span: tuple[int, int] | None
    """First and last byte within each partition, in tensors of more than one PSUM bank."""
    role: str = ""
    """Of the instruction, if it is one's operand or destination."""
    indirect: str = ""
    """Whether indices say where it lies: "rows", or "whole" if one moves all of it."""
    index: Any = None
    """The descriptor of the one tile that says where it lies, in today's dialect."""

    @property
    def partitions(self) -> int:
        return self.shape[0]

    @property
    def free_size(self) -> int:
        """Elements in each partition."""
        return math.prod(self.shape[1:])

    @property
    def size(self) -> int:
        """Elements in all."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        # As the tile that stands there in the instruction that is issued: errors name that.
        core = RUNNING.get(None)
        issued = None if core is None else core.issued
        tile = dict(issued.roles()).get(self.role) if issued is not None else None
        return f"{list(self.shape)} {dtype_name(self.dtype)}" if tile is None else repr(tile)
