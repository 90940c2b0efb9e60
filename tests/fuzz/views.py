"""Accesses of tiles: slices, steps, reversed and permuted axes, reshapes, rows and columns.

An access is made in one of two directions: of a tensor that exists (:func:`view_of`), or of a
shape that an operand or a destination must have (:func:`base_for`), where the tensor that it
needs is worked out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tests.fuzz.scene import Operand, Scene, Shape, Value

AXES = "pxyzw"


@dataclass(frozen=True)
class Walk:
    """How one axis of a tensor is walked: ``start + step * i`` for ``count`` values of i."""

    size: int
    start: str
    step: int
    count: int
    fixed: bool
    """The start does not depend on a loop."""

    @property
    def whole(self) -> bool:
        return self.count == self.size and abs(self.step) == 1 and self.fixed

    def sliced(self) -> str:
        if self.whole and self.step == 1:
            return ":"
        start = self.start if self.start.isdigit() else f"({self.start})"
        stop = f"{start} + {(self.count - 1) * self.step + 1}"
        if self.start.isdigit():
            stop = str(int(self.start) + (self.count - 1) * self.step + 1)
        return f"{start}:{stop}" + (f":{self.step}" if self.step != 1 else "")

    def dynamic(self) -> str:
        """``nl.ds`` where it can be spelled so."""
        return self.sliced() if self.step != 1 else f"nl.ds({self.start}, {self.count})"

    def indexed(self, index: str) -> str:
        factor = "" if abs(self.step) == 1 else f"{abs(self.step)} * "
        sign = "-" if self.step < 0 else "+"
        if self.start == "0" and self.step > 0:
            return f"{factor}{index}"
        if self.step > 0:
            return f"{factor}{index} + {self.start}"
        return f"{self.start} {sign} {factor}{index}"


def walk(scene: Scene, size: int, count: int | None = None, *, negative: bool = False) -> Walk:
    """A walk inside an axis of ``size``; ``count`` values of it, or as many as are drawn."""
    choices = scene.choices
    if count is None:
        count = size if choices.chance(50) else choices.integer(1, size)
    longest = (size - 1) // (count - 1) if count > 1 else 1
    step = choices.integer(1, min(3, longest)) if longest > 1 and choices.chance(30) else 1
    room = size - 1 - (count - 1) * step
    start = choices.integer(0, room)
    if negative and count > 1 and choices.chance(40):
        return Walk(size, str(start + (count - 1) * step), -step, count, True)
    for name, values in scene.integers:
        if values > 1 and room >= values - 1 and choices.chance(60):
            stride = room // (values - 1) if choices.chance(50) else 1
            start = choices.integer(0, room - stride * (values - 1))
            text = name if stride == 1 else f"{stride} * {name}"
            return Walk(size, text if start == 0 else f"{text} + {start}", step, count, False)
    return Walk(size, str(start), step, count, True)


def widened(scene: Scene, count: int, limit: int = 128) -> int:
    """The size of an axis with room for ``count`` elements, and often for no more."""
    choices = scene.choices
    if choices.chance(45):
        return count
    step = choices.integer(1, 3)
    return max(count, min(limit, count * step + choices.integer(0, 2)))


def _operand(value: Value, text: str, shape: Shape, covers: bool) -> Operand:
    return Operand(text, shape, value.dtype, value.space, value.quality, value, covers)


def whole(value: Value) -> Operand:
    return _operand(value, value.name, value.shape, True)


def sliced(scene: Scene, value: Value, walks: list[Walk], *, drop: tuple[int, ...] = ()) -> Operand:
    """An access by slices; axes in ``drop`` are taken at an integer."""
    dynamic = scene.choices.chance(20)
    items = []
    for axis, each in enumerate(walks):
        if axis in drop:
            items.append(each.start)
        else:
            items.append(each.dynamic() if dynamic else each.sliced())
    shape = tuple(each.count for axis, each in enumerate(walks) if axis not in drop)
    covers = all(each.whole for each in walks)
    return _operand(value, f"{value.name}[{', '.join(items)}]", shape, covers)


def indexed(scene: Scene, value: Value, walks: list[Walk], order: tuple[int, ...]) -> Operand:
    """An access by index expressions; axis k of the result walks axis ``order[k]`` of the base."""
    shape = tuple(walks[axis].count for axis in order)
    covers = all(each.whole for each in walks)
    if scene.choices.chance(25):
        names = [_arange(shape, k) for k in range(len(shape))]
    else:
        grid = scene.grid_index(shape)
        names = [f"{grid}.{AXES[k]}" for k in range(len(shape))]
    items = [each.indexed(names[order.index(axis)]) for axis, each in enumerate(walks)]
    return _operand(value, f"{value.name}[{', '.join(items)}]", shape, covers)


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


def view_of(scene: Scene, value: Value, *, reading: bool = True) -> Operand:
    """An access of a tensor that exists."""
    choices = scene.choices
    if value.blocks:
        return _block_of(scene, value, value.blocks)
    if len(value.shape) < 2 or len(value.shape) > 4:
        return whole(value)
    kind = choices.pick(
        ["whole", "whole", "sliced", "indexed", "integer", "reshape", "row", "lower"]
    )
    if kind == "sliced":
        return sliced(scene, value, [walk(scene, size) for size in value.shape])
    if kind == "indexed":
        walks = [walk(scene, value.shape[0])]
        walks += [walk(scene, size, negative=True) for size in value.shape[1:]]
        return indexed(scene, value, walks, _free_order(scene, len(value.shape)))
    if kind == "integer" and len(value.shape) > 2:
        axis = choices.integer(1, len(value.shape) - 1)
        walks = [walk(scene, size, 1 if k == axis else None) for k, size in enumerate(value.shape)]
        return sliced(scene, value, walks, drop=(axis,))
    if kind == "reshape":
        return _reshaped(scene, value)
    if kind == "lower":
        return _lower(scene, value)
    if kind == "row":
        axis = choices.integer(0, 1)
        walks = [walk(scene, size, 1 if k == axis else size) for k, size in enumerate(value.shape)]
        return sliced(scene, value, walks)
    return whole(value)


def _lower(scene: Scene, value: Value) -> Operand:
    """One row, one column or one element at integers; instructions see at least [P, 1]."""
    drop = scene.choices.pick(((1,), (0,), (0, 1)) if len(value.shape) == 2 else ((0,), (0, 1)))
    walks = [walk(scene, size, 1 if k in drop else None) for k, size in enumerate(value.shape)]
    found = sliced(scene, value, walks, drop=drop)
    if len(value.shape) == 2 and drop == (1,):
        shape = (walks[0].count, 1)
    else:
        shape = (1, *found.shape) if found.shape else (1, 1)
    return replace(found, shape=shape)


def _block_of(scene: Scene, value: Value, blocks: int) -> Operand:
    walks = [walk(scene, size, 1) for size in value.shape[:blocks]]
    text = ", ".join(each.start for each in walks)
    rest = value.shape[blocks:]
    if scene.choices.chance(40):
        grid = scene.grid_index(rest)
        text += "".join(f", {grid}.{AXES[k]}" for k in range(len(rest)))
    covers = all(each.whole for each in walks)
    return _operand(value, f"{value.name}[{text}]", rest, covers)


def _reshaped(scene: Scene, value: Value) -> Operand:
    partitions, free = value.shape[0], math.prod(value.shape[1:])
    factors = [k for k in range(1, free + 1) if free % k == 0]
    first = scene.choices.pick(factors)
    shape = (partitions, free) if first in (1, free) else (partitions, first, free // first)
    if scene.choices.chance(20):
        shape = (*shape[:1], 1, *shape[1:])
        text = f"{value.name}.reshape({shape})"
    elif shape == value.shape and scene.choices.chance(60):
        shape = (*shape, 1)
        text = f"nl.expand_dims({value.name}, axis=-1)"
    else:
        text = f"{value.name}.reshape({shape})"
    return _operand(value, text, shape, True)


@dataclass(frozen=True)
class Wanted:
    """A tensor to be created, and how its access will look once it has a name."""

    shape: Shape
    kind: str
    order: tuple[int, ...] = ()
    block: int = 0
    """Blocks in front of the partitions."""


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
    "lower",
)


def base_for(scene: Scene, shape: Shape, *, reading: bool) -> Wanted:
    """A tensor of which some access has ``shape``."""
    choices = scene.choices
    kind = choices.pick((*KINDS, "broadcast", "newaxis") if reading else KINDS)
    order = tuple(range(len(shape)))
    if kind == "indexed":
        order = _free_order(scene, len(shape))
        return Wanted(
            tuple(widened(scene, shape[order.index(k)]) for k in order_axes(order)), kind, order
        )
    if kind == "sliced":
        return Wanted(tuple(widened(scene, size) for size in shape), kind)
    if kind in ("flat", "reshape") and len(shape) > 2:
        return Wanted((shape[0], math.prod(shape[1:])), kind)
    if kind == "newaxis" and len(shape) > 2 and shape[1] == 1:
        return Wanted((shape[0], *shape[2:]), kind)
    if kind == "block" and len(shape) < 4:
        return Wanted((choices.integer(1, 3), *shape), kind, block=1)
    if kind == "integer" and len(shape) < 4:
        return Wanted((shape[0], choices.integer(1, 3), *shape[1:]), kind)
    if kind == "broadcast" and max(shape[1:]) > 1:
        axis = choices.pick([k for k in range(1, len(shape)) if shape[k] > 1])
        return Wanted(tuple(1 if k == axis else size for k, size in enumerate(shape)), kind)
    if kind == "reversed":
        return Wanted(shape, kind, order)
    if kind == "lower" and shape[-1] == 1 and len(shape) == 2:
        return Wanted((shape[0], choices.integer(1, 3)), kind)
    return Wanted(shape, "whole")


def order_axes(order: tuple[int, ...]) -> range:
    return range(len(order))


def access(scene: Scene, value: Value, shape: Shape, wanted: Wanted) -> Operand:
    """The access of ``shape`` that ``wanted`` was made for."""
    kind = wanted.kind
    if kind == "indexed":
        walks = [
            walk(scene, size, shape[wanted.order.index(axis)], negative=axis > 0)
            for axis, size in enumerate(wanted.shape)
        ]
        return indexed(scene, value, walks, wanted.order)
    if kind == "sliced":
        return sliced(
            scene, value, [walk(scene, *pair) for pair in zip(wanted.shape, shape, strict=True)]
        )
    if kind == "lower":
        walks = [walk(scene, *pair) for pair in zip(wanted.shape, shape, strict=True)]
        return replace(sliced(scene, value, walks, drop=(1,)), shape=shape)
    if kind == "reversed":
        walks = [Walk(size, "0", 1, size, True) for size in shape[:-1]]
        walks.append(Walk(shape[-1], str(shape[-1] - 1), -1, shape[-1], True))
        return indexed(scene, value, walks, tuple(range(len(shape))))
    if kind == "flat":
        grid = scene.grid_index(shape)
        terms = [
            f"{math.prod(shape[k + 1 :])} * {grid}.{AXES[k]}" for k in range(1, len(shape) - 1)
        ]
        terms.append(f"{grid}.{AXES[len(shape) - 1]}")
        return _operand(value, f"{value.name}[{grid}.p, {' + '.join(terms)}]", shape, True)
    if kind == "reshape":
        return _operand(value, f"{value.name}.reshape({shape})", shape, True)
    if kind == "newaxis":
        return _operand(value, f"{value.name}[:, None]", shape, True)
    if kind == "broadcast":
        return _operand(value, f"{value.name}.broadcast_to({shape})", shape, True)
    if kind == "block":
        return _block_of(scene, value, wanted.block)
    if kind == "integer":
        walks = [walk(scene, size, 1 if k == 1 else size) for k, size in enumerate(wanted.shape)]
        return sliced(scene, value, walks, drop=(1,))
    return whole(value)
