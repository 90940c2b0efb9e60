"""What stands between a tensor's brackets: slices, ellipses, and how errors spell them."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.index import as_integer


def slice_bounds(item: slice, size: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice over ``size`` elements; the stop may lie beyond."""
    start = 0 if item.start is None else as_integer(item.start, "slice start")
    stop = size if item.stop is None else as_integer(item.stop, "slice stop")
    step = 1 if item.step is None else as_integer(item.step, "slice step")
    if step < 1:
        raise KernelError(
            "a slice's step is positive",
            happened=f"a slice has the step {step}",
            received=spell(item),
        )
    return start, stop, step


def spell(item: object) -> str:
    """An index as the kernel writes it."""
    if isinstance(item, slice):
        parts = ["" if p is None else str(p) for p in (item.start, item.stop)]
        return ":".join(parts + ([str(item.step)] if item.step is not None else []))
    return "..." if item is Ellipsis else repr(item)


def expand_ellipsis(
    items: tuple[Any, ...], ndim: int, view: object, *, adds: bool = False
) -> tuple[Any, ...]:
    """One index for each of ``ndim`` dimensions; beside them None ``adds`` some, or is one."""
    given = sum(1 for one in items if one is not Ellipsis and not (adds and one is None))
    if given > ndim or sum(1 for item in items if item is Ellipsis) > 1:
        asked = f"[{', '.join(map(spell, items))}]"
        raise ShapeError(
            "there are no more indices than dimensions, and at most one '...'",
            happened=f"{ndim} dimensions were indexed by {asked:.60}",
            received=f"{asked} on {view!r}",
        )
    fill = (slice(None),) * (ndim - given)
    for at, item in enumerate(items):
        if item is Ellipsis:
            return items[:at] + fill + items[at + 1 :]
    return items + fill
