"""More statements of today's dialect: selections, searches, gathers, scans, registers, loops."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.fuzz.exactness import Quality, either, total
from tests.fuzz.scene import Scene
from tests.fuzz.todays_tensors import FLOATS, destination, fresh, same_elements, source, written

SMALL = Quality(4, 0)


def scan(scene: Scene) -> None:
    """A running maximum or minimum, whose values are the operands' own."""
    data = source(scene, dtypes=("float32", "bfloat16", "float16"))
    other = same_elements(scene, data, spaces=("sbuf",)) if data is not None else None
    if data is None or other is None:
        return
    ops = ", ".join(f"nl.{scene.choices.pick(('maximum', 'minimum'))}" for _ in range(2))
    target = destination(scene, data.shape, scene.choices.pick(("float32", "bfloat16")))
    text = f"nisa.tensor_tensor_scan({target.text}, {data.text}, {other.text}, 1.0, {ops})"
    scene.emit(text, "nisa.tensor_tensor_scan")
    quality = either(data.quality, other.quality, Quality(1, 0))
    written(scene, target, quality, "nisa.tensor_tensor_scan")


def affine_select(scene: Scene) -> None:
    """Elements on one side of a diagonal."""
    choices = scene.choices
    data = source(scene, spaces=("sbuf",), dtypes=("float32", "bfloat16", "int16", "uint8"))
    if data is None or len(data.shape) < 2:
        return
    pattern = [[choices.integer(-2, 2), size] for size in data.shape[1:]]
    op = choices.pick(("greater", "less_equal", "equal"))
    target = destination(scene, data.shape, choices.pick(("float32", "bfloat16")))
    text = (
        f"nisa.affine_select({target.text}, {pattern}, {choices.integer(-2, 2)}, {data.text}, "
        f"{choices.pick(('-3.0', '0.0'))}, cmp_op=nl.{op}, offset={choices.integer(-3, 3)})"
    )
    scene.emit(text, "nisa.affine_select")
    written(scene, target, either(data.quality, Quality(2, 0)), "nisa.affine_select")


def select_reduce(scene: Scene) -> None:
    """One side or the other by a predicate, and the largest of a partition."""
    choices = scene.choices
    chosen = source(scene, spaces=("sbuf",), dtypes=("uint8", "int16"))
    data = None
    if chosen is not None:
        data = same_elements(scene, chosen, spaces=("sbuf",), dtypes=("float32", "bfloat16"))
    if chosen is None or data is None or data.dtype not in ("float32", "bfloat16"):
        return
    target = destination(scene, data.shape, "float32")
    more = choices.pick(("", ", reverse_pred=True"))
    if choices.chance(50):
        into = fresh(scene, (data.shape[0], 1), "float32")
        more += f", reduce_res={into.name}, reduce_cmd=nisa.reduce_cmd.reset_reduce"
        into.readable, into.quality = True, either(data.quality, Quality(2, 0))
    text = f"nisa.select_reduce({target.text}, {chosen.text}, {data.text}, -2.0{more})"
    scene.emit(text, "nisa.select_reduce")
    written(scene, target, either(data.quality, Quality(2, 0)), "nisa.select_reduce")


def search(scene: Scene) -> None:
    """The 8 largest, where they are, and without them."""
    choices = scene.choices
    data = source(scene, spaces=("sbuf",), dtypes=("float32", "bfloat16", "int32"))
    if data is None or math.prod(data.shape[1:]) < (1 if scene.spoil() else 8):
        return
    rows = data.shape[0]
    eight = fresh(scene, (rows, 8), "float32")
    scene.emit(f"nisa.max8({eight.name}, {data.text})", "nisa.max8")
    eight.readable, eight.quality = True, data.quality
    found = fresh(scene, (rows, 8), choices.pick(("uint32", "uint16")))
    scene.emit(
        f"nisa.nc_find_index8({found.name}, {data.text}, {eight.name})", "nisa.nc_find_index8"
    )
    found.readable, found.quality = True, Quality(None)
    target = destination(scene, data.shape, "float32")
    places = ""
    if choices.chance(50):
        held = fresh(scene, (rows, 8), "uint32")
        places = f", dst_idx={held.name}"
        held.readable, held.quality = True, Quality(None)
    text = f"nisa.nc_match_replace8({target.text}, {data.text}, {eight.name}, -5.0{places})"
    scene.emit(text, "nisa.nc_match_replace8")
    written(scene, target, either(data.quality, Quality(3, 0)), "nisa.nc_match_replace8")


