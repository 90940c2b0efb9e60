"""A view of no elements, which a kernel may make and not use.

A kernel that divides rows among cores makes one on a core that gets none, and then takes no step of
its loop (aws-neuron/nki-library 2.29, ``experimental/loss/cross_entropy.py``, with one row).
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

import numpy as np

from difftest.simulator.errors import Location, ShapeError, kernel_location
from difftest.simulator.frontend.nki.constants import MemoryRegion
from difftest.simulator.frontend.nki.objects import NKIObject
from difftest.simulator.memory import Shape

_METHODS = (
    *("ap", "broadcast", "expand_dim", "flatten_dims", "get_pattern", "indirect", "is_contiguous"),
    *("is_indirect", "permute", "rearrange", "reinterpret_cast", "reshape", "reshape_dim"),
    *("select", "slice", "squeeze_dim", "vector_select", "view"),
)
"""What a tensor can do, and a view of no elements cannot."""


class EmptyView(NKIObject):
    """A part of a tensor in HBM in which a dimension has no element.

    Attributes
    ----------
    shape, dtype, buffer : as those of a tensor.
    """

    __slots__ = ("_made", "buffer", "dtype", "shape")

    def __init__(self, shape: Shape, dtype: np.dtype[Any], buffer: MemoryRegion) -> None:
        self.shape, self.dtype, self.buffer = shape, dtype, buffer
        self._made: Location | None = kernel_location()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """0."""
        return 0

    def __getattr__(self, name: str) -> NoReturn:
        if name not in _METHODS:
            raise AttributeError(f"{name} of {self!r}")
        raise self._used(f".{name}")

    def __getitem__(self, key: Any) -> NoReturn:
        raise self._used("an index")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise self._used("an assignment")

    def _used(self, what: str) -> ShapeError:
        return ShapeError(
            "what is used selects at least one element",
            happened=f"{what} was asked of a view of no elements",
            received=f"{what} of {self!r}",
            remedy="leave the program's part out where it has no rows",
        )

    def __repr__(self) -> str:
        made = self._made
        where = "" if made is None else f" at {os.path.basename(made.file)}:{made.line}"
        return f"{list(self.shape)} without elements, made{where}"
