"""What arrays take of this computer's memory, and whether they fit before they are made."""

from __future__ import annotations

import math
import os
import tracemalloc
from collections.abc import Callable, Iterable, Sequence

_SHARE = 2
"""A run has its inputs at least twice: as they were drawn, and as the kernel gets them."""


def too_large(arrays: Iterable[tuple[Sequence[int], int]]) -> str:
    """Why arrays of these shapes and bytes an element cannot be made here; empty if they can."""
    needed = sum(math.prod(shape) * width for shape, width in arrays)
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return ""
    if _SHARE * needed <= there:
        return ""
    return (
        f"the arrays take {needed:,} bytes ({needed / 2**30:,.3g} GiB); accepted: at most "
        f"1/{_SHARE} of the memory of this computer, {there / 2**30:,.3g} GiB"
    )


def peak_of(call: Callable[[], object]) -> int:
    """The most bytes that a call holds at one time, beside what there was."""
    traced = tracemalloc.is_tracing()  # NumPy tells it of its arrays
    (tracemalloc.reset_peak if traced else tracemalloc.start)()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()
