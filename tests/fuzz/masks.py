"""Masks over an instruction's shape: boxes, diagonals, loop-dependent ones and plain truths."""

from __future__ import annotations

from tests.fuzz.scene import Scene, Shape
from tests.fuzz.views import AXES


def maybe(scene: Scene, shape: Shape, percent: int = 20) -> str:
    """The argument ``mask=`` over ``shape`` as text, or nothing."""
    return f", mask={mask(scene, shape)}" if scene.choices.chance(percent) else ""


def of_product(scene: Scene, depth: int, rows: int, columns: Shape) -> str:
    """The text of a mask of a matrix product: each of its axes in its own shape."""
    choices = scene.choices
    parts = []
    ones = ", None" * len(columns)
    if choices.chance(50):
        limit = choices.integer(1, depth)
        parts.append(f"(nl.arange({depth})[:, None, None{ones[6:]}] < {limit})")
    if choices.chance(50):
        parts.append(
            f"(nl.arange({rows})[None, :{ones}] >= {choices.integer(0, rows - 1)})"
        )
    if not parts or choices.chance(30):
        inner = "None, " * (len(columns) - 1)
        parts.append(
            f"(nl.arange({columns[-1]})[None, None, {inner}:] < {choices.integer(0, columns[-1])})"
        )
    return " & ".join(parts)


def mask(scene: Scene, shape: Shape) -> str:
    """The text of a mask over ``shape``."""
    choices = scene.choices
    kind = choices.pick(("box", "box", "diagonal", "two", "truth", "loop"))
    if kind == "truth" or not shape:
        return _truth(scene)
    grid = scene.grid_index(shape)
    axis = choices.integer(0, len(shape) - 1)
    if kind == "loop" and scene.integers:
        name, _ = choices.pick(scene.integers)
        return f"{grid}.{AXES[axis]} <= {name} + {choices.integer(0, 2)}"
    if kind == "diagonal":
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
