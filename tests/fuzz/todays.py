"""Kernels of today's dialect: views of tensors, ``ap``, instructions with ``dst``, accumulation.

A tensor is drawn with a chain of views; whatever the chain makes of its shape, an instruction takes
it by its partitions and the elements in each. The values of a tensor that some statement wrote in
part are of the worse of both qualities (:mod:`tests.fuzz.exactness`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import todays_wide
from tests.fuzz.chains import view
from tests.fuzz.exactness import LOOSE, Quality, either, product, total
from tests.fuzz.program import Program
from tests.fuzz.scene import Choices, Operand, Scene, Value
from tests.fuzz.todays_tensors import (
    DTYPES,
    FLOATS,
    argument,
    destination,
    fresh,
    same_elements,
    shape_of,
    size_of,
    source,
    written,
)

ENGINES = ("", "", ", engine=nisa.engine.vector", ", engine=nisa.engine.gpsimd")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "less", "not_equal")


# -- statements ------------------------------------------------------------------------------------


def load(scene: Scene) -> None:
    """From HBM to a new tile, or by DMA to a view."""
    given = source(scene, spaces=("hbm",))
    if given is None or given.shape[0] > 128:
        return
    if scene.choices.chance(50):
        name = scene.fresh("t")
        shape = given.shape if len(given.shape) > 1 else (*given.shape, 1)
        scene.emit(f"{name} = nl.load({given.text})", "nl.load")
        quality = given.quality
        scene.declare(Value(name, shape, given.dtype, "sbuf", quality, opcode="nl.load"))
        return
    shape = given.shape if len(given.shape) > 1 else (*given.shape, 1)
    dtype = scene.choices.pick((given.dtype, *FLOATS))
    target = destination(scene, shape, dtype)
    scene.emit(f"nisa.dma_copy({target.text}, {given.text})", "nisa.dma_copy")
    written(scene, target, given.quality, "nisa.dma_copy")


def store(scene: Scene) -> None:
    """From SBUF into a part of an argument."""
    targets = [value for value in scene.values if value.argument]
    given = source(scene, spaces=("sbuf",))
    if given is None or not targets:
        return
    fitting = [value for value in targets if math.prod(value.shape) == math.prod(given.shape)]
    if not fitting:
        return
    value = scene.choices.pick(fitting)
    scene.emit(f"nl.store({value.name}, {given.text})", "nl.store")
    whole = Operand(value.name, value.shape, value.dtype, "hbm", given.quality, value, True)
    written(scene, whole, given.quality, "nl.store")


def gather(scene: Scene) -> None:
    """Rows that a tile of indices names, some of them outside and skipped."""
    choices = scene.choices
    found = [value for value in scene.suitable(spaces=("hbm",)) if len(value.shape) == 2]
    if not found:
        return
    value = choices.pick(found)
    count = choices.integer(1, 4)
    skip = choices.chance(40)
    rows, width = value.shape
    index = fresh(scene, (count, 1), "int32")
    step = choices.integer(1, 2) if skip else choices.integer(0, max(0, (rows - 1) // count))
    scene.emit(f"nisa.iota({index.name}, [[0, 1]], channel_multiplier={step})", "nisa.iota")
    index.readable = True
    index.quality = Quality(4, 0)
    target = fresh(scene, (count, width), value.dtype, written=True)
    form = choices.pick(
        [
            f"{value.name}.ap([[{width}, {count}], [1, {width}]], vector_offset={index.name})",
            f"{value.name}.vector_select(0, {index.name})",
        ]
    )
    mode = ", oob_mode=nisa.oob_mode.skip" if skip else ""
    scene.emit(f"nisa.dma_copy({target.name}, {form}{mode})", "nisa.dma_copy")
    target.quality = either(target.quality, value.quality)


def one_offset(scene: Scene) -> None:
    """A view that one element in SBUF moves, on chip or in HBM; in HBM it may be skipped."""
    choices = scene.choices
    found = [v for v in scene.suitable(spaces=("hbm", "sbuf")) if len(v.shape) == 2]
    if not found:
        return
    value = choices.pick(found)
    rows, width = value.shape
    in_hbm = value.space == "hbm"
    dim = choices.integer(0, 1) if in_hbm else 1
    skip = in_hbm and choices.chance(30)
    number = choices.integer(0, value.shape[dim] - (0 if skip or scene.spoil() else 1))
    index = fresh(scene, (1, 1), "int32")
    scene.emit(f"nisa.memset({index.name}, {number})", "nisa.memset")
    index.readable, index.quality = True, Quality(4, 0)
    if choices.chance(50):
        text = f"{value.name}.select({dim}, {index.name})"
        shape = (width, 1) if dim == 0 else (rows, 1)
    else:
        most = max(1, value.shape[dim] - number)
        count = choices.integer(1, most)
        pattern = [[width, count if dim == 0 else rows], [1, count if dim == 1 else width]]
        shape = (pattern[0][1], pattern[1][1])
        text = f"{value.name}.ap({pattern}, scalar_offset={index.name}, indirect_dim={dim})"
    target = fresh(scene, shape, value.dtype, written=True)
    call = "nisa.dma_copy" if in_hbm else "nisa.tensor_copy"
    mode = ", oob_mode=nisa.oob_mode.skip" if skip else ""
    scene.emit(f"{call}({target.name}, {text}{mode})", call)
    target.quality = either(target.quality, value.quality)


def copy(scene: Scene) -> None:
    """tensor_copy, in any dtype."""
    given = source(scene)
    if given is None:
        return
    dtype = scene.choices.pick((given.dtype, *DTYPES))
    target = destination(scene, given.shape, dtype)
    on = scene.choices.pick(ENGINES)
    scene.emit(f"nisa.tensor_copy({target.text}, {given.text}{on})", "nisa.tensor_copy")
    written(scene, target, given.quality, "nisa.tensor_copy")


def _result_quality(op: str, *qualities: Quality) -> Quality:
    if op in ("less", "not_equal"):
        return Quality(1, 0)
    if op == "multiply":
        return product(*qualities)
    return total(either(*qualities), 2)


def tensor_tensor(scene: Scene) -> None:
    """Two tiles of the same count, of shapes that may differ."""
    left = source(scene)
    right = same_elements(scene, left) if left is not None else None
    if left is None or right is None:
        return
    op = scene.choices.pick(BINARY)
    dtype = scene.choices.pick((left.dtype, "float32", "bfloat16", "int32"))
    target = destination(scene, left.shape, dtype)
    on = scene.choices.pick(ENGINES)
    text = f"nisa.tensor_tensor({target.text}, {left.text}, {right.text}, nl.{op}{on})"
    scene.emit(text, "nisa.tensor_tensor")
    written(scene, target, _result_quality(op, left.quality, right.quality), "nisa.tensor_tensor")


def tensor_scalar(scene: Scene) -> None:
    """A tile and one or two numbers, or vectors."""
    choices = scene.choices
    data = source(scene)
    if data is None:
        return
    number = choices.pick((2.0, 1, -3, 0.5))
    operand, quality = str(number), Quality(2, 1)
    vectors = [
        value for value in scene.suitable(dtypes=("float32",)) if value.shape == (data.shape[0], 1)
    ]
    if vectors and choices.chance(40):
        operand, quality = vectors[0].name, vectors[0].quality
    op = choices.pick(BINARY)
    result = _result_quality(op, data.quality, quality)
    more = ""
    if choices.chance(40):
        more = ", op1=nl.add, operand1=1.0" + (", reverse1=True" if choices.chance(30) else "")
        result = total(result, 2)
    reverse = ", reverse0=True" if choices.chance(30) else ""
    target = destination(scene, data.shape, choices.pick((data.dtype, "float32", "bfloat16")))
    text = f"nisa.tensor_scalar({target.text}, {data.text}, nl.{op}, {operand}{reverse}{more})"
    scene.emit(text, "nisa.tensor_scalar")
    written(scene, target, result, "nisa.tensor_scalar")


def functions(scene: Scene) -> None:
    """``nl.add`` and kin: a new tile."""
    choices = scene.choices
    left = source(scene, spaces=("sbuf",))
    if left is None or len(left.shape) < 2:
        return
    op = choices.pick(BINARY)
    name = scene.fresh("t")
    scene.emit(f"{name} = nl.{op}({left.text}, {choices.pick(('2.0', '3'))})", f"nl.{op}")
    quality = _result_quality(op, left.quality, Quality(2, 0)).rounded(left.dtype)
    scene.declare(Value(name, left.shape, left.dtype, "sbuf", quality, opcode=f"nl.{op}"))


def activation(scene: Scene) -> None:
    """A function of the Scalar Engine."""
    data = source(scene)
    if data is None:
        return
    op = scene.choices.pick(("relu", "square", "copy", "abs", "tanh"))
    dtype = "float32" if op == "tanh" else scene.choices.pick(FLOATS)
    quality = data.quality if op != "square" else product(data.quality, data.quality)
    target = destination(scene, data.shape, dtype)
    scene.emit(f"nisa.activation({target.text}, nl.{op}, {data.text})", "nisa.activation")
    written(scene, target, LOOSE if op == "tanh" else quality, "nisa.activation")


def memset(scene: Scene) -> None:
    """A number into a view."""
    found = [value for value in scene.values if value.space in ("sbuf", "psum")]
    if not found:
        return
    target = view(scene, scene.choices.pick(found[-4:]))
    number = scene.choices.pick((0, 3, -2) if target.dtype not in ("uint8",) else (0, 3))
    scene.emit(f"nisa.memset({target.text}, {number})", "nisa.memset")
    written(scene, target, Quality(2, 0), "nisa.memset")


def iota(scene: Scene) -> None:
    """Integers from a pattern."""
    choices = scene.choices
    shape = shape_of(scene)
    target = destination(scene, shape, choices.pick(("int32", "float32", "bfloat16")))
    pattern = [[choices.integer(0, 3), size] for size in shape[1:]]
    more = f", {choices.integer(0, 5)}, {choices.integer(0, 2)}"
    scene.emit(f"nisa.iota({target.text}, {pattern}{more})", "nisa.iota")
    written(scene, target, Quality(7, 0), "nisa.iota")


def reduction(scene: Scene) -> None:
    """Sums and maxima along the last axes, exact ones."""
    choices = scene.choices
    data = source(scene, exact=True)
    if data is None or len(data.shape) < 2:
        return
    axes = tuple(range(choices.integer(1, len(data.shape) - 1), len(data.shape)))
    count = math.prod(data.shape[axis] for axis in axes)
    op = choices.pick(("add", "maximum", "minimum"))
    quality = total(data.quality, count) if op == "add" else data.quality
    if not quality.exact:
        return
    kept = tuple(size for axis, size in enumerate(data.shape) if axis not in axes)
    shape = kept if len(kept) > 1 else (*kept, 1)
    target = destination(scene, shape, choices.pick(("float32", "bfloat16")))
    axis = axes[0] if len(axes) == 1 else axes
    text = f"nisa.tensor_reduce({target.text}, nl.{op}, {data.text}, {axis})"
    scene.emit(text, "nisa.tensor_reduce")
    written(scene, target, quality, "nisa.tensor_reduce")


def matmul(scene: Scene) -> None:
    """Products into one tensor of PSUM: overwritten, added up, and added up where one was before.

    Between them other instructions may write parts of it, and each product may cover a part.
    """
    choices = scene.choices
    stationary = source(scene, spaces=("sbuf",), dtypes=FLOATS, exact=True)
    if stationary is None:
        return
    moving = source(scene, spaces=("sbuf",), dtypes=FLOATS, exact=True)
    if moving is None or moving.shape[0] != stationary.shape[0]:
        moving = stationary
    if (moving.dtype == "float32") != (stationary.dtype == "float32"):
        return
    once = total(product(stationary.quality, moving.quality), stationary.shape[0])
    rows, columns = math.prod(stationary.shape[1:]), math.prod(moving.shape[1:])
    times = choices.integer(1, 4)
    quality = total(either(once, Quality(2, 0)), times + 1)
    if not quality.exact or rows > 128 or columns > 400:
        return
    wider = columns + choices.integer(0, 3)
    value = fresh(scene, (rows, wider), "float32", "psum", written=choices.chance(85))
    for _ in range(times):
        start = choices.integer(0, wider - columns)
        text = f"{value.name}[:, {start}:{start + columns}]"
        covers = columns == wider
        if covers and choices.chance(50):
            text = value.name
        if choices.chance(25):
            at = choices.integer(0, wider - 1)
            scene.emit(f"nisa.memset({value.name}[:, {at}:], 2)", "nisa.memset")
        how = choices.pick(("", "", "", ", accumulate=False", ", accumulate=None"))
        if scene.spoil():
            how = ", accumulate=True"
        scene.emit(
            f"nisa.nc_matmul({text}, {stationary.text}, {moving.text}{how})", "nisa.nc_matmul"
        )
        value.readable = value.readable or covers
    value.quality, value.opcode = quality, "nisa.nc_matmul"


def transpose(scene: Scene) -> None:
    """Between partitions and free axes, on the Tensor Engine or the Vector Engine."""
    data = source(scene, spaces=("sbuf",), dtypes=FLOATS)
    if data is None or math.prod(data.shape[1:]) > 32 or data.shape[0] > 32:
        return
    shape = (math.prod(data.shape[1:]), data.shape[0])
    space = scene.choices.pick(("psum", "sbuf"))
    target = destination(scene, shape, data.dtype, space)
    scene.emit(f"nisa.nc_transpose({target.text}, {data.text})", "nisa.nc_transpose")
    written(scene, target, data.quality, "nisa.nc_transpose")


def dma_transpose(scene: Scene) -> None:
    """Two to four dimensions by the DMA engines."""
    given = source(scene, spaces=("hbm", "sbuf"))
    orders = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    if given is None or len(given.shape) not in orders:
        return
    order = orders[len(given.shape)]
    shape = tuple(given.shape[k] for k in order)
    target = fresh(scene, shape, given.dtype)
    scene.emit(f"nisa.dma_transpose({target.name}, {given.text})", "nisa.dma_transpose")
    whole = Operand(target.name, shape, given.dtype, "sbuf", target.quality, target, True)
    written(scene, whole, given.quality, "nisa.dma_transpose")


def reinterpret(scene: Scene) -> None:
    """The bits of a tile as another dtype, through a view."""
    choices = scene.choices
    found = scene.suitable(spaces=("sbuf", "hbm"))
    if not found:
        return
    value = choices.pick(found)
    dtype = choices.pick(("uint8", "int16", "int32"))
    bytes_ = value.shape[-1] * size_of(value.dtype)
    if bytes_ % size_of(dtype) and not scene.spoil():
        return
    shape = (*value.shape[:-1], bytes_ // size_of(dtype))
    if min(shape) < 1:
        return
    target = fresh(scene, shape, dtype)
    call = "nisa.dma_copy" if value.space == "hbm" else "nisa.tensor_copy"
    scene.emit(f"{call}({target.name}, {value.name}.view(nl.{dtype}))", call)
    whole = Operand(target.name, shape, dtype, "sbuf", target.quality, target, True)
    loose = value.quality.loose
    written(scene, whole, LOOSE if loose else Quality(None), call)


STATEMENTS: tuple[Callable[[Scene], None], ...] = (
    *(
        load,
        load,
        store,
        gather,
        one_offset,
        copy,
        copy,
        tensor_tensor,
        tensor_tensor,
        tensor_scalar,
    ),
    *(functions, activation, memset, iota, reduction, matmul, matmul, transpose, dma_transpose),
    reinterpret,
    *todays_wide.STATEMENTS,
)
LOOPS = ("affine_range", "sequential_range", "static_range")


@st.composite
def todays_programs(draw: Callable[[Any], Any], longest: int = 8) -> Program:
    """Whole kernels of today's dialect of up to ``longest`` drawn statements."""
    choices = Choices(draw)
    scene = Scene(choices, lawful=not choices.chance(30))
    for _ in range(choices.integer(1, 2)):
        argument(scene)
    load(scene)
    if choices.chance(30):
        todays_wide.padded(scene)
    for _ in range(choices.integer(1, longest)):
        statement = STATEMENTS[choices.integer(0, len(STATEMENTS) - 1)]
        if choices.chance(8) and not scene.integers:
            count = choices.integer(1, 3)
            scene.loop(scene.fresh("k"), choices.pick(LOOPS), count, lambda s=statement: s(scene))
        else:
            statement(scene)
    outputs = _outputs(scene)
    return Program(
        tuple(scene.inputs),
        tuple(scene.bodies[0]),
        outputs,
        scene.mutated(),
        zero_sign=False,
        dialect="nki",
    )


def _outputs(scene: Scene) -> Any:
    """Copy every tile that can be read to shared HBM, and return all of them."""
    from tests.fuzz.program import Output

    outputs = []
    for value in list(scene.values):
        if value.space == "hbm" or not value.readable:
            continue
        name = scene.fresh("out")
        shape, part = scene.part(value.shape) if scene.padded else (value.shape, "")
        scene.emit(
            f"{name} = nl.ndarray({shape}, nl.{value.dtype}, buffer=nl.shared_hbm)",
            "nl.ndarray",
        )
        held = value.name
        if value.space == "psum":
            held = scene.fresh("t")
            scene.emit(f"{held} = nl.copy({value.name})", "nl.copy")
        scene.emit(f"nisa.dma_copy({name}, {held}{part})", "nisa.dma_copy")
        outputs.append(Output(name, value.quality.loose, value.opcode))
    return tuple(outputs)
