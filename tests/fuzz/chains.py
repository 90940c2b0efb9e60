"""Chains of views of a tensor in the current dialect, and access patterns, as text."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.fuzz.scene import Access, Scene, Shape, Value


def view_of(scene: Scene, value: Value) -> Access:
    """Draw a chain of up to three views without meaningless ones."""
    choices = scene.choices
    if choices.chance(15):
        return scene.access(f"{value.name}{_pattern(scene, value)}", value)
    made = scene.access(value.name, value)
    for _ in range(choices.integer(0, 3)):
        shape = tuple(made.tensor.shape)
        suffix = choices.pick(VIEWS)(scene, shape, value)
        if suffix:
            made = scene.access(made.text + suffix, value)
    return made


def _index(scene: Scene, shape: Shape, value: Value) -> str:
    """``t[...]`` with integers, slices, ``nl.ds`` and an ellipsis."""
    choices = scene.choices
    items = []
    for size in shape:
        kind = choices.integer(0, 5)
        start = choices.integer(0, size - 1)
        if kind == 0:
            items.append(
                str(size if scene.spoil() else choices.integer(-size, size - 1))
            )
        elif kind == 1:
            count = choices.integer(1, size - start)
            items.append(f"nl.ds({start}, {0 if scene.spoil() else count})")
        elif kind in (2, 3):
            stop = choices.integer(start + 1, size) + scene.spoil()
            step = choices.integer(1, 3)
            items.append(f"{start}:{stop}" + (f":{step}" if step > 1 else ""))
        else:
            items.append(":")
    if items[-1] == ":" and choices.chance(30):
        while items and items[-1] == ":":
            items.pop()
        items.append("...")
    return f"[{', '.join(items)}]"


def _slice(scene: Scene, shape: Shape, value: Value) -> str:
    choices = scene.choices
    dim = choices.integer(0, len(shape) - 1)
    start = choices.integer(0, shape[dim] - 1)
    end = choices.integer(start + 1, shape[dim])
    step = choices.integer(1, 2)
    return f".slice({dim}, {start}, {end}, {step})"


def _permute(scene: Scene, shape: Shape, value: Value) -> str:
    first = 0 if value.space.is_hbm else 1
    rest = list(range(first, len(shape)))
    order = list(range(first))
    while rest:
        order.append(rest.pop(scene.choices.integer(0, len(rest) - 1)))
    return f".permute({tuple(order[::-1] if scene.spoil() else order)})"


def _expand(scene: Scene, shape: Shape, value: Value) -> str:
    first = 0 if value.space.is_hbm else 1
    return (
        f".expand_dim({scene.choices.integer(first, len(shape))})"
        if len(shape) < 4
        else ""
    )


def _squeeze(scene: Scene, shape: Shape, value: Value) -> str:
    ones = [k for k in range(1, len(shape)) if shape[k] == 1]
    return (
        f".squeeze_dim({scene.choices.pick(ones)})" if ones and len(shape) > 2 else ""
    )


def _split(scene: Scene, shape: Shape, value: Value) -> str:
    dims = [k for k in range(1, len(shape)) if shape[k] % 2 == 0]
    if not dims or len(shape) > 3:
        return ""
    dim = scene.choices.pick(dims)
    first, last = scene.choices.pick([(2, shape[dim] // 2), (shape[dim] // 2, 2)])
    return f".reshape_dim({dim}, {scene.choices.pick([(first, last), (first, -1), (-1, last)])})"


def _flatten(scene: Scene, shape: Shape, value: Value) -> str:
    if len(shape) < 3:
        return ""
    first = scene.choices.integer(1, len(shape) - 2)
    return f".flatten_dims({first}, {scene.choices.integer(first, len(shape) - 1)})"


def _reshape(scene: Scene, shape: Shape, value: Value) -> str:
    free = math.prod(shape[1:])
    shapes = [(shape[0], free), (shape[0], 1, free)]
    if free % 3 == 0:
        shapes.append((shape[0], 3, free // 3))
    return f".reshape({scene.choices.pick(shapes)})"


def _rearrange(scene: Scene, shape: Shape, value: Value) -> str:
    if len(shape) != 2 or shape[1] % 2:
        return ""
    return ".rearrange(('p', ('x', 'y')), ('p', 'y', 'x'), {'y': 2})"


def _broadcast(scene: Scene, shape: Shape, value: Value) -> str:
    """Ones repeated, which a destination may not be."""
    ones = [k for k in range(1, len(shape)) if shape[k] == 1]
    return f".broadcast({scene.choices.pick(ones)}, 2)" if ones else ""


VIEWS: tuple[Callable[[Scene, Shape, Value], str], ...] = (
    _index,
    _index,
    _slice,
    _permute,
    _expand,
    _squeeze,
    _split,
    _flatten,
    _reshape,
    _rearrange,
    _broadcast,
)


def _pattern(scene: Scene, value: Value) -> str:
    """``ap`` on the whole tensor; its strides go forward and meet no element twice."""
    choices = scene.choices
    row = math.prod(value.shape[1:])
    rows = choices.integer(1, value.shape[0])
    start = choices.integer(0, value.shape[0] - rows) * row
    counts: list[list[int]] = []
    reach = 1
    step = 1
    for _ in range(choices.integer(1, 2)):
        step *= choices.integer(1, 2)
        count = choices.integer(1, max(1, (row - reach) // step + 1))
        counts.append([step, count])
        reach += step * (count - 1)
        step *= count
    start += choices.integer(0, max(0, row - reach)) + row * scene.spoil()
    given = f", {start}" if start else choices.pick(["", ", 0"])
    return f".ap({[[row, rows], *counts[::-1]]}{given})"
