"""Basic indexing: integers, slices, ``nl.ds``, None and '...' between a kernel's brackets."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.plain.indices import Shape, Slice, integer, is_integer


def fill(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Whole axes for '...' and for those that no item names."""
    named = sum(1 for item in items if item is not None and item is not Ellipsis)
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if named > ndim or len(dots) > 1:
        raise ShapeError(
            "no more indices than dimensions",
            happened=f"a tensor of {ndim} dimensions was indexed by {named} items",
            received=f"{items} of {ndim}",
        )
    at = dots[0] if dots else len(items)
    return items[:at] + (slice(None),) * (ndim - named) + items[at + 1 :]


def indices_of(item: Any, size: int) -> range:
    """The indices that a slice or ``nl.ds`` names: beyond the end too, and never wrapped."""
    if isinstance(item, Slice):
        return range(item.start, item.start + item.size)
    if not isinstance(item, slice):
        raise KernelError(
            "a tensor is indexed with integers and slices",
            happened=f"a tensor was indexed with a {type(item).__name__}",
            received=f"{item!r:.80}",
        )
    start = 0 if item.start is None else integer(item.start, "a slice's start")
    stop = size if item.stop is None else integer(item.stop, "a slice's stop")
    step = 1 if item.step is None else integer(item.step, "a slice's step")
    if step < 1:
        raise KernelError(
            "a slice's step is positive",
            happened=f"a slice has the step {step}",
            received=f"{item}",
        )
    if stop <= start:
        raise ShapeError(
            "a slice selects at least one element",
            happened="a slice selected no element",
            received=f"{item} of {size}",
        )
    return range(start, stop, step)


def lengths(items: tuple[Any, ...], shape: Shape) -> Shape:
    """The result's shape of a basic index."""
    lengths, axis = [], 0
    for item in items:
        if item is None:
            lengths.append(1)
            continue
        if not is_integer(item):
            lengths.append(len(indices_of(item, shape[axis])))
        axis += 1
    return tuple(lengths)
