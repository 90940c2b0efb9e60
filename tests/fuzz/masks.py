"""Masks over an instruction's shape: boxes, diagonals, loop-dependent ones and plain truths."""

from __future__ import annotations

from tests.fuzz.scene import Scene, Shape
from tests.fuzz.views import AXES


def mask(scene: Scene, shape: Shape, *, box: bool = False) -> str:
    """The text of a mask over ``shape``; only a rectangular one if ``box``."""
    choices = scene.choices
    kind = choices.pick(("box", "box", "diagonal", "two", "truth", "loop"))
    if kind == "truth":
        return _truth(scene)
    grid = scene.grid_index(shape)
    axis = choices.integer(0, len(shape) - 1)
    if kind == "loop" and scene.integers:
        name, _ = choices.pick(scene.integers)
        return f"{grid}.{AXES[axis]} <= {name} + {choices.integer(0, 2)}"
    if kind == "diagonal" and not box:
        other = (axis + 1) % len(shape)
        factor = choices.pick(("", "2 * "))
        compared = choices.pick(("<=", ">", "<", ">="))
        return f"{grid}.{AXES[axis]} {compared} {factor}{grid}.{AXES[other]}"
    first = _box(scene, grid, axis, shape[axis])
    if kind == "two":
        other = choices.integer(0, len(shape) - 1)
        return f"({first}) & ({_box(scene, grid, other, shape[other])})"
    return first


def _box(scene: Scene, grid: str, axis: int, size: int) -> str:
    compared = scene.choices.pick(("<", ">=", "<=", ">", "=="))
    return f"{grid}.{AXES[axis]} {compared} {scene.choices.integer(0, size)}"


def _truth(scene: Scene) -> str:
    if scene.integers and scene.choices.chance(60):
        name, values = scene.choices.pick(scene.integers)
        return f"{name} < {scene.choices.integer(0, values)}"
    return scene.choices.pick(("True", "False"))
