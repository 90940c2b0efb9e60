"""Running sums that a kernel rounds into a narrow dtype again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.errors import Location
from difftest.simulator.tile import Tile

RUNNING_SUM = "a running sum"
FREE_SUMS = 4
"""Roundings of a running sum into a narrow dtype that are counted as such: a kernel that adds a few
tensors in the dtype of its operands rounds as its contract says; one that adds up a long sum so
does not, and its further roundings count as float32's. So do those of a line that adds float32
values to what it has rounded itself, as a loop over partial sums does."""


class Chain(NamedTuple):
    """What an instruction's operands are of running sums that are rounded.

    Attributes
    ----------
    lines : that rounded them last.
    wide : whether one of the operands is float32, such as a product in PSUM.
    """

    lines: tuple[Location, ...]
    wide: bool


NO_CHAIN = Chain((), wide=False)


def chain_of(operands: Sequence[Any]) -> Chain:
    """What an instruction takes of running sums."""
    tiles = [one for one in operands if isinstance(one, Tile)]
    held = [tile.storage.exact for tile in tiles if tile.storage.exact is not None]
    lines = tuple(one.line for one in held if one.line is not None)
    return Chain(lines, wide=any(tile.dtype == FLOAT32 for tile in tiles)) if lines else NO_CHAIN
