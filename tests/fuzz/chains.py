"""Chains of views of a tensor of today's dialect, and access patterns, as text and shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.fuzz.scene import Operand, Scene, Shape, Value


def view(scene: Scene, value: Value, *, whole: bool = False) -> Operand:
    """A chain of views of a tensor; of a destination, each element once."""
    choices = scene.choices
    text, shape = value.name, value.shape
    covers = True
    if not whole and choices.chance(15):
        found = _pattern(scene, value)
        if found is not None:
            return found
    for _ in range(choices.integer(0, 0 if whole else 3)):
        step = VIEWS[choices.integer(0, len(VIEWS) - 1)](scene, shape, value)
        if step is None:
            continue
        suffix, after = step
        covers = covers and math.prod(after) == math.prod(shape)
        text, shape = text + suffix, after
    return Operand(
        text, shape, value.dtype, value.space, value.quality, value, covers, opcode=value.opcode
    )


def _index(scene: Scene, shape: Shape, value: Value) -> Any:
    """``t[...]`` with integers, slices, ``nl.ds`` and an ellipsis."""
    choices, on_chip = scene.choices, value.space != "hbm"
    items, kept = [], []
    for axis, size in enumerate(shape):
        kind = choices.integer(0, 5)
        if kind == 0:
            number = choices.integer(-size, size - 1)
            if scene.spoil():
                number = size
            items.append(str(number))
            if axis == 0 and on_chip:
                kept.append(1)
        elif kind == 1:
            start = choices.integer(0, size - 1)
            count = choices.integer(1, size - start)
            items.append(f"nl.ds({start}, {0 if scene.spoil() else count})")
            kept.append(count)
        elif kind in (2, 3):
            start = choices.integer(0, size - 1)
            stop = choices.integer(start + 1, size) + (1 if scene.spoil() else 0)
            step = choices.integer(1, 3)
            items.append(f"{start}:{stop}" + (f":{step}" if step > 1 else ""))
            kept.append(-(-(stop - start) // step))
        else:
            items.append(":")
            kept.append(size)
    least = 2 if on_chip and len(shape) > 1 else 1
    kept += [1] * (least - len(kept))
    if items[-1] == ":" and choices.chance(30):
        while items and items[-1] == ":":
            items.pop()
        items.append("...")
    return f"[{', '.join(items)}]", tuple(kept)


def _slice(scene: Scene, shape: Shape, value: Value) -> Any:
    choices = scene.choices
    dim = choices.integer(0, len(shape) - 1)
    start = choices.integer(0, shape[dim] - 1)
    end, step = choices.integer(start + 1, shape[dim]), choices.integer(1, 2)
    after = (*shape[:dim], -(-(end - start) // step), *shape[dim + 1 :])
    return f".slice({dim}, {start}, {end}, {step})", after


def _permute(scene: Scene, shape: Shape, value: Value) -> Any:
    first = 0 if value.space == "hbm" else 1
    rest = list(range(first, len(shape)))
    order = [*range(first)]
    while rest:
        order.append(rest.pop(scene.choices.integer(0, len(rest) - 1)))
    if scene.spoil():
        order = order[::-1]
    return f".permute({tuple(order)})", tuple(shape[k] for k in order)


def _expand(scene: Scene, shape: Shape, value: Value) -> Any:
    if len(shape) > 3:
        return None
    dim = scene.choices.integer(0 if value.space == "hbm" else 1, len(shape))
    return f".expand_dim({dim})", (*shape[:dim], 1, *shape[dim:])


def _squeeze(scene: Scene, shape: Shape, value: Value) -> Any:
    ones = [k for k in range(1, len(shape)) if shape[k] == 1]
    if not ones or len(shape) < 3:
        return None
    dim = scene.choices.pick(ones)
    return f".squeeze_dim({dim})", (*shape[:dim], *shape[dim + 1 :])


def _split(scene: Scene, shape: Shape, value: Value) -> Any:
    dims = [k for k in range(1, len(shape)) if shape[k] % 2 == 0]
    if not dims or len(shape) > 3:
        return None
    dim = scene.choices.pick(dims)
    sizes = scene.choices.pick([(2, shape[dim] // 2), (shape[dim] // 2, 2)])
    spelled = scene.choices.pick([sizes, (sizes[0], -1), (-1, sizes[1])])
    return f".reshape_dim({dim}, {spelled})", (*shape[:dim], *sizes, *shape[dim + 1 :])


def _flatten(scene: Scene, shape: Shape, value: Value) -> Any:
    if len(shape) < 3:
        return None
    first = scene.choices.integer(1, len(shape) - 2)
    last = scene.choices.integer(first, len(shape) - 1)
    merged = math.prod(shape[first : last + 1])
    return f".flatten_dims({first}, {last})", (*shape[:first], merged, *shape[last + 1 :])


def _reshape(scene: Scene, shape: Shape, value: Value) -> Any:
    free = math.prod(shape[1:])
    shapes = [(shape[0], free), (shape[0], 1, free)]
    if free % 3 == 0:
        shapes.append((shape[0], 3, free // 3))
    chosen = scene.choices.pick(shapes)
    return f".reshape({chosen})", chosen


def _rearrange(scene: Scene, shape: Shape, value: Value) -> Any:
    if len(shape) != 2 or shape[1] % 2:
        return None
    sizes = (shape[0], shape[1] // 2, 2)
    return ".rearrange(('p', ('x', 'y')), ('p', 'y', 'x'), {'y': 2})", (sizes[0], 2, sizes[1])


VIEWS: tuple[Callable[[Scene, Shape, Value], Any], ...] = (
    *(_index, _index, _slice, _permute, _expand, _squeeze, _split, _flatten, _reshape),
    _rearrange,
)


def _pattern(scene: Scene, value: Value) -> Operand | None:
    """``ap`` on the whole tensor; its strides go forward and meet no element twice."""
    choices = scene.choices
    row = math.prod(value.shape[1:])
    rows = choices.integer(1, value.shape[0])
    first = choices.integer(0, value.shape[0] - rows)
    counts = []
    left, step = row, 1
    for _ in range(choices.integer(1, 2)):
        step *= choices.integer(1, 2)
        most = left // step
        if most < 1:
            break
        count = choices.integer(1, most)
        counts.append([step, count])
        step *= count
    reach = sum(s * (n - 1) for s, n in counts) + 1
    if reach > row:
        return None
    start = first * row + choices.integer(0, row - reach)
    if scene.spoil():
        start += row
    pattern = [[row, rows], *counts[::-1]]
    shape = tuple(n for _, n in pattern)
    given = f", {start}" if start else choices.pick(["", ", 0"])
    text = f"{value.name}.ap({pattern}{given})"
    covers = math.prod(shape) == math.prod(value.shape)
    return Operand(
        text, shape, value.dtype, value.space, value.quality, value, covers, opcode=value.opcode
    )
