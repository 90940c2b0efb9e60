"""Descriptors: the properties of a tile that an instruction's rules may check."""

from __future__ import annotations

import contextvars
import math
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.dtypes import dtype_name
from difftest.simulator.trace import Space

Shape = tuple[int, ...]

RUNNING: contextvars.ContextVar[Any] = contextvars.ContextVar("difftest_core")
"""The running launch; set only while it runs."""


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
    """The tile's role in an instruction, as an operand or a destination."""
    indirect: str = ""
    """"rows" if each row has an index, "whole" if one index moves the whole tile; otherwise empty.
    """
    index: Any = None
    """The descriptor of the tile that holds the offset, in the current dialect."""

    @property
    def partitions(self) -> int:
        return self.shape[0]

    @property
    def free_size(self) -> int:
        """Elements in each partition."""
        return math.prod(self.shape[1:])

    @property
    def size(self) -> int:
        """The total number of elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        # Errors show the tile that has this role in the current instruction.
        core = RUNNING.get(None)
        issued = None if core is None else core.issued
        tile = dict(issued.roles()).get(self.role) if issued is not None else None
        if tile is None:
            return f"{list(self.shape)} {dtype_name(self.dtype)}"
        return repr(tile)
