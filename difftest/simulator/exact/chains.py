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
    products : lines that rounded a product of tiles last.
    multiplies : whether it makes such a product.
    """

    lines: tuple[Location, ...]
    wide: bool
    products: tuple[Location, ...] = ()
    multiplies: bool = False

    def loops(self, line: Location | None, *, adds: bool) -> bool:
        """Whether a line adds to what it has rounded itself, or multiplies it."""
        return (adds and line in self.lines) or (self.multiplies and line in self.products)


NO_CHAIN = Chain((), wide=False)


def chain_of(operands: Sequence[Any], multiplies: bool = False) -> Chain:
    """What an instruction takes of running sums and products."""
    tiles = [one for one in operands if isinstance(one, Tile)]
    held = [tile.storage.exact for tile in tiles if tile.storage.exact is not None]
    lines = tuple(one.line for one in held if one.line is not None)
    if not (lines or multiplies):
        return NO_CHAIN
    products = tuple(one.product for one in held if one.product is not None)
    return Chain(lines, any(tile.dtype == FLOAT32 for tile in tiles), products, multiplies)
