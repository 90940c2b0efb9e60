"""DMA: loads, stores, copies, gathers and scatters, transposes; and the dense index."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.exactness import ROUGH, Quality, either, total
from tests.fuzz.masks import mask, maybe
from tests.fuzz.operands import FLOATS, INTEGERS, destination, new_input, operand, shape_of
from tests.fuzz.program import Line
from tests.fuzz.scene import Operand, Scene, Shape, Value
from tests.fuzz.sinks import finish
from tests.fuzz.views import AXES, access, base_for, view_of


def _in_hbm(scene: Scene, shape: Shape, dtype: str) -> Value:
    """A tensor of HBM to write to, an old one if one has the shape."""
    known = [v for v in scene.values if v.space == "hbm" and v.writable and v.shape == shape]
    if known and scene.choices.chance(50):
        return known[-1]
    if dtype != "tfloat32" and scene.choices.chance(25):
        argument = new_input(scene, shape, dtype, mutable=True)
        scene.kept.append(scene.declare(argument))
        return argument
    name = scene.fresh("h")
    # Tensors of HBM stand at the top, where each instance of a grid creates the same ones.
    text = f"{name} = nl.ndarray({shape}, nl.{dtype}, buffer=nl.shared_hbm)"
    scene.bodies[0].insert(0, Line(text, "nl.ndarray"))
    value = Value(name, shape, dtype, "hbm", Quality(0), readable=False)
    scene.declare(value)
    scene.kept.append(value)
    return value


def _hbm_target(scene: Scene, shape: Shape, dtype: str) -> Operand:
    wanted = base_for(scene, shape, reading=False)
    return access(scene, _in_hbm(scene, wanted.shape, dtype), shape, wanted)


def load(scene: Scene) -> Operand:
    """``nl.load`` of a part of an argument, or of a tensor of HBM written before."""
    choices = scene.choices
    known = [v for v in scene.values if v.space == "hbm" and v.readable and not v.quality.loose]
    if known and choices.chance(50):
        source = view_of(scene, choices.pick(known))
    else:
        shape = shape_of(scene)
        wanted = base_for(scene, shape, reading=True)
        dtype = choices.pick((*FLOATS[:3], *INTEGERS, "float8_e4m3", "bool_"))
        value = scene.declare(new_input(scene, wanted.shape, dtype))
        source = access(scene, value, shape, wanted)
    extra, dtype, masked = finish(scene, source.shape, source.dtype)
    return Operand(
        f"nl.load({source.text}{extra})",
        source.shape,
        dtype,
        quality=source.quality,
        masked=masked,
        opcode="nl.load",
    )


def load_beyond(scene: Scene) -> Operand:
    """A load whose index leaves its tensor and whose mask brings it back in."""
    choices = scene.choices
    shape = (choices.pick((2, 3, 8)), choices.pick((4, 5, 8)))
    beyond = choices.integer(1, 3)
    value = new_input(scene, shape, choices.pick(("float32", "int32", "bfloat16")))
    grid = scene.grid_index(shape)
    axis = choices.integer(0, 1)
    items = [f"{grid}.{AXES[k]}" + (f" + {beyond}" if k == axis else "") for k in range(2)]
    text = f"nl.load({value.name}[{', '.join(items)}], mask={items[axis]} < {shape[axis]})"
    return Operand(text, shape, value.dtype, quality=value.quality, masked=True, opcode="nl.load")


def store(scene: Scene) -> None:
    """``nl.store`` into an access of a new or old tensor of HBM."""
    choices = scene.choices
    source = operand(scene, loose=True)
    dtype = source.dtype if choices.chance(70) else choices.pick(FLOATS[:3])
    target = _hbm_target(scene, source.shape, dtype)
    extra = f", mask={mask(scene, source.shape)}" if choices.chance(30) else ""
    text = str(choices.pick((1, 0.5))) if choices.chance(8) else source.text
    scene.emit(f"nl.store({target.text}, {text}{extra})", "nl.store")
    scene.wrote(replace(target, masked=bool(extra)), source.quality, "nl.store")


def dma_copy(scene: Scene) -> None:
    """``nisa.dma_copy`` between HBM and SBUF, in either direction or within one."""
    choices = scene.choices
    source = operand(scene, spaces=("sbuf",), loose=True)
    if choices.chance(35):
        source = view_of(scene, scene.declare(new_input(scene, source.shape, "float32")))
    dtype = source.dtype if choices.chance(60) or source.quality.loose else "float32"
    shape = source.shape
    if choices.chance(20) and len(shape) < 4:
        shape = (shape[0], 1, *shape[1:])
    elif choices.chance(20) and len(shape) == 3:
        shape = (shape[0], shape[1] * shape[2])
    if choices.chance(50):
        target = _hbm_target(scene, shape, dtype)
    else:
        target = destination(scene, shape, spaces=("sbuf",), dtype=dtype)
    extra = f", mask={mask(scene, shape)}" if choices.chance(25) else ""
    base = target.base
    if base is not None and base.readable and not extra and base.quality.exact:
        extra += ", dst_rmw_op=np.add" if choices.chance(15) and source.quality.exact else ""
    scene.emit(f"nisa.dma_copy(dst={target.text}, src={source.text}{extra})", "nisa.dma_copy")
    scene.wrote(replace(target, masked=bool(extra)), source.quality, "nisa.dma_copy")


def gather(scene: Scene) -> Operand | None:
    """Rows of a tensor of HBM at indices held in a tile; some beyond it, with a mode that skips."""
    choices = scene.choices
    rows, columns, count = (choices.pick(s) for s in ((4, 3, 8), (3, 2, 5), (2, 3, 4)))
    value = new_input(scene, (rows, columns), choices.pick(("float32", "int32", "bfloat16")))
    name = scene.fresh("n")
    start = choices.integer(0, rows)
    scene.emit(
        f"{name} = nisa.iota(nl.arange({count})[:, None] * {choices.pick((1, 0, -1))} + {start}, "
        "dtype=nl.int32)",
        "nisa.iota",
    )
    access_text = f"{value.name}[{name}, nl.arange({columns})[None, :]]"
    masked = maybe(scene, (count, columns), 30)
    if choices.chance(40):
        return Operand(
            f"nl.load({access_text}{masked})",
            (count, columns),
            value.dtype,
            quality=value.quality,
            masked=bool(masked),
            opcode="nl.load",
        )
    target = destination(scene, (count, columns), spaces=("sbuf",), fill=True)
    extra = ", oob_mode=nisa.oob_mode.skip" if choices.chance(60) else ""
    scene.emit(
        f"nisa.dma_copy(dst={target.text}, src={access_text}{extra}{masked})", "nisa.dma_copy"
    )
    scene.wrote(replace(target, masked=True), value.quality, "nisa.dma_copy")
    return None


def scatter(scene: Scene) -> None:
    choices = scene.choices
    rows, columns, count = (choices.pick(s) for s in ((4, 3, 8), (3, 2, 5), (2, 3, 4)))
    source = operand(scene, (count, columns), spaces=("sbuf",), exact=True)
    value = _in_hbm(scene, (rows, columns), choices.pick((source.dtype, "float32")))
    name = scene.fresh("n")
    scene.emit(
        f"{name} = nisa.iota(nl.arange({count})[:, None] * {choices.pick((1, -1))} "
        f"+ {choices.integer(0, rows)}, dtype=nl.int32)",
        "nisa.iota",
    )
    extra = ", oob_mode=nisa.oob_mode.skip" if choices.chance(70) else ""
    scene.emit(
        f"nisa.dma_copy(dst={value.name}[{name}, nl.arange({columns})[None, :]], "
        f"src={source.text}{extra}{maybe(scene, (count, columns), 30)})",
        "nisa.dma_copy",
    )
    scene.wrote(
        Operand("", (), value.dtype, base=value, masked=True), source.quality, "nisa.dma_copy"
    )


def atomic_add(scene: Scene) -> None:
    """``nl.atomic_rmw`` onto rows of a tensor of HBM; a row may be named twice."""
    choices = scene.choices
    rows, columns, count = (choices.pick(s) for s in ((4, 3), (3, 2), (2, 3)))
    dtype = choices.pick(("float32", "bfloat16", "int32"))
    first = operand(scene, (rows, columns), spaces=("sbuf",), exact=True)
    added = operand(scene, (count, columns), spaces=("sbuf",), exact=True)
    value = _in_hbm(scene, (rows, columns), dtype)
    scene.emit(f"nl.store({value.name}, {first.text})", "nl.store")
    name = scene.fresh("n")
    scene.emit(
        f"{name} = nisa.iota(nl.arange({count})[:, None] * {choices.pick((1, 0))}, dtype=nl.int32)",
        "nisa.iota",
    )
    scene.emit(
        f"nl.atomic_rmw({value.name}[{name}, nl.arange({columns})[None, :]], {added.text}, "
        f"op=np.add{maybe(scene, (count, columns), 30)})",
        "nl.atomic_rmw",
    )
    value.readable = True
    value.quality = total(either(first.quality, added.quality), count + 1).rounded(dtype)
    value.opcode = "nl.atomic_rmw"


def dma_transpose(scene: Scene) -> Operand:
    source = operand(scene, spaces=("sbuf",), loose=False)
    shape = source.shape
    turned = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}.get(len(shape), (1, 0))
    extra, dtype, masked = finish(scene, shape, source.dtype)
    return Operand(
        f"nisa.dma_transpose({source.text}{extra})",
        tuple(shape[k] for k in turned),
        dtype,
        quality=source.quality,
        masked=masked,
        opcode="nisa.dma_transpose",
    )


def load_transpose(scene: Scene) -> Operand:
    choices = scene.choices
    shape = (choices.pick((2, 3, 8, 128)), choices.pick((3, 4, 1, 16)))
    value = scene.declare(new_input(scene, shape, choices.pick(("float32", "bfloat16", "int32"))))
    masked = maybe(scene, shape)
    return Operand(
        f"nl.load_transpose2d({value.name}{masked})",
        shape[::-1],
        value.dtype,
        quality=value.quality,
        masked=bool(masked),
        opcode="nl.load_transpose2d",
    )


def shared_constant(scene: Scene) -> Operand:
    choices = scene.choices
    if choices.chance(30):
        size = choices.pick((2, 4, 3))
        dtype = choices.pick(("float32", "uint8", "bfloat16"))
        text = f"nl.load(nl.shared_identity_matrix({size}, dtype=nl.{dtype}))"
        return Operand(
            text, (size, size), dtype, quality=Quality(1), opcode="nl.shared_identity_matrix"
        )
    shape = choices.pick(((2, 3), (1, 4), (4, 2)))
    dtype = choices.pick(("float32", "int32", "float16", "tfloat32"))
    values = choices.pick(("", " / 3"))
    if scene.spoil():
        shape = (0, 3)
    text = (
        f"nl.load(nl.shared_constant(np.arange({shape[0] * shape[1]}).reshape({shape}){values}, "
        f"dtype=nl.{dtype}))"
    )
    quality = ROUGH if values else Quality(4)
    return Operand(text, shape, dtype, quality=quality, opcode="nl.shared_constant")


def dense_index(scene: Scene) -> None:
    """``e[i.p, p] = t[i.p, 2 * p]``: a dense index beside an integer names one free element."""
    choices = scene.choices
    partitions, free = choices.pick((2, 3, 8, 128)), choices.pick((2, 3, 4))
    source = operand(scene, (partitions, free), dtypes=FLOATS)
    target = destination(scene, (partitions, free), fill=True)
    left, right = source.base, target.base
    if left is None or right is None or len(left.shape) != 2 or len(right.shape) != 2:
        return
    rows = min(left.shape[0], right.shape[0])
    grid = scene.grid_index((rows, choices.pick((4, 2, 3))))
    places = [choices.integer(0, value.shape[1] - 1) for value in (right, left)]
    scene.emit(
        f"{right.name}[{grid}.p, {places[0]}] = {left.name}[{grid}.p, {places[1]}]", "dense index"
    )
    scene.wrote(replace(target, masked=True), left.quality, "dense index")


def padded(scene: Scene) -> None:
    """A tile of which only a corner is written, and which other statements read whole."""
    choices = scene.choices
    shape = (choices.integer(2, 8), choices.integer(2, 12))
    dtype = choices.pick(("float32", "bfloat16", "int32", "uint8"))
    name = scene.fresh("t")
    rows, columns = (choices.integer(1, size) for size in shape)
    scene.emit(f"{name} = nl.ndarray({shape}, nl.{dtype}, buffer=nl.sbuf)", "nl.ndarray")
    places = f"{columns} * nl.arange({rows})[:, None] + nl.arange({columns})[None, :]"
    part = f"{name}[0:{rows}, 0:{columns}]"
    scene.emit(f"{part} = nisa.iota({places}, dtype=nl.{dtype})", "nisa.iota")
    scene.declare(Value(name, shape, dtype, "sbuf", Quality(7, 0), opcode="nisa.iota"))
    scene.padded = True
