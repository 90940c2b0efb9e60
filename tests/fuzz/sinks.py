"""Destinations of results: a new name, an access of a tensor, or an update in place."""

from __future__ import annotations

from tests.fuzz.masks import maybe
from tests.fuzz.operands import DTYPES, FLOATS, destination
from tests.fuzz.scene import Scene, Shape

UPDATES = {"+=": "add", "-=": "subtract", "*=": "multiply"}


def target_text(text: str) -> str:
    """An access as the left side of an assignment."""
    return text if text.endswith("]") else f"{text}[...]"


def sink(scene: Scene, text: str, shape: Shape, opcode: str) -> None:
    """Draw where the value of an expression of ``shape`` goes, and emit the statement."""
    choices = scene.choices
    kind = choices.pick(("name", "name", "assign", "update"))
    if scene.dialect == "nki" or kind == "name" or not 2 <= len(shape) <= 4:
        name = scene.fresh("t")
        scene.emit(f"{name} = {text}", opcode)
        scene.declare(name, opcode)
    elif kind == "assign":
        target = destination(scene, shape, choices.pick(DTYPES))
        scene.emit(f"{target_text(target.text)} = {text}", opcode)
        target.value.opcode = opcode
    else:
        _update(scene, text, shape)


def _update(scene: Scene, text: str, shape: Shape) -> None:
    """``target += value`` and similar; inside a loop perhaps ``nl.loop_reduce``."""
    choices = scene.choices
    target = destination(scene, shape, choices.pick(DTYPES), fill=True)
    operator = choices.pick(tuple(UPDATES))
    if scene.integers and target.text.isidentifier() and choices.chance(50):
        dtype = f", dtype=nl.{choices.pick(FLOATS)}" if choices.chance(30) else ""
        scene.emit(
            f"{target.text} = nl.loop_reduce({text}, op=np.{UPDATES[operator]}, "
            f"loop_indices=[{scene.integers[-1][0]}]{dtype}{maybe(scene, shape)})",
            "nl.loop_reduce",
        )
    else:
        scene.emit(f"{target_text(target.text)} {operator} {text}", operator)
    target.value.opcode = operator