def n_gather(scene: Scene) -> None:
    """Elements of each partition at indices that it holds."""
    choices = scene.choices
    data = source(scene, spaces=("sbuf",))
    if data is None:
        return
    width, count = math.prod(data.shape[1:]), choices.integer(1, 5)
    index = fresh(scene, (data.shape[0], count), "uint32")
    step = choices.integer(0, max(0, (width - 1) // count) + (1 if scene.spoil() else 0))
    scene.emit(f"nisa.iota({index.name}, [[{step}, {count}]])", "nisa.iota")
    index.readable, index.quality = True, SMALL
    target = destination(scene, (data.shape[0], count), data.dtype)
    text = f"nisa.nc_n_gather({target.text}, {data.text}, {index.name})"
    scene.emit(text, "nisa.nc_n_gather")
    written(scene, target, data.quality, "nisa.nc_n_gather")


def shuffle(scene: Scene) -> None:
    """Partitions of a quadrant in another order; some stay as they are."""
    data = source(scene, spaces=("sbuf",))
    if data is None or data.shape[0] > 32:
        return
    rows = data.shape[0]
    order = [scene.choices.pick((255, 0, rows - 1)) for _ in range(rows)] + [255] * (32 - rows)
    target = fresh(scene, data.shape, data.dtype, written=True)
    text = f"nisa.nc_stream_shuffle({target.name}, {data.text}, {order})"
    scene.emit(text, "nisa.nc_stream_shuffle")
    target.quality = either(target.quality, data.quality)


def statistics(scene: Scene) -> None:
    """Means and variances: close, not exact."""
    data = source(scene, spaces=("sbuf",), dtypes=("float32", "bfloat16"), exact=True)
    if data is None:
        return
    stats = fresh(scene, (data.shape[0], 6), "float32")
    scene.emit(f"nisa.bn_stats({stats.name}, {data.text})", "nisa.bn_stats")
    stats.readable, stats.quality = True, Quality(None, loose=True)


def activation_sum(scene: Scene) -> None:
    """A function of the Scalar Engine and its sum in the registers, exact ones."""
    choices = scene.choices
    data = source(scene, spaces=("sbuf",), exact=True)
    if data is None:
        return
    quality = total(data.quality, math.prod(data.shape[1:]))
    if not quality.exact:
        return
    into = fresh(scene, (data.shape[0], 1), "float32")
    target = destination(scene, data.shape, "float32")
    op = choices.pick(("relu", "copy", "abs"))
    if choices.chance(50):
        text = f"nisa.activation_reduce({target.text}, nl.{op}, {data.text}, nl.add, {into.name})"
    else:
        text = (
            f"nisa.activation({target.text}, nl.{op}, {data.text}, reduce_op=nl.add, "
            f"reduce_res={into.name}, reduce_cmd=nisa.reduce_cmd.reset_reduce)"
        )
    scene.emit(text, "nisa.activation")
    into.readable, into.quality = True, quality
    written(scene, target, data.quality, "nisa.activation")


def by_register(scene: Scene) -> None:
    """A view that a register moves, loaded from SBUF or set by the kernel."""
    choices = scene.choices
    found = [v for v in scene.suitable(spaces=("hbm", "sbuf")) if len(v.shape) == 2]
    if not found:
        return
    value = choices.pick(found)
    rows, width = value.shape
    number = choices.integer(0, width - (0 if scene.spoil() else 1))
    register = scene.fresh("r")
    if choices.chance(50):
        scene.emit(f"{register} = nisa.register_alloc({number})", "nisa.register_alloc")
    else:
        held = fresh(scene, (1, 1), "int32")
        scene.emit(f"nisa.memset({held.name}, {number})", "nisa.memset")
        held.readable, held.quality = True, SMALL
        scene.emit(f"{register} = nisa.register_alloc()", "nisa.register_alloc")
        scene.emit(f"nisa.register_load({register}, {held.name})", "nisa.register_load")
    text = choices.pick(
        (
            f"{value.name}.select(1, {register})",
            f"{value.name}.ap([[{width}, {rows}], [1, 1]], scalar_offset={register}, "
            "indirect_dim=1)",
        )
    )
    target = fresh(scene, (rows, 1), value.dtype, written=True)
    call = "nisa.dma_copy" if value.space == "hbm" else "nisa.tensor_copy"
    scene.emit(f"{call}({target.name}, {text})", call)
    target.quality = either(target.quality, value.quality)


def device_loop(scene: Scene) -> None:
    """Columns that a loop on the device moves, one in each turn."""
    choices = scene.choices
    found = [v for v in scene.suitable(spaces=("hbm",)) if len(v.shape) == 2 and v.shape[0] <= 128]
    if not found:
        return
    value = choices.pick(found)
    rows, width = value.shape
    target = fresh(scene, value.shape, value.dtype, written=True)
    first, step = choices.integer(0, width - 1), choices.integer(1, 3)
    last = choices.integer(first, width + (1 if scene.spoil() else 0))
    column = f"ap([[{width}, {rows}], [1, 1]], scalar_offset=i, indirect_dim=1)"
    body = f"lambda i: nisa.dma_copy({target.name}.{column}, {value.name}.{column})"
    bounds = f"{first}, {last}"
    if choices.chance(40):
        bounds = f"nisa.register_alloc({first}), {last}"
    scene.emit(f"nl.fori_loop({bounds}, {body}, step={step})", "nl.fori_loop")
    target.quality = either(target.quality, value.quality)


def padded(scene: Scene) -> None:
    """A tile of which only a corner is written, and which other statements read whole."""
    choices = scene.choices
    shape = (choices.integer(2, 8), choices.integer(2, 12))
    value = fresh(scene, shape, choices.pick((*FLOATS, "int32", "uint8")))
    rows, columns = (choices.integer(1, size) for size in shape)
    part = f"{value.name}[0:{rows}, 0:{columns}]"
    scene.emit(f"nisa.iota({part}, [[1, {columns}]], 0, {columns})", "nisa.iota")
    value.readable, value.quality, value.opcode = True, Quality(7, 0), "nisa.iota"
    scene.padded = True


STATEMENTS: tuple[Callable[[Scene], None], ...] = (
    *(scan, affine_select, select_reduce, search, n_gather, shuffle, statistics),
    *(activation_sum, by_register, device_loop),
)
