"""In which order runs what claims to have none: iterations of ``affine_range``, programs of a grid.

A kernel that keeps its claim gives the same outputs in every order. The forward one is the
simulator's; the others are for whoever asks whether a kernel keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from difftest.simulator.errors import Location

T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """Forward, reversed, or shuffled with a seed: the programs, or the iterations of one loop.

    Attributes
    ----------
    loop : the line of the ``affine_range`` whose iterations it is about; None for the programs.
    serial : whether programs run one after the other that would take turns, those of today's
        dialect; reversed they do anyway.
    interleaved : whether programs also take turns inside, at each access to what they share: those
        of a classic grid, which otherwise run one after the other, step by step, and with a seed
        all in an order that it chooses.
    """

    loop: Location | None = None
    reversed: bool = False
    serial: bool = False
    seed: int | None = None
    interleaved: bool = False

    def arranged(self, items: Sequence[T]) -> Sequence[T]:
        """The items in this order."""
        if self.seed is not None:
            rng = np.random.default_rng((self.seed, len(items)))
            return [items[place] for place in rng.permutation(len(items))]
        return items[::-1] if self.reversed else items


FORWARD = Order()
