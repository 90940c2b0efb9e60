"""Where an instruction's result goes: a new name, an access of a tensor, or an update in place."""

from __future__ import annotations

from tests.fuzz.exactness import ROUGH, either, product, total
from tests.fuzz.masks import mask, maybe
from tests.fuzz.operands import FLOATS, destination, dtype_of
from tests.fuzz.scene import Operand, Scene, Shape, Value

UPDATES = {"+=": "add", "-=": "subtract", "*=": "multiply"}


def finish(
    scene: Scene,
    shape: Shape,
    dtype: str,
    *,
    masks: bool = True,
    loose: bool = False,
    over: Shape | None = None,
) -> tuple[str, str, bool]:
    """The arguments ``dtype=`` and ``mask=`` as text, the result's dtype, and whether it is masked.

    ``over`` is what the mask covers, if not ``shape``.
    """
    choices = scene.choices
    text = ""
    if loose and dtype not in FLOATS:
        dtype = "float32"
        text += f", dtype=nl.{dtype}"
    elif choices.chance(25):
        dtype = dtype_of(scene, FLOATS if loose else None)
        text += f", dtype=nl.{dtype}"
    masked = bool(masks) and choices.chance(22)
    if masked:
        text += f", mask={mask(scene, over or shape)}"
    return text, dtype, masked


def target_text(target: Operand) -> str:
    """An access as the left side of an assignment."""
    return target.text if target.text.endswith("]") else f"{target.text}[...]"


def sink(scene: Scene, result: Operand) -> None:
    """Draw where an expression's value goes, and emit the statement."""
    choices = scene.choices
    kind = choices.pick(("assign", "name", "name", "update"))
    if len(result.shape) < 2 or len(result.shape) > 4:
        kind = "name"
    if result.opcode == "=" and kind == "name":
        kind = "assign"  # a name would be the same tensor, not a copy
    if kind == "assign":
        _assign(scene, result)
    elif kind == "update" and not result.quality.loose:
        _update(scene, result)
    else:
        quality = ROUGH if result.masked and not result.quality.loose else result.quality
        name = scene.fresh("t")
        scene.emit(f"{name} = {result.text}", result.opcode)
        scene.declare(
            Value(
                name,
                result.shape,
                result.dtype,
                result.space,
                quality.rounded(result.dtype),
                opcode=result.opcode,
            )
        )


def _assign(scene: Scene, result: Operand) -> None:
    dtype = None
    if result.quality.loose:
        dtype = scene.choices.pick(("float32", result.dtype, "bfloat16"))
    target = destination(scene, result.shape, dtype=dtype)
    scene.emit(f"{target_text(target)} = {result.text}", result.opcode)
    value = target.base
    scene.wrote(
        Operand(
            target.text,
            target.shape,
            target.dtype,
            base=value,
            covers=target.covers,
            masked=result.masked,
        ),
        result.quality,
        result.opcode,
    )
    if value is not None and not value.readable and not scene.integers and not result.masked:
        scene.declare(
            Value(
                target_text(target),
                target.shape,
                value.dtype,
                value.space,
                value.quality,
                writable=False,
                opcode=result.opcode,
            )
        )


def _update(scene: Scene, result: Operand) -> None:
    """``target += value`` and kin; inside a loop perhaps ``nl.loop_reduce``."""
    target = destination(scene, result.shape, fill=True)
    if target.quality.loose:
        return
    operator = scene.choices.pick(tuple(UPDATES))
    reduced = scene.integers and target.text.isidentifier() and scene.choices.chance(50)
    if reduced:
        name, _ = scene.integers[-1]
        dtype = f", dtype=nl.{scene.choices.pick(FLOATS)}" if scene.choices.chance(30) else ""
        scene.emit(
            f"{target.text} = nl.loop_reduce({result.text}, op=np.{UPDATES[operator]}, "
            f"loop_indices=[{name}]{dtype}{maybe(scene, result.shape)})",
            "nl.loop_reduce",
        )
    else:
        scene.emit(f"{target_text(target)} {operator} {result.text}", operator)
    if scene.integers:
        quality = ROUGH  # as often as the loop runs
    elif operator == "*=":
        quality = product(target.quality, result.quality)
    else:
        quality = total(either(target.quality, result.quality), 2)
    scene.wrote(target, quality, operator)
