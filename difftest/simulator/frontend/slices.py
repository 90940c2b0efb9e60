"""``nl.ds``, which both dialects have."""

from __future__ import annotations

from difftest.simulator.errors import ShapeError
from difftest.simulator.index import as_integer


class DynamicSlice:
    """``nl.ds(start, size)``: ``size`` elements from ``start``, at least one."""

    __slots__ = ("size", "start")

    def __init__(self, start: int, size: int) -> None:
        self._select(start, size, 1)

    @classmethod
    def or_none(cls, start: int, size: int) -> DynamicSlice:
        """The same of ``size`` elements or of none."""
        made = cls.__new__(cls)
        made._select(start, size, 0)
        return made

    def _select(self, start: int, size: int, least: int) -> None:
        self.start = as_integer(start, "nl.ds with start")
        self.size = as_integer(size, "nl.ds with size")
        if self.size < least:
            raise ShapeError(
                "nl.ds selects at least one element" if least else "nl.ds has a size of 0 or more",
                happened=f"nl.ds selected {self.size} elements",
                received=f"size {self.size}",
            )
