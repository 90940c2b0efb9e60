"""Statements of the current dialect without an instruction: loads, indices, registers and loops."""

from __future__ import annotations

from collections.abc import Callable

from difftest.simulator import Space
from difftest.simulator.dtypes import INTEGERS, NAMES
from tests.fuzz import language
from tests.fuzz.operands import DTYPES, FLOATS, destination, filled, operand
from tests.fuzz.scene import Scene, Value

HBM = (Space.PRIVATE_HBM, Space.SHARED_HBM)


def load(scene: Scene) -> None:
    """From HBM to a new tile."""
    source = operand(scene, spaces=HBM[:1])
    name = scene.fresh("t")
    scene.emit(f"{name} = nl.load({source.text})", "nl.load")
    scene.declare(name, "nl.load")


def store(scene: Scene) -> None:
    """From SBUF into a part of an argument."""
    source = operand(scene)
    target = destination(scene, source.shape, scene.choices.pick(DTYPES), HBM[:1])
    scene.emit(f"nl.store({target.text}, {source.text})", "nl.store")
    target.value.opcode = "nl.store"


def _matrix(scene: Scene) -> Value:
    """A tensor of two axes, on chip or in HBM."""
    found = scene.suitable(spaces=(Space.SBUF, *HBM))
    found = [
        value for value in found if len(value.shape) == 2 and value.shape[0] <= 128
    ]
    if found:
        return scene.choices.pick(found)
    return filled(
        scene,
        (4, 6),
        scene.choices.pick(DTYPES),
        scene.choices.pick((Space.SBUF, *HBM)),
    )


def _moved(
    scene: Scene, value: Value, shape: tuple[int, ...], text: str, mode: str = ""
) -> None:
    """Copy a view that something moves into a tile of zeros."""
    target = destination(scene, shape, value.dtype, fill=True)
    call = "nisa.dma_copy" if value.space.is_hbm else "nisa.tensor_copy"
    scene.emit(f"{call}({target.text}, {text}{mode})", call)


def gather(scene: Scene) -> None:
    """Rows that a tile of indices names, some of them outside and skipped."""
    choices = scene.choices
    value = filled(scene, (5, 3), choices.pick(DTYPES), HBM[0])
    rows, width = value.shape
    count = choices.integer(1, 4)
    skip = choices.chance(40)
    most = rows + 1 if skip else rows - 1
    places = [[choices.integer(0, most)] for _ in range(count)]
    index = filled(scene, (count, 1), NAMES["int32"], expression=f"np.array({places})")
    form = choices.pick(
        (
            f"{value.name}.ap([[{width}, {count}], [1, {width}]], vector_offset={index.name})",
            f"{value.name}.vector_select(0, {index.name})",
        )
    )
    _moved(
        scene,
        value,
        (count, width),
        form,
        ", oob_mode=nisa.oob_mode.skip" if skip else "",
    )


def moved_by_one(scene: Scene) -> None:
    """A view that one number moves: of a tile, or of a register, set or loaded."""
    choices = scene.choices
    value = _matrix(scene)
    rows, width = value.shape
    dim = choices.integer(0, 1) if value.space.is_hbm else 1
    skip = value.space.is_hbm and choices.chance(30)
    number = choices.integer(0, value.shape[dim] - (0 if skip or scene.spoil() else 1))
    offset = filled(
        scene, (1, 1), NAMES["int32"], expression=f"np.array([{number}])"
    ).name
    kind = choices.pick(("tile", "register", "loaded"))
    if kind != "tile":
        register = scene.fresh("r")
        held = offset
        offset = register
        set_to = number if kind == "register" else ""
        scene.emit(f"{register} = nisa.register_alloc({set_to})", "nisa.register_alloc")
        if kind == "loaded":
            scene.emit(f"nisa.register_load({register}, {held})", "nisa.register_load")
    if choices.chance(50):
        text = f"{value.name}.select({dim}, {offset})"
        shape = (width, 1) if dim == 0 else (rows, 1)
    else:
        count = choices.integer(1, max(1, value.shape[dim] - number))
        shape = (count, width) if dim == 0 else (rows, count)
        pattern = [[width, shape[0]], [1, shape[1]]]
        text = f"{value.name}.ap({pattern}, scalar_offset={offset}, indirect_dim={dim})"
    _moved(scene, value, shape, text, ", oob_mode=nisa.oob_mode.skip" if skip else "")


