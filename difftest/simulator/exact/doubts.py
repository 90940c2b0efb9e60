"""What an exact run has to say of itself: where it says less, and what it did not allow."""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.dtypes import DType
from difftest.simulator.errors import Location


class Doubt(NamedTuple):
    """Where the exact run says less than it seems, or nothing.

    Attributes
    ----------
    reason : what happened, as a clause.
    location : the kernel's line.
    lost : whether the exact run has no meaning from here on; else the machine's decision was taken
        over, and values are right for it.
    """

    reason: str
    location: Location | None
    lost: bool


class Narrowing(NamedTuple):
    """A rounding that the kernel's contract does not have, whose error counts as float32's.

    Attributes
    ----------
    name : what was rounded: an instruction's result, or a running sum.
    location : the kernel's line.
    dtype : into what.
    """

    name: str
    location: Location | None
    dtype: DType
