"""The values of a source in the domain of a spec."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from difftest.simulator.machine import TRN2
from difftest.testing.contract.spec import is_choice

RANGE, EDGES = "difftest_range", "difftest_edges"
"""Attributes of strategies of sizes: all of them, and those to which they lean."""
HARDWARE_LIMITS = (TRN2.partitions, TRN2.gemm_moving_fmax)
"""Sizes at which tiles end: where kernels go wrong."""


def values_in(source: Any) -> Sequence[Any]:
    """Return the values of a sequence or of a strategy of sizes; empty for other sources."""
    own = getattr(source, RANGE, source)
    return own if isinstance(own, range) or is_choice(own) else ()


@lru_cache(maxsize=512)
def edges_of(low: int, high: int, near: Collection[int] = ()) -> tuple[int, ...]:
    """Return the sizes in a range that are near one of its ends or a limit of the hardware."""
    ends = (low, high, *HARDWARE_LIMITS)
    sizes = {end + step for end in ends for step in (-1, 0, 1)} | set(near)
    return tuple(sorted(size for size in sizes if low <= size <= high))
