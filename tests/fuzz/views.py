"""Accesses of classic tiles: slices, steps, reversed and permuted axes, reshapes, rows and columns.

An access is made in one of two directions: of a tensor that exists (:func:`view_of`), or of a
shape that an operand or a destination must have (:func:`base_for`), where the tensor that it
needs is worked out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.fuzz.scene import Access, Scene, Shape, Value

AXES = "pxyzw"


@dataclass(frozen=True)
class Walk:
    """The walk along one axis of a tensor: ``start + step * i`` for ``count`` values of i."""

    size: int
    start: str
    step: int
    count: int

    def sliced(self) -> str:
        if self.start == "0" and self.step == 1 and self.count == self.size:
            return ":"
        reach = (self.count - 1) * self.step + 1
        number = self.start.isdigit()
        start = self.start if number else f"({self.start})"
        stop = str(int(self.start) + reach) if number else f"{start} + {reach}"
        return f"{start}:{stop}" + (f":{self.step}" if self.step != 1 else "")

    def dynamic(self) -> str:
        """``nl.ds`` where it can be spelled so."""
        return self.sliced() if self.step != 1 else f"nl.ds({self.start}, {self.count})"

    def indexed(self, index: str) -> str:
        factor = "" if abs(self.step) == 1 else f"{abs(self.step)} * "
        if self.start == "0" and self.step > 0:
            return f"{factor}{index}"
        if self.step > 0:
            return f"{factor}{index} + {self.start}"
        return f"{self.start} - {factor}{index}"


def walk(
    scene: Scene, size: int, count: int | None = None, *, negative: bool = False
) -> Walk:
    """Draw a walk inside an axis of ``size``; its length is ``count``, or drawn."""
    choices = scene.choices
    if count is None:
        count = size if choices.chance(50) else choices.integer(1, size)
    longest = (size - 1) // (count - 1) if count > 1 else 1
    step = (
        choices.integer(1, min(3, longest)) if longest > 1 and choices.chance(30) else 1
    )
    room = size - 1 - (count - 1) * step
    start = choices.integer(0, room)
    if negative and count > 1 and choices.chance(40):
        return Walk(size, str(start + (count - 1) * step), -step, count)
    for name, values in scene.integers:
        if values > 1 and room >= values - 1 and choices.chance(60):
            stride = room // (values - 1) if choices.chance(50) else 1
            start = choices.integer(0, room - stride * (values - 1))
            text = name if stride == 1 else f"{stride} * {name}"
            return Walk(size, text if start == 0 else f"{text} + {start}", step, count)
    return Walk(size, str(start), step, count)


def widened(scene: Scene, count: int) -> int:
    """The size of an axis with room for ``count`` elements, and often for no more."""
    choices = scene.choices
    if choices.chance(45):
        return count
    return max(count, min(128, count * choices.integer(1, 3) + choices.integer(0, 2)))


def sliced(
    scene: Scene, value: Value, walks: list[Walk], *, drop: tuple[int, ...] = ()
) -> Access:
    """An access by slices; axes in ``drop`` are taken at an integer."""
    dynamic = scene.choices.chance(20)
    items = [
        each.start if axis in drop else each.dynamic() if dynamic else each.sliced()
        for axis, each in enumerate(walks)
    ]
    return scene.access(f"{value.name}[{', '.join(items)}]", value)


def indexed(
    scene: Scene, value: Value, walks: list[Walk], order: tuple[int, ...]
) -> Access:
    """An access by index expressions; axis k of the result walks axis ``order[k]`` of the base."""
    shape = tuple(walks[axis].count for axis in order)
    if scene.choices.chance(25):
        names = [_arange(shape, k) for k in range(len(shape))]
    else:
        grid = scene.grid_index(shape)
        names = [f"{grid}.{AXES[k]}" for k in range(len(shape))]
    items = [each.indexed(names[order.index(axis)]) for axis, each in enumerate(walks)]
    return scene.access(f"{value.name}[{', '.join(items)}]", value)


def _arange(shape: Shape, axis: int) -> str:
    places = [":" if k == axis else "None" for k in range(len(shape))]
    return f"nl.arange({shape[axis]})[{', '.join(places)}]"


def _free_order(scene: Scene, ndim: int) -> tuple[int, ...]:
    """A permutation of the axes that keeps the partitions first."""
    rest = list(range(1, ndim))
    order = [0]
    while rest:
        order.append(rest.pop(scene.choices.integer(0, len(rest) - 1)))
    return tuple(order)


def view_of(scene: Scene, value: Value) -> Access:
    """An access of a tensor that exists."""
    choices = scene.choices
    shape = value.shape
    if value.blocks:
        return _block_of(scene, value)
    kind = choices.pick(
        ["whole", "whole", "sliced", "indexed", "integer", "reshape", "row", "lower"]
    )
    if (
        kind == "whole"
        or not 2 <= len(shape) <= 4
        or (kind == "integer" and len(shape) == 2)
    ):
        return scene.access(value.name, value)
    if kind == "indexed":
        walks = [walk(scene, size, negative=k > 0) for k, size in enumerate(shape)]
        return indexed(scene, value, walks, _free_order(scene, len(shape)))
    if kind == "reshape":
        return _reshaped(scene, value)
    drop: tuple[int, ...] = ()
    if kind == "integer":
        drop = (choices.integer(1, len(shape) - 1),)
    if kind == "lower":
        drop = choices.pick(((1,), (0,), (0, 1)) if len(shape) == 2 else ((0,), (0, 1)))
    row = choices.integer(0, 1) if kind == "row" else None
    walks = [
        walk(scene, size, 1 if k in (*drop, row) else size if kind == "row" else None)
        for k, size in enumerate(shape)
    ]
    return sliced(scene, value, walks, drop=drop)


def _block_of(scene: Scene, value: Value) -> Access:
    text = ", ".join(walk(scene, size, 1).start for size in value.shape[: value.blocks])
    rest = value.shape[value.blocks :]
    if scene.choices.chance(40):
        grid = scene.grid_index(rest)
        text += "".join(f", {grid}.{AXES[k]}" for k in range(len(rest)))
    return scene.access(f"{value.name}[{text}]", value)


def _reshaped(scene: Scene, value: Value) -> Access:
    partitions = value.shape[0]
    free = math.prod(value.shape[1:])
    first = scene.choices.pick([k for k in range(1, free + 1) if free % k == 0])
    shape = (
        (partitions, free) if first in (1, free) else (partitions, first, free // first)
    )
    if scene.choices.chance(20):
        return scene.access(
            f"{value.name}.reshape({(partitions, 1, *shape[1:])})", value
        )
    if shape == value.shape and scene.choices.chance(60):
        return scene.access(f"nl.expand_dims({value.name}, axis=-1)", value)
    return scene.access(f"{value.name}.reshape({shape})", value)


@dataclass(frozen=True)
class Wanted:
    """A tensor to be created, and how its access will look once it has a name."""

    shape: Shape
    kind: str
    order: tuple[int, ...] = ()


KINDS = (
    "whole",
    "whole",
    "indexed",
    "sliced",
    "reversed",
    "flat",
    "reshape",
    "block",
    "integer",
)
KINDS = (*KINDS, "lower")


def base_for(scene: Scene, shape: Shape, *, reading: bool) -> Wanted:
    """Draw a tensor that has an access of ``shape``."""
    choices = scene.choices
    kind = choices.pick((*KINDS, "broadcast", "newaxis") if reading else KINDS)
    order = tuple(range(len(shape)))
    if kind in ("indexed", "sliced"):
        order = _free_order(scene, len(shape)) if kind == "indexed" else order
        sizes = [shape[order.index(k)] for k in range(len(shape))]
        return Wanted(tuple(widened(scene, size) for size in sizes), kind, order)
    if kind in ("flat", "reshape") and len(shape) > 2:
        return Wanted((shape[0], math.prod(shape[1:])), kind)
    if kind == "newaxis" and len(shape) > 2 and shape[1] == 1:
        return Wanted((shape[0], *shape[2:]), kind)
    if kind == "block" and len(shape) < 4:
        return Wanted((choices.integer(1, 3), *shape), kind)
    if kind == "integer" and len(shape) < 4:
        return Wanted((shape[0], choices.integer(1, 3), *shape[1:]), kind)
    if kind == "broadcast" and max(shape[1:]) > 1:
        axis = choices.pick([k for k in range(1, len(shape)) if shape[k] > 1])
        return Wanted(
            tuple(1 if k == axis else size for k, size in enumerate(shape)), kind
        )
    if kind == "reversed":
        return Wanted(shape, kind, order)
    if kind == "lower" and shape[-1] == 1 and len(shape) == 2:
        return Wanted((shape[0], choices.integer(1, 3)), kind)
    return Wanted(shape, "whole")


def access(scene: Scene, value: Value, shape: Shape, wanted: Wanted) -> Access:
    """The access of ``shape`` that ``wanted`` was made for."""
    kind = wanted.kind
    name = value.name
    if kind == "indexed":
        walks = [
            walk(scene, size, shape[wanted.order.index(axis)], negative=axis > 0)
            for axis, size in enumerate(wanted.shape)
        ]
        return indexed(scene, value, walks, wanted.order)
    if kind in ("sliced", "lower"):
        walks = [walk(scene, *pair) for pair in zip(wanted.shape, shape, strict=True)]
        return sliced(scene, value, walks, drop=(1,) if kind == "lower" else ())
    if kind == "reversed":
        walks = [Walk(size, "0", 1, size) for size in shape[:-1]]
        walks.append(Walk(shape[-1], str(shape[-1] - 1), -1, shape[-1]))
        return indexed(scene, value, walks, wanted.order)
    if kind == "flat":
        grid = scene.grid_index(shape)
        steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        terms = [f"{steps[k]} * {grid}.{AXES[k]}" for k in range(1, len(shape))]
        return scene.access(f"{name}[{grid}.p, {' + '.join(terms)}]", value)
    if kind == "integer":
        walks = [
            walk(scene, size, 1 if k == 1 else size)
            for k, size in enumerate(wanted.shape)
        ]
        return sliced(scene, value, walks, drop=(1,))
    if kind == "block":
        return _block_of(scene, value)
    texts = {
        "reshape": f"{name}.reshape({shape})",
        "newaxis": f"{name}[:, None]",
        "broadcast": f"{name}.broadcast_to({shape})",
    }
    return scene.access(texts.get(kind, name), value)
