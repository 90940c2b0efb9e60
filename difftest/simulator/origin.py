"""Whence elements came that nothing wrote: which tensor lacks them, and who read them first."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import Location
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import Allocation


class Origin(NamedTuple):
    """The beginning of a chain of instructions that read what nothing wrote."""

    allocation: Allocation
    """The tensor of which something was never written."""
    element: tuple[int, ...] | None
    """The first such element in that tensor's shape; None if only bytes of another dtype tell."""
    event: str
    """What an instruction did with it first: ``"read by tensor_copy"``."""
    location: Location | None
    """Its line."""

    def __str__(self) -> str:
        element = "" if self.element is None else f"element {list(self.element)} of "
        made = self.allocation.location
        born = "" if made is None else f", made at {made}"
        return f"{element}{self.allocation}{born}, {self.event} at {self.location}"


def first_element(
    allocation: Allocation, pattern: Pattern, missing: Array
) -> tuple[int, ...] | None:
    """The place in a tensor of the first element of ``pattern`` that ``missing`` has."""
    place = [int(at) for at in np.argwhere(missing)[0]] if missing.ndim else []
    flat = pattern.offset + sum(at * step for at, step in zip(place, pattern.strides, strict=True))
    if not 0 <= flat < math.prod(allocation.shape):
        return None
    return tuple(int(at) for at in np.unravel_index(flat, allocation.shape))
