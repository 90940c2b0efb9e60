"""In which order runs what claims to have none: iterations of ``affine_range``, programs of a grid.

A kernel that keeps its claim gives the same outputs in every order. The forward one is the
simulator's; the others are for whoever asks whether a kernel keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """Forward, reversed, or shuffled with a seed.

    Attributes
    ----------
    interleaved : whether programs also take turns inside, at each access to what they share: those
        of a classic grid, which otherwise run one after the other, step by step, and with a seed
        all in an order that it chooses.
    """

    reversed: bool = False
    seed: int | None = None
    interleaved: bool = False

    def arranged(self, items: Sequence[T]) -> Sequence[T]:
        """The items in this order."""
        if self.seed is not None:
            rng = np.random.default_rng((self.seed, len(items)))
            return [items[place] for place in rng.permutation(len(items))]
        return items[::-1] if self.reversed else items


FORWARD = Order()
