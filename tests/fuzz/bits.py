"""Views of another dtype: the bits of a tensor read, or written, as something else.

The modes agree on every bit of integers and of exact floats, but not on those of a NaN that was
computed. So bits are read of integers and of exact floats alone, what is written through a view
counts as rough, and neither happens in a loop, whose next turn would read what this one wrote.
"""

from __future__ import annotations

from tests.fuzz.exactness import INTEGER_BITS, ROUGH
from tests.fuzz.operands import DTYPES, operand
from tests.fuzz.scene import Operand, Scene, Shape, Value

SIZES = {
    "float32": 4,
    "tfloat32": 4,
    "int32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
}
"""Bytes of an element; 1 of those that are not here."""


def _can_be_seen(scene: Scene, value: Value) -> bool:
    """Whether both modes have the same bits in it."""
    if value.blocks or not 2 <= len(value.shape) <= 4 or value.quality.loose:
        return False
    return value.dtype in INTEGER_BITS or (value.quality.exact and scene.zero_sign)


def _view(scene: Scene, value: Value) -> tuple[str, Shape, str, bool] | None:
    """The text of a view of a value, its shape and dtype, and whether it is all of the value."""
    choices = scene.choices
    dtype = choices.pick(DTYPES)
    old, new = SIZES.get(value.dtype, 1), SIZES.get(dtype, 1)
    free, last = value.shape[:-1], value.shape[-1]
    step = max(1, new // old)
    if last % step and not scene.spoil():
        return None
    low, high, text = 0, last, value.name
    if choices.chance(40):
        low = step * choices.integer(0, last // step - 1) if last >= step else 0
        high = min(last, low + step * choices.integer(1, max(1, (last - low) // step)))
        places = ", ".join([*[":"] * len(free), f"{low}:{high}"])
        text = f"{value.name}[{places}]"
    shape = (*free, (high - low) * old // new)
    return f"{text}.view(nl.{dtype})", shape, dtype, high - low == last


def reinterpreted(scene: Scene) -> Operand | None:
    """A copy of a tensor's bits as another dtype, on chip or loaded from HBM."""
    known = [v for v in scene.values if v.readable and _can_be_seen(scene, v)]
    if not known or len(scene.bodies) > 1:
        return None
    value = scene.choices.pick(known[::-1])
    view = _view(scene, value)
    if view is None:
        return None
    text, shape, dtype, _ = view
    opcode = "nl.load" if value.space == "hbm" else "nisa.tensor_copy"
    return Operand(f"{opcode}({text})", shape, dtype, quality=ROUGH, opcode="view")


def written_through(scene: Scene) -> None:
    """Other bits for a tensor on chip, or a part of it, written through a view."""
    known = [
        value
        for value in scene.values
        if value.space in ("sbuf", "psum") and value.writable and _can_be_seen(scene, value)
    ]
    if not known or len(scene.bodies) > 1:
        return
    value = scene.choices.pick(known[::-1])
    view = _view(scene, value)
    if view is None:
        return
    text, shape, _, covers = view
    source = operand(scene, shape)
    scene.emit(f"{text}[...] = {source.text}", "view")
    value.quality, value.opcode = ROUGH, "view"
    value.readable = value.readable or covers
