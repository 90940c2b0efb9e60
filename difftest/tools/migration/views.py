"""Rewrite subscripts with index grids as slices and views of the current dialect."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from difftest.simulator.frontend.levels import GONE
from difftest.tools.migration.indices import (
    ONE,
    ZERO,
    GridAxis,
    GridIndex,
    Grids,
    MaskBox,
    Term,
)
from difftest.tools.migration.rules import NOT_AFFINE, NotMechanicalError


@dataclass
class _Key:
    """The new index between the brackets, and the dimensions of the result.

    Attributes
    ----------
    items : an integer or a slice for each dimension of the tensor.
    places : the place of each remaining dimension, in order, after splitting.
    dims : the number of remaining dimensions before splitting.
    splits : the sizes that a dimension is split into, by dimension.
    """

    items: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    dims: int = 0
    splits: dict[int, list[Term]] = field(default_factory=dict)


def view(
    base: str, items: Sequence[ast.expr], grids: Grids, box: MaskBox
) -> tuple[str, list[Term]]:
    """Return ``base[items]`` as a masked view, and its shape without the mask."""
    if not all(map(_goes_with_grids, items)):
        raise NotMechanicalError(GONE["nl.mgrid"])
    indices = [grids.parse(item) for item in items]
    ndim = max(index.ndim for index in indices)
    shape = dict.fromkeys(range(-ndim, 0), ONE)
    places: list[int] = []
    for index in indices:
        for place, axis in index.axes.items():
            places.append(place)
            shape[place] = axis.size
    if len(set(places)) != len(places):
        raise NotMechanicalError(NOT_AFFINE)
    free = sorted(shape.keys() - places)
    key = _Key()
    for index in indices:
        if index.axes:
            _cut(index, key, box)
        else:
            _pick(index.offset, key, free, places)
    return _shaped(base, key, free, ndim), list(shape.values())


def _goes_with_grids(item: ast.expr) -> bool:
    """Return whether an index keeps its meaning next to grids. Slices and new axes do not."""
    if isinstance(item, ast.Constant):
        return type(item.value) is int
    return not isinstance(item, ast.Slice)


def whole(base: str, shape: Sequence[Term] | None, box: MaskBox) -> str:
    """Return the masked part of a tile, ``tile[0:count, :]``. Dimensions of size 1 stay whole."""
    items = []
    for place in range(-box.ndim, 0):
        size: Term | None = None
        if shape is not None and len(shape) >= -place:
            size = shape[place]
        if box.limits(place) and size != ONE:
            start, stop = box.range(place, ZERO, ONE, box.sizes[place])
            items.append(f"{start.text()}:{stop.text()}")
        else:
            items.append(":")
    return f"{base}[{', '.join(items)}]"


def _cut(index: GridIndex, key: _Key, box: MaskBox) -> None:
    """Add the slice for an index of one or more axes to ``key``."""
    axes = _nested(index)
    (outer, first), *_ = axes
    last = axes[-1][1]
    if any(box.limits(place) for place, _ in axes[1:]):
        raise NotMechanicalError(NOT_AFFINE)
    if len(axes) == 1:
        start, stop = box.range(outer, index.offset, first.step, first.size)
    else:
        count_from, count_to = box.range(outer, ZERO, ONE, first.size)
        start = index.offset + count_from * first.step
        stop = index.offset + count_to * first.step
        others = [axis.size for _, axis in axes[1:]]
        key.splits[key.dims] = [count_to - count_from, *others]
    if last.step == ZERO and last.size != ONE:  # one element, repeated
        raise NotMechanicalError(NOT_AFFINE)
    step = "" if last.step in (ZERO, ONE) else f":{last.step.text()}"
    key.items.append(f"{start.text()}:{stop.text()}{step}")
    key.places += [place for place, _ in axes]
    key.dims += 1


def _nested(index: GridIndex) -> list[tuple[int, GridAxis]]:
    """Return the axes of an index, outermost first.

    The extent of each axis must equal the step of the axis before it.
    """
    rest = dict(index.axes)
    if len(rest) == 1:
        return list(rest.items())
    ordered: list[tuple[int, GridAxis]] = []
    step = ONE
    while rest:
        place = next((place for place, axis in rest.items() if axis.step == step), None)
        if place is None:
            raise NotMechanicalError(NOT_AFFINE)
        axis = rest.pop(place)
        ordered.insert(0, (place, axis))
        step = axis.step * axis.size
    return ordered


def _pick(number: Term, key: _Key, free: list[int], places: Sequence[int]) -> None:
    """Add an integer to ``key``, as a slice of length 1 where the shape has a dimension of 1."""
    before = max(key.places, default=-len(places) - len(free) - 1)
    after = min(set(places).difference(key.places), default=0)
    fitting = next((place for place in free if before < place < after), None)
    if fitting is None:
        key.items.append(number.text())
        return
    free.remove(fitting)
    key.places.append(fitting)
    key.dims += 1
    key.items.append(f"{number.text()}:{(number + ONE).text()}")


def _shaped(base: str, key: _Key, free: Sequence[int], ndim: int) -> str:
    """Return the slices, followed by the views that restore the order of the dimensions."""
    text = f"{base}[{', '.join(key.items)}]"
    for dim in sorted(key.splits, reverse=True):
        sizes = ", ".join(size.text() for size in key.splits[dim])
        text += f".reshape_dim({dim}, ({sizes}))"
    if key.places != sorted(key.places):
        order = [key.places.index(place) for place in sorted(key.places)]
        text += f".permute(({', '.join(map(str, order))}))"
    for place in sorted(free):
        text += f".expand_dim({place + ndim})"
    return text
