"""Selections by predicate, by range and by index expression; copies under a predicate."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.elementwise import note_zeros, promoted, registers
from tests.fuzz.exactness import ROUGH, either
from tests.fuzz.masks import maybe
from tests.fuzz.operands import FLOATS, destination, number, operand, vector
from tests.fuzz.scene import Operand, Scene
from tests.fuzz.sinks import finish
from tests.fuzz.views import AXES

PREDICATES = ("uint8", "uint16", "uint32", "bool_")
SELECT_PREDICATES = ("uint8", "int8", "int16", "uint16", "bool_")
SELECTED = ("float32", "float16", "bfloat16", "uint8", "int8", "float8_e5m2")


def where(scene: Scene) -> Operand:
    choices = scene.choices
    condition = operand(scene)
    sides = []
    for _ in range(2):
        if choices.chance(35):
            sides.append((*number(scene), None))
        else:
            tile = operand(scene, condition.shape)
            sides.append((tile.text, tile.quality, tile.dtype))
    known = [side[2] for side in sides if side[2] is not None]
    dtype = promoted(*known) if len(known) == 2 else known[0] if known else "float32"
    quality = either(sides[0][1], sides[1][1])
    extra, dtype, masked = finish(scene, condition.shape, dtype)
    if not known and "dtype=" not in extra:
        dtype = "float32"
        extra = ", dtype=nl.float32" + extra
    text = f"nl.where({condition.text}, {sides[0][0]}, {sides[1][0]}{extra})"
    return Operand(text, condition.shape, dtype, quality=quality, masked=masked, opcode="nl.where")


def affine_select(scene: Scene) -> Operand:
    choices = scene.choices
    data = operand(scene)  # of PSUM the compiler makes a copy, with a note
    grid = scene.grid_index(data.shape)
    axis = choices.integer(0, len(data.shape) - 1)
    other = choices.integer(0, len(data.shape) - 1)
    compared = choices.pick(("<=", ">", "<", ">="))
    predicate = f"{grid}.{AXES[axis]} {compared} {choices.integer(0, 3)}"
    if choices.chance(50):
        predicate = f"2 * {grid}.{AXES[axis]} {compared} {grid}.{AXES[other]} + 1"
    text, quality = number(scene)
    extra, dtype, masked = finish(scene, data.shape, data.dtype)
    return Operand(
        f"nisa.affine_select(pred={predicate}, on_true_tile={data.text}, "
        f"on_false_value={text}{extra})",
        data.shape,
        dtype,
        quality=either(data.quality, quality),
        masked=masked,
        opcode="nisa.affine_select",
    )


def range_select(scene: Scene) -> Operand:
    choices = scene.choices
    data = operand(scene, dtypes=FLOATS)
    low, high = (vector(scene, data.shape[0], ("float32",)) for _ in range(2))
    extra, dtype, masked = finish(scene, data.shape, data.dtype)
    note_zeros(scene, "max")
    if choices.chance(40):
        extra += f", reduce_res={registers(scene, data, ROUGH)}, reduce_op=nl.max"
        if choices.chance(60):
            command = choices.pick(("reset_reduce", "reduce", "reset"))
            extra += f", reduce_cmd=nisa.reduce_cmd.{command}"
    if choices.chance(30):
        extra += f", range_start={choices.integer(0, 5)}"
    comparisons = ("greater_equal", "less", "equal", "less_equal", "greater")
    text = (
        f"nisa.range_select(on_true_tile={data.text}, comp_op0=nl.{choices.pick(comparisons)}, "
        f"comp_op1=nl.{choices.pick(comparisons[1:])}, bound0={low.text}, bound1={high.text}, "
        f"on_false_value=nl.fp32.min{extra})"
    )
    return Operand(
        text, data.shape, dtype, quality=ROUGH, masked=masked, opcode="nisa.range_select"
    )


def select_reduce(scene: Scene) -> None:
    choices = scene.choices
    true = operand(scene, dtypes=SELECTED)
    spaces = ("sbuf",) if true.space == "psum" else ("sbuf", "psum")
    predicate = operand(scene, true.shape, dtypes=SELECT_PREDICATES, spaces=spaces)
    false, quality = number(scene)
    if choices.chance(40):
        column = vector(scene, true.shape[0])
        false, quality = column.text, column.quality
    target = destination(scene, true.shape)
    note_zeros(scene, "max")
    extra = ""
    if choices.chance(40):
        command = choices.pick(("reset_reduce", "reduce"))
        extra = (
            f", reduce_res={registers(scene, true, ROUGH)}, reduce_op=nl.max, "
            f"reduce_cmd=nisa.reduce_cmd.{command}"
        )
    if choices.chance(25):
        extra += ", reverse_pred=True"
    masked = maybe(scene, target.shape)
    scene.emit(
        f"nisa.select_reduce(dst={target.text}, predicate={predicate.text}, "
        f"on_true={true.text}, on_false={false}{extra}{masked})",
        "nisa.select_reduce",
    )
    left_out = replace(target, masked=bool(masked))
    scene.wrote(left_out, either(true.quality, quality), "nisa.select_reduce")


def copy_predicated(scene: Scene) -> None:
    choices = scene.choices
    source = operand(scene)
    predicate = operand(
        scene,
        source.shape,
        dtypes=PREDICATES,
        spaces=("sbuf",) if source.space == "psum" else ("sbuf", "psum"),
    )
    shape = source.shape
    if choices.chance(15):
        shape = (shape[0], 1, *shape[1:]) if len(shape) < 4 else shape
    elif choices.chance(15) and len(shape) > 2:
        shape = (shape[0], shape[1] * shape[2], *shape[3:])
    target = destination(scene, shape, dtype=source.dtype, fill=choices.chance(85))
    text, quality = source.text, source.quality
    if choices.chance(30):
        text, quality = number(scene)
    extra = ", reverse_pred=True" if choices.chance(25) else ""
    extra += maybe(scene, target.shape)
    scene.emit(
        f"nisa.tensor_copy_predicated(src={text}, dst={target.text}, "
        f"predicate={predicate.text}{extra})",
        "nisa.tensor_copy_predicated",
    )
    partly = Operand(target.text, target.shape, target.dtype, base=target.base, masked=True)
    scene.wrote(partly, quality, "nisa.tensor_copy_predicated")
