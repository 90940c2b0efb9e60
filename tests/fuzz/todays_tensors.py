"""The tensors of today's dialect's kernels: arguments, new ones, and views of them."""

from __future__ import annotations

import math
from typing import Any

from tests.fuzz.chains import view
from tests.fuzz.exactness import Quality
from tests.fuzz.program import Input
from tests.fuzz.scene import Operand, Scene, Shape, Value

DTYPES = ("float32", "bfloat16", "float16", "int32", "uint8", "float8_e5m2", "int16")
FLOATS = ("float32", "bfloat16", "float16", "float8_e5m2")
SIZES = {"float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}


def size_of(dtype: str) -> int:
    return SIZES.get(dtype, 1)


# -- tensors ---------------------------------------------------------------------------------------


def shape_of(scene: Scene, most: int = 8) -> Shape:
    choices = scene.choices
    rank = choices.integer(2, 3)
    return tuple(choices.integer(1, most) for _ in range(rank))


def argument(scene: Scene) -> Value:
    """An array of the host."""
    choices = scene.choices
    shape, dtype = shape_of(scene), choices.pick(DTYPES)
    quality = Quality(3, 0)
    name = scene.fresh("a")
    scene.inputs.append(Input(name, shape, dtype, f"np.arange({math.prod(shape)}) % 7", True))
    return scene.declare(
        Value(name, shape, dtype, "hbm", quality, argument=True, opcode="argument")
    )


def fresh(
    scene: Scene, shape: Shape, dtype: str, space: str = "sbuf", *, written: bool = False
) -> Value:
    """A new tensor on chip."""
    name = scene.fresh("t")
    buffer = "" if space == "sbuf" else f", buffer=nl.{space}"
    call = "zeros" if written else "ndarray"
    scene.emit(f"{name} = nl.{call}({shape}, nl.{dtype}{buffer})", f"nl.{call}")
    return scene.declare(
        Value(name, shape, dtype, space, Quality(0, 0), readable=written, opcode=f"nl.{call}")
    )


def source(
    scene: Scene, *, spaces: tuple[str, ...] = ("sbuf", "psum"), **wanted: Any
) -> Operand | None:
    """A view of a tensor that can be read."""
    found = scene.suitable(spaces=spaces, **wanted)
    if not found:
        return None
    value = found[scene.choices.integer(0, min(len(found), 4) - 1)]
    return view(scene, value)


def destination(scene: Scene, shape: Shape, dtype: str, space: str = "sbuf") -> Operand:
    """A view of as many elements: of a new tensor, in that shape or another."""
    choices = scene.choices
    if choices.chance(30):
        wanted = (shape[0], math.prod(shape[1:]))
    elif choices.chance(20):
        wanted = (shape[0], 1, *shape[1:]) if len(shape) < 4 else shape
    else:
        wanted = shape
    if scene.spoil():
        wanted = (*wanted[:-1], wanted[-1] + 1)
    if choices.chance(25) and len(wanted) == 2 and space != "psum":
        wider = fresh(scene, (wanted[0], wanted[1] + 2), dtype, space, written=True)
        text = f"{wider.name}[:, 1:{wanted[1] + 1}]"
        return Operand(text, wanted, dtype, space, wider.quality, wider)
    value = fresh(scene, wanted, dtype, space)
    return Operand(value.name, wanted, dtype, space, value.quality, value, True)


def same_elements(scene: Scene, like: Operand, **wanted: Any) -> Operand | None:
    """Another tensor's view with the partitions and the elements in each of one that there is."""
    free = math.prod(like.shape[1:])
    found = [
        value
        for value in scene.suitable(**wanted)
        if value.shape[0] == like.shape[0] and math.prod(value.shape[1:]) == free
    ]
    if not found:
        return like if scene.choices.chance(50) else None
    value = found[scene.choices.integer(0, min(len(found), 3) - 1)]
    return view(scene, value, whole=True)


def written(scene: Scene, target: Operand, quality: Quality, opcode: str) -> None:
    scene.wrote(target, quality, opcode)
