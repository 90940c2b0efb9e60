"""Searches and gathers within partitions, shuffles, segments, and random numbers."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.elementwise import note_zeros
from tests.fuzz.exactness import ROUGH, Quality
from tests.fuzz.masks import maybe
from tests.fuzz.operands import (
    FLOATS,
    INTEGERS,
    destination,
    dtype_of,
    elements,
    filled,
    operand,
    vector,
)
from tests.fuzz.scene import Operand, Scene, Shape
from tests.fuzz.sinks import finish


def _many(shape: Shape) -> bool:
    return elements(shape[1:]) >= 8


def max8(scene: Scene) -> Operand:
    data = operand(scene, suits=_many)
    note_zeros(scene, "max")
    extra, dtype, masked = finish(scene, (data.shape[0], 8), data.dtype, over=data.shape)
    return Operand(
        f"nisa.max8(src={data.text}{extra})",
        (data.shape[0], 8),
        dtype,
        quality=data.quality,
        masked=masked,
        opcode="nisa.max8",
    )


def _ramp(scene: Scene, dtypes: tuple[str, ...] = ("float32", "bfloat16", "int32")) -> Operand:
    """A tile without NaN, so that its largest values can be found in it."""
    return operand(scene, suits=_many, exact=True, dtypes=dtypes)


def find_index8(scene: Scene) -> Operand:
    data = _ramp(scene)
    extra = ", dtype=nl.uint16" if scene.choices.chance(20) else ""
    dtype = "uint16" if extra else "uint32"
    masked = maybe(scene, data.shape)
    text = (
        f"nisa.nc_find_index8(data={data.text}, vals=nisa.max8(src={data.text}{masked})"
        f"{extra}{masked})"
    )
    return Operand(
        text,
        (data.shape[0], 8),
        dtype,
        quality=Quality(10),
        masked=bool(masked),
        opcode="nisa.nc_find_index8",
    )


def match_replace8(scene: Scene) -> Operand:
    choices = scene.choices
    data = _ramp(scene)
    extra, dtype, _ = finish(scene, data.shape, data.dtype, masks=False)
    masked = maybe(scene, data.shape)
    if choices.chance(40):
        target = destination(scene, (data.shape[0], 8), dtype="uint32")
        scene.wrote(replace(target, masked=bool(masked)), Quality(10), "nisa.nc_match_replace8")
        extra += f", dst_idx={target.text}"
    text = (
        f"nisa.nc_match_replace8(data={data.text}, vals=nisa.max8(src={data.text}{masked}), "
        f"imm={choices.pick((-1, 0, 2.5))}{extra}{masked})"
    )
    return Operand(
        text,
        data.shape,
        dtype,
        quality=ROUGH,
        masked=bool(masked),
        opcode="nisa.nc_match_replace8",
    )


def gather_flattened(scene: Scene) -> Operand:
    choices = scene.choices
    data = operand(scene)
    count = elements(data.shape[1:])
    shape = (data.shape[0], *choices.pick(((3,), (2, 2), (1,), (5,))))
    grid = scene.grid_index(shape)
    name = scene.fresh("n")
    scene.emit(
        f"{name} = nisa.iota({choices.integer(0, 1)} * {grid}[{len(shape) - 1}] "
        f"+ {choices.integer(0, max(0, count - shape[-1]))}, dtype=nl.uint32)",
        "nisa.iota",
    )
    extra, dtype, masked = finish(scene, shape, data.dtype)
    return Operand(
        f"nl.gather_flattened({data.text}, {name}{extra})",
        shape,
        dtype,
        quality=data.quality,
        masked=masked,
        opcode="nl.gather_flattened",
    )


def _offset(scene: Scene, room: int) -> str:
    """The name of a tile that holds one offset of at most ``room``, seldom one too large."""
    name = scene.fresh("n")
    place = scene.choices.integer(0, room + 1 if scene.choices.chance(5) else room)
    scene.emit(f"{name} = nisa.memset((1, 1), {place}, dtype=nl.int32)", "nisa.memset")
    return name


def copy_from_offset(scene: Scene) -> Operand:
    """``nisa.tensor_copy_dynamic_src``: an access whose offset lies in a tile."""
    partitions, free, count = (scene.choices.pick(sizes) for sizes in ((2, 8), (5, 8), (2, 4)))
    value = filled(scene, (partitions, free), "float32", "sbuf", exact=True)
    grid = scene.grid_index((partitions, count))
    name = _offset(scene, free - count)
    masked = maybe(scene, (partitions, count))
    text = f"nisa.tensor_copy_dynamic_src({value.name}[{grid}.p, {grid}.x + {name}]{masked})"
    return Operand(
        text,
        (partitions, count),
        value.dtype,
        quality=value.quality,
        masked=bool(masked),
        opcode="nisa.tensor_copy_dynamic_src",
    )


def copy_to_offset(scene: Scene) -> None:
    """``nisa.tensor_copy_dynamic_dst``."""
    partitions, free, count = (scene.choices.pick(sizes) for sizes in ((2, 8), (5, 8), (2, 4)))
    source = operand(scene, (partitions, count))
    value = filled(scene, (partitions, free), dtype_of(scene), "sbuf", exact=True)
    grid = scene.grid_index((partitions, count))
    name = _offset(scene, free - count)
    opcode = "nisa.tensor_copy_dynamic_dst"
    scene.emit(
        f"{opcode}(dst={value.name}[{grid}.p, {grid}.x + {name}], src={source.text}"
        f"{maybe(scene, source.shape)})",
        opcode,
    )
    partly = Operand(value.name, value.shape, value.dtype, base=value, masked=True)
    scene.wrote(partly, source.quality, opcode)


def local_gather(scene: Scene) -> Operand:
    choices = scene.choices
    groups = choices.pick((1, 2))
    data = operand(scene, (16 * groups, choices.pick((4, 8))))
    per_lane = choices.pick((1, 2))
    width = choices.pick((1, 2))
    name = scene.fresh("n")
    grid = scene.grid_index((16 * groups, per_lane))
    factor = choices.integer(0, 1)
    limit = data.shape[1] - width
    scene.emit(
        f"{name} = nl.minimum(nisa.iota({factor} * {grid}.p + {grid}.x, dtype=nl.uint16), "
        f"{limit}, dtype=nl.uint16)",
        "nisa.iota",
    )
    used = 16 * per_lane
    extra = ""
    if choices.chance(40):
        used = choices.integer(1, used)
        extra = f", num_valid_indices={used}"
    masked = maybe(scene, (data.shape[0], used, width))
    return Operand(
        f"nisa.local_gather({data.text}, {name}, num_elem_per_idx={width}{extra}{masked})",
        (data.shape[0], used, width),
        data.dtype,
        quality=data.quality,
        masked=bool(masked),
        opcode="nisa.local_gather",
    )


def stream_shuffle(scene: Scene) -> None:
    choices = scene.choices
    source = operand(scene, (choices.pick((32, 16, 64, 3)), choices.pick((2, 3))))
    target = destination(scene, source.shape, dtype=source.dtype, fill=True)
    kind = choices.pick(
        (
            "[k ^ 1 for k in range(32)]",
            "list(range(32))",
            "[0] * 32",
            "[255] * 8 + list(range(24))",
            "[31 - k for k in range(32)]",
        )
    )
    scene.emit(
        f"nisa.nc_stream_shuffle(src={source.text}, dst={target.text}, shuffle_mask={kind}"
        f"{maybe(scene, target.shape)})",
        "nisa.nc_stream_shuffle",
    )
    scene.wrote(
        Operand("", (), target.dtype, base=target.base, masked=True),
        source.quality,
        "nisa.nc_stream_shuffle",
    )


def sequence_bounds(scene: Scene) -> Operand:
    choices = scene.choices
    shape = choices.pick(((1, 4), (1, 8), (1, 2, 2)))
    data = operand(scene, shape, dtypes=FLOATS if choices.chance(40) else INTEGERS)
    dtype = choices.pick(("float32", "int32"))
    text = f"nisa.sequence_bounds(segment_ids={data.text}, dtype=nl.{dtype})"
    return Operand(
        text, (shape[0], 2, *shape[1:]), dtype, quality=Quality(6), opcode="nisa.sequence_bounds"
    )


def dropout(scene: Scene) -> Operand:
    choices = scene.choices
    data = operand(scene)
    chance = choices.pick(("0.5", "0.0", "1.0"))
    if choices.chance(40):
        chance = vector(scene, data.shape[0], ("float32",)).text
    extra, dtype, masked = finish(scene, data.shape, data.dtype)
    return Operand(
        f"nisa.dropout({data.text}, {chance}{extra})",
        data.shape,
        dtype,
        quality=data.quality,
        masked=masked,
        opcode="nisa.dropout",
    )


def rand(scene: Scene) -> Operand:
    shape = scene.choices.pick(((2, 3), (4, 2, 2)))
    return Operand(f"nl.rand({shape})", shape, "float32", quality=ROUGH, opcode="nl.rand")


def random_seed(scene: Scene) -> None:
    text = str(scene.choices.integer(0, 5))
    if scene.choices.chance(40):
        text = operand(scene, (1, 1)).text
    extra = scene.choices.pick(("", "", ", mask=True", ", mask=False"))
    scene.emit(f"nl.random_seed({text}{extra})", "nl.random_seed")
