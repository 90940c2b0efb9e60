"""``nl.ds``, which both dialects have."""

from __future__ import annotations

from typing import ClassVar

from difftest.simulator.errors import ShapeError
from difftest.simulator.index import as_integer


class DynamicSlice:
    """``nl.ds(start, size)``: ``size`` elements from ``start``, :attr:`least` or more of them."""

    __slots__ = ("size", "start")

    least: ClassVar[int] = 1

    def __init__(self, start: int, size: int) -> None:
        self.start = as_integer(start, "nl.ds with start")
        self.size = as_integer(size, "nl.ds with size")
        if self.size < self.least:
            raise ShapeError(
                "nl.ds selects at least one element"
                if self.least
                else "nl.ds has a size of 0 or more",
                happened=f"nl.ds selected {self.size} elements",
                received=f"size {self.size}",
            )


class MaybeEmptySlice(DynamicSlice):
    """That of today's dialect, where a view in HBM may have no elements."""

    __slots__ = ()

    least = 0
