"""The values of a source in the domain of a spec, from simple to complex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difftest.testing.contract.spec import is_choice

RANGE, EDGES = "difftest_range", "difftest_edges"
"""Attributes of strategies of sizes: all of them, and those to which they lean."""
_MOST_VALUES = 2**16
"""The most values of a strategy of Hypothesis's own that are listed in order."""


def ordered_values(source: Any) -> Sequence[Any]:
    """Return the values of a source from simple to complex; empty if their order is unknown."""
    own = getattr(source, RANGE, source)
    if isinstance(own, range) or is_choice(own):
        return own
    inner = getattr(source, "wrapped_strategy", source)
    low = getattr(inner, "start", None)
    high = getattr(inner, "end", None)
    if isinstance(low, int) and isinstance(high, int) and high - low < _MOST_VALUES:
        return sorted(range(low, high + 1), key=lambda n: (abs(n), n < 0))
    if hasattr(inner, "filtered_strategy"):
        conditions = inner.flat_conditions
        several = ordered_values(inner.filtered_strategy)
        return [at for at in several if all(is_kept(at) for is_kept in conditions)]
    if hasattr(inner, "mapped_strategy"):
        return [inner.pack(at) for at in ordered_values(inner.mapped_strategy)]
    return ()