def device_loop(scene: Scene) -> None:
    """Number of columns that a loop on the device moves, a column in each iteration."""
    choices = scene.choices
    value = filled(scene, (4, 6), choices.pick(DTYPES), HBM[0])
    rows, width = value.shape
    target = filled(scene, value.shape, value.dtype)
    first = choices.integer(0, width - 1)
    step = choices.integer(1, 3)
    last = choices.integer(first, width + scene.spoil())
    column = f"ap([[{width}, {rows}], [1, 1]], scalar_offset=i, indirect_dim=1)"
    body = f"lambda i: nisa.dma_copy({target.name}.{column}, {value.name}.{column})"
    start = f"nisa.register_alloc({first})" if choices.chance(40) else str(first)
    scene.emit(f"nl.fori_loop({start}, {last}, {body}, step={step})", "nl.fori_loop")


def products(scene: Scene) -> None:
    """Products into one tensor of PSUM: overwritten, added up, and added up where one was before.

    Between them other instructions may write parts of it, and each product may cover a part.
    """
    choices = scene.choices
    floats = [NAMES[name] for name in FLOATS if name != "tfloat32"]
    depth, rows, columns = (
        choices.pick(sizes) for sizes in ((2, 3, 16), (1, 4, 8), (2, 5, 9))
    )
    x = operand(scene, (depth, rows), dtypes=floats)
    y = operand(scene, (depth, columns), dtypes=[x.dtype])
    wider = columns + choices.integer(0, 3)
    dtype = NAMES["float32"]
    held = destination(
        scene, (rows, wider), dtype, (Space.PSUM,), fill=choices.chance(85)
    ).value
    name = held.name
    for _ in range(choices.integer(1, 4)):
        start = choices.integer(0, wider - columns)
        text = (
            name if columns == wider else f"{name}[0:{rows}, {start}:{start + columns}]"
        )
        if choices.chance(25):
            at = choices.integer(0, wider - 1)
            scene.emit(f"nisa.memset({name}[:, {at}:], 2)", "nisa.memset")
        how = choices.pick(("", "", "", ", accumulate=False", ", accumulate=None"))
        how = ", accumulate=True" if scene.spoil() else how
        scene.emit(f"nisa.nc_matmul({text}, {x.text}, {y.text}{how})", "nisa.nc_matmul")


def iota(scene: Scene) -> None:
    """Integers from a pattern of one to three axes."""
    choices = scene.choices
    shape = tuple(choices.integer(1, 6) for _ in range(choices.integer(2, 4)))
    target = destination(scene, shape, choices.pick((*INTEGERS, NAMES["float32"])))
    pattern = [[choices.integer(0, 3), size] for size in shape[1:]]
    more = f", {choices.integer(0, 5)}, {choices.integer(0, 2)}"
    scene.emit(f"nisa.iota({target.text}, {pattern}{more})", "nisa.iota")


def affine_select(scene: Scene) -> None:
    """Elements on one side of a diagonal, of one to three free axes."""
    choices = scene.choices
    data = operand(scene)
    pattern = [[choices.integer(-2, 2), size] for size in data.shape[1:]]
    op = choices.pick(
        ("greater", "less_equal", "equal", "not_equal", "less", "greater_equal")
    )
    target = destination(scene, data.shape, choices.pick(DTYPES))
    text = (
        f"nisa.affine_select({target.text}, {pattern}, {choices.integer(-2, 2)}, {data.text}, "
        f"{choices.pick(('-3.0', '0.0'))}, cmp_op=nl.{op}, offset={choices.integer(-3, 3)})"
    )
    scene.emit(text, "nisa.affine_select")


def activation_sum(scene: Scene) -> None:
    """A function of the Scalar Engine and its sum in the registers."""
    choices = scene.choices
    data = operand(scene)
    into = destination(scene, (data.shape[0], 1), NAMES["float32"])
    target = destination(scene, data.shape, choices.pick(DTYPES))
    op = choices.pick(("relu", "copy", "abs"))
    text = f"nisa.activation_reduce({target.text}, nl.{op}, {data.text}, nl.add, {into.text})"
    scene.emit(text, "nisa.activation_reduce")


TODAY: tuple[Callable[[Scene], None], ...] = (
    *language.BOTH,
    load,
    load,
    store,
    gather,
    moved_by_one,
    moved_by_one,
    device_loop,
    products,
    products,
    iota,
    affine_select,
    activation_sum,
)
"""Statements of a kernel of the current dialect other than drawn calls."""
