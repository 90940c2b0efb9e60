"""The Tensor Engine: products, accumulation in PSUM, and transposes between partitions."""

from __future__ import annotations

from tests.fuzz.exactness import Quality, product, total
from tests.fuzz.masks import maybe, of_operand, of_product
from tests.fuzz.operands import FLOATS, destination, operand
from tests.fuzz.scene import Operand, Scene, Shape, Value
from tests.fuzz.sinks import target_text
from tests.fuzz.views import whole


def _operands(scene: Scene) -> tuple[Operand, Operand, Quality] | None:
    """Two tiles of one contraction whose product is exact; None if theirs would not be."""
    choices = scene.choices
    depth = choices.pick((2, 1, 3, 4, 16))
    rows, columns = choices.pick((2, 1, 3, 8)), choices.pick((3, 1, 2, 8))
    moving_shape: Shape = (depth, columns)
    if choices.chance(20):
        moving_shape = (depth, columns, 2)
    spaces = ("sbuf",) if choices.chance(80) else ("sbuf", "psum")
    left = operand(scene, (depth, rows), spaces=spaces, dtypes=FLOATS, exact=True)
    right = operand(scene, moving_shape, spaces=("sbuf",), dtypes=FLOATS, exact=True)
    quality = total(product(left.quality, right.quality), depth)
    return (left, right, quality) if quality.exact else None


def _shape(left: Operand, right: Operand) -> Shape:
    rows = 1
    for size in left.shape[1:]:
        rows *= size
    return (rows, *right.shape[1:])


def matmul(scene: Scene) -> Operand | None:
    found = _operands(scene)
    if found is None:
        return None
    left, right, quality = found
    shape = _shape(left, right)
    masked = of_product(scene, left.shape[0], shape[0], shape[1:])
    texts = of_operand(scene, left.text, left.shape), of_operand(scene, right.text, right.shape)
    of_some = bool(masked) or texts != (left.text, right.text)
    if scene.choices.chance(30):
        return Operand(
            f"nl.matmul({texts[0]}, {texts[1]}, transpose_x=True{masked})",
            shape,
            "float32",
            "psum",
            quality,
            masked=of_some,
            opcode="nl.matmul",
        )
    return Operand(
        f"nisa.nc_matmul({texts[0]}, {texts[1]}{masked})",
        shape,
        "float32",
        "psum",
        quality,
        masked=of_some,
        opcode="nisa.nc_matmul",
    )


def accumulate(scene: Scene) -> None:
    """``psum += nisa.nc_matmul(...)``, once or in a loop."""
    choices = scene.choices
    found = _operands(scene)
    if found is None:
        return
    left, right, quality = found
    shape = _shape(left, right)
    dtype = "float32" if choices.chance(85) else "bfloat16"
    target = destination(scene, shape, spaces=("psum",), dtype=dtype, fill=choices.chance(70))
    if target.base is None or target.base.space != "psum":
        name = scene.fresh("p")
        scene.emit(f"{name} = nl.zeros({shape}, nl.{dtype}, buffer=nl.psum)", "nl.zeros")
        target = whole(scene.declare(Value(name, shape, dtype, "psum", Quality(0))))
    if not target.quality.exact:
        return
    masked = of_product(scene, left.shape[0], shape[0], shape[1:])
    text = f"{target_text(target)} += nisa.nc_matmul({left.text}, {right.text}{masked})"
    if choices.chance(50):
        count = choices.integer(1, 3)
        scene.loop(
            scene.fresh("k"), "affine_range", count, lambda: scene.emit(text, "nisa.nc_matmul")
        )
        quality = total(quality, count)
    else:
        scene.emit(text, "nisa.nc_matmul")
    scene.wrote(
        target,
        total(
            Quality(
                max(quality.magnitude or 0, target.quality.magnitude or 0),
                max(quality.fraction, target.quality.fraction),
            ),
            8,
        ),
        "nisa.nc_matmul",
    )


def transpose(scene: Scene) -> Operand:
    choices = scene.choices
    data = operand(scene)
    free = 1
    for size in data.shape[1:]:
        free *= size
    shape = (free, data.shape[0])
    name = choices.pick(("nisa.nc_transpose", "nl.transpose"))
    if name == "nl.transpose" and len(data.shape) == 2:
        masked = maybe(scene, data.shape)
        return Operand(
            f"nl.transpose({data.text}{masked})",
            shape,
            data.dtype,
            quality=data.quality,
            masked=bool(masked),
            opcode=name,
        )
    extra, space = "", "psum" if data.space == "sbuf" else "sbuf"
    if choices.chance(25) and max(shape) <= 128:
        extra, space = ", engine=nisa.vector_engine", "sbuf"
    masked = maybe(scene, data.shape)
    return Operand(
        f"nisa.nc_transpose({data.text}{extra}{masked})",
        shape,
        data.dtype,
        space,
        data.quality,
        masked=bool(masked),
        opcode="nisa.nc_transpose",
    )
