"""The error for who uses what nothing wrote."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import UnwrittenError


def unwritten_error(tile: Any, missing: Array, *, returned: bool = False) -> UnwrittenError:
    """The error for reading, or returning, a tile of which these elements were never written."""
    first = tuple(int(i) for i in np.argwhere(missing)[0]) if missing.ndim else ()
    storage, gaps = tile.storage, tile.storage.gaps
    origin, made = gaps and gaps.origin, storage.allocation.location
    rule = "an instruction reads only what was written before"
    happened = "an instruction read what nothing had written"
    so_far = "never"
    remedy = (
        "write the tensor first (nl.zeros, nl.load, an instruction's result), or read only the "
        "part that is written"
    )
    if returned:
        rule, happened = "a kernel writes what it returns", "the kernel returned what nothing had"
        happened += " written"
    elif storage.programs > 1:
        rule = "what another program writes may be read after the two have met, no sooner"
        happened, so_far = "a program read what no program had written yet", "not yet"
        remedy = (
            "if another program writes it, a barrier is missing: let them meet between the two "
            "(nisa.core_barrier on this tensor; a classic grid has none)"
        )
    return UnwrittenError(
        rule,
        happened=happened,
        received=f"{int(missing.sum())} of {missing.size} elements of {tile!r} were {so_far} "
        f"written, the first at {list(first)}"
        + ("" if made is None else f"; it was made at {made}")
        + ("" if origin is None else f"; they came from {origin}"),
        location=gaps.lost_at if returned and gaps else None,
        remedy=remedy,
    )
