"""The parts of ``nl`` besides instructions: arithmetic, functions, reductions, loads, stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from difftest.simulator import Space
from difftest.simulator.dtypes import NAMES, TFLOAT32, is_float
from tests.fuzz.masks import mask, maybe
from tests.fuzz.operands import (
    DTYPES,
    FLOATS,
    ON_CHIP,
    destination,
    expression_of,
    integers_of,
    known,
    number,
    operand,
)
from tests.fuzz.scene import Access, Scene, Shape, elements
from tests.fuzz.sinks import sink, target_text
from tests.fuzz.views import AXES
from tests.unit.simulator.instructions.calls.spelling import named

ARITHMETIC = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "mod",
    "fmod",
    "power",
)
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
PYTHON = dict(zip(ARITHMETIC, ("+", "-", "*", "/", None, None, "%"), strict=False))
PYTHON |= dict(zip(COMPARISONS, ("==", "!=", "<", "<=", ">", ">="), strict=True))
PYTHON |= dict(zip(BITS, ("&", "|", "^", "<<", ">>"), strict=True))
UNARY = (
    "relu",
    "square",
    "sign",
    "abs",
    "negative",
    "logical_not",
    "reciprocal",
    "copy",
    "exp",
    "tanh",
    "sigmoid",
    "gelu",
    "gelu_dx",
    "silu",
    "silu_dx",
    "softplus",
    "mish",
    "erf",
    "erf_dx",
    "gelu_apprx_tanh",
    "gelu_apprx_sigmoid",
    "floor",
    "ceil",
    "trunc",
    "invert",
)
RANGED = ("sqrt", "rsqrt", "log", "sin", "arctan", "cos")
"""Functions of a limited range get values inside it."""
REDUCTIONS = ("sum", "max", "min", "mean", "var", "softmax", "prod", "all")


def _more(
    scene: Scene, shape: Shape, *, masks: bool = True, floats: bool = False
) -> str:
    """The arguments ``dtype=`` and ``mask=`` as text."""
    choices = scene.choices
    text = ""
    if choices.chance(25):
        names = FLOATS if floats else tuple(named(dtype) for dtype in DTYPES)
        text = f", dtype=nl.{choices.pick(names)}"
    return text + (maybe(scene, shape) if masks and scene.dialect == "classic" else "")


def binary(scene: Scene) -> None:
    """``nl.add(x, y)`` and similar functions, or Python's operator."""
    choices = scene.choices
    op = choices.pick((*ARITHMETIC, *COMPARISONS, *LOGICAL, *BITS))
    dtypes = [dtype for dtype in DTYPES if integers_of(dtype)] if op in BITS else None
    left = operand(scene, spaces=ON_CHIP, dtypes=dtypes)
    if choices.chance(35) or op in BITS[3:]:
        right = str(choices.pick((1, 2, 0, 3))) if op in BITS else number(scene)
    else:
        axis = choices.integer(0, len(left.shape) - 1) if choices.chance(20) else -1
        shape = tuple(1 if k == axis else size for k, size in enumerate(left.shape))
        right = operand(scene, shape, dtypes=dtypes).text
    first, second = (right, left.text) if choices.chance(15) else (left.text, right)
    if PYTHON.get(op) and scene.dialect == "classic" and choices.chance(45):
        sink(scene, f"({first} {PYTHON[op]} {second})", left.shape, f"nl.{op}")
    else:
        more = _more(scene, left.shape)
        sink(scene, f"nl.{op}({first}, {second}{more})", left.shape, f"nl.{op}")


def unary(scene: Scene) -> None:
    """A function of one tile, in its range."""
    choices = scene.choices
    name = choices.pick((*UNARY, *RANGED))
    dtypes = (
        [dtype for dtype in DTYPES if integers_of(dtype)] if name == "invert" else None
    )
    data = operand(scene, spaces=ON_CHIP, dtypes=dtypes)
    text = data.text
    if name in RANGED:
        text = f"nl.minimum(nl.add(nl.abs({text}), 0.5), 1.5)"
    if (
        name in ("negative", "invert")
        and scene.dialect == "classic"
        and choices.chance(40)
    ):
        sink(scene, f"({'-' if name == 'negative' else '~'}{text})", data.shape, name)
    else:
        sink(
            scene,
            f"nl.{name}({text}{_more(scene, data.shape)})",
            data.shape,
            f"nl.{name}",
        )


def reduced(shape: Shape, axes: Sequence[int], *, keepdims: bool) -> Shape:
    """Return the shape that a reduction leaves."""
    if keepdims:
        return tuple(1 if k in axes else size for k, size in enumerate(shape))
    kept = tuple(size for k, size in enumerate(shape) if k not in axes)
    return kept if len(kept) > 1 else (*kept, 1)


def reduction(scene: Scene) -> None:
    """Along free axes, by the names of ``nl``."""
    choices = scene.choices
    name = choices.pick(REDUCTIONS)
    data = operand(scene, spaces=ON_CHIP)
    ndim = len(data.shape)
    axes = sorted({choices.integer(1, ndim - 1) for _ in range(choices.integer(1, 2))})
    more = _more(scene, data.shape, masks=name != "softmax")
    keepdims = name != "softmax" and choices.chance(40)
    more += ", keepdims=True" if keepdims else ""
    words = axes[0] if len(axes) == 1 else axes
    shape = (
        data.shape
        if name == "softmax"
        else reduced(data.shape, axes, keepdims=keepdims)
    )
    sink(scene, f"nl.{name}({data.text}, axis={words}{more})", shape, f"nl.{name}")


def cast(scene: Scene) -> None:
    """Another dtype, another shape, or the tile itself."""
    choices = scene.choices
    data = operand(scene, spaces=ON_CHIP)
    kind = choices.pick(("astype", "=", "broadcast_to"))
    text = f"{data.text}.astype(nl.{named(choices.pick(DTYPES))})"
    shape = data.shape
    if kind == "broadcast_to":
        axis = choices.integer(0, len(shape) - 1)
        narrow = operand(
            scene, tuple(1 if k == axis else n for k, n in enumerate(shape))
        )
        text = f"nl.broadcast_to({narrow.text}, shape={shape})"
    if kind == "=":  # a name would be the same tensor, not a copy
        target = destination(scene, shape, choices.pick(DTYPES))
        scene.emit(f"{target_text(target.text)} = {data.text}", "=")
    else:
        sink(scene, text, shape, kind)


def matmul(scene: Scene) -> None:
    choices = scene.choices
    depth, rows, columns = (choices.pick((2, 1, 3, 16)) for _ in range(3))
    floats = [NAMES[name] for name in FLOATS]
    x, y = (operand(scene, (depth, size), dtypes=floats) for size in (rows, columns))
    sink(
        scene,
        f"nl.matmul({x.text}, {y.text}, transpose_x=True)",
        (rows, columns),
        "nl.matmul",
    )


def transpose(scene: Scene) -> None:
    choices = scene.choices
    if choices.chance(40):
        shape = (choices.pick((2, 3, 8, 128)), choices.pick((3, 4, 1, 16)))
        kind = choices.pick(("float32", "bfloat16", "int32"))
        given = scene.argument(shape, kind, expression_of(scene, kind), mutable=False)
        text = f"nl.load_transpose2d({given.name}{maybe(scene, shape)})"
        sink(scene, text, shape[::-1], "nl.load_transpose2d")
        return
    data = operand(scene)
    text = f"nl.transpose({data.text}{maybe(scene, data.shape)})"
    sink(scene, text, (elements(data.shape[1:]), data.shape[0]), "nl.transpose")


def _in_hbm(scene: Scene) -> Access:
    found = None if scene.choices.chance(50) else known(scene, (Space.SHARED_HBM,))
    return found or operand(scene, spaces=(Space.SHARED_HBM,))


def load(scene: Scene) -> None:
    """``nl.load`` of a part of an argument, or of a tensor of HBM written before."""
    source = _in_hbm(scene)
    sink(
        scene,
        f"nl.load({source.text}{_more(scene, source.shape)})",
        source.shape,
        "nl.load",
    )


def load_beyond(scene: Scene) -> None:
    """A load whose index leaves its tensor and whose mask brings it back in."""
    choices = scene.choices
    shape = (choices.pick((2, 3, 8)), choices.pick((4, 5, 8)))
    kind = choices.pick(("float32", "int32", "bfloat16"))
    given = scene.argument(shape, kind, expression_of(scene, kind), mutable=False)
    grid = scene.grid_index(shape)
    axis = choices.integer(0, 1)
    items = [f"{grid}.{AXES[k]}" for k in range(2)]
    items[axis] += f" + {choices.integer(1, 3)}"
    inside = f"mask={items[axis]} < {shape[axis]}"
    sink(
        scene, f"nl.load({given.name}[{', '.join(items)}], {inside})", shape, "nl.load"
    )


def store(scene: Scene) -> None:
    """``nl.store`` into an access of a new or old tensor of HBM."""
    choices = scene.choices
    source = operand(scene)
    target = hbm_target(scene, source.shape, choices.pick((source.dtype, *DTYPES)))
    masked = f", mask={mask(scene, source.shape)}" if choices.chance(30) else ""
    text = str(choices.pick((1, 0.5))) if choices.chance(8) else source.text
    scene.emit(f"nl.store({target.text}, {text}{masked})", "nl.store")
    target.value.opcode = "nl.store"


def hbm_target(scene: Scene, shape: Shape, dtype: object) -> Access:
    """A tensor of HBM to write to: a new one, an old one, or a mutable argument."""
    name = named(dtype)
    if name != "tfloat32" and scene.choices.chance(25):
        given = scene.argument(shape, name, expression_of(scene, name), mutable=True)
        return scene.access(given.name, given)
    return destination(scene, shape, NAMES[name.rstrip("_")], (Space.SHARED_HBM,))


def atomic_add(scene: Scene) -> None:
    """``nl.atomic_rmw`` onto rows of a tensor of HBM; a row may be named twice."""
    choices = scene.choices
    rows, columns, count = (choices.pick(sizes) for sizes in ((4, 3), (3, 2), (2, 3)))
    added = operand(scene, (count, columns))
    kind = choices.pick(("float32", "bfloat16", "int32"))
    given = scene.argument(
        (rows, columns), kind, expression_of(scene, kind), mutable=True
    )
    name = scene.fresh("n")
    step = choices.pick((1, 0))
    scene.emit(
        f"{name} = nisa.iota(nl.arange({count})[:, None] * {step}, dtype=nl.int32)",
        "iota",
    )
    at = f"{given.name}[{name}, nl.arange({columns})[None, :]]"
    masked = maybe(scene, (count, columns), 30)
    scene.emit(f"nl.atomic_rmw({at}, {added.text}, op=np.add{masked})", "nl.atomic_rmw")
    given.opcode = "nl.atomic_rmw"


def constant(scene: Scene) -> None:
    choices = scene.choices
    if choices.chance(30):
        size = choices.pick((2, 4, 3))
        kind = choices.pick(("float32", "uint8", "bfloat16"))
        text = f"nl.load(nl.shared_identity_matrix({size}, dtype=nl.{kind}))"
        sink(scene, text, (size, size), "nl.shared_identity_matrix")
        return
    rows, columns = choices.pick(((2, 3), (1, 4), (4, 2)))
    kind = choices.pick(("float32", "int32", "float16", "tfloat32"))
    values = f"np.arange({rows * columns}).reshape(({rows}, {columns})){choices.pick(('', ' / 3'))}"
    text = f"nl.load(nl.shared_constant({values}, dtype=nl.{kind}))"
    sink(scene, text, (rows, columns), "nl.shared_constant")


def dense_index(scene: Scene) -> None:
    """``e[i.p, p] = t[i.p, 2 * p]``: a dense index with an integer names one free element."""
    choices = scene.choices
    found = [
        value
        for value in scene.suitable()
        if len(value.shape) == 2 and not value.blocks
    ]
    if not found:
        return
    left = choices.pick(found)
    right = choices.pick(found)
    rows = min(left.shape[0], right.shape[0])
    grid = scene.grid_index((rows, choices.pick((4, 2, 3))))
    places = [choices.integer(0, value.shape[1] - 1) for value in (right, left)]
    text = f"{right.name}[{grid}.p, {places[0]}] = {left.name}[{grid}.p, {places[1]}]"
    scene.emit(text, "dense index")


def random_seed(scene: Scene) -> None:
    text = str(scene.choices.integer(0, 5))
    if scene.choices.chance(40):
        text = operand(scene, (1, 1)).text
    extra = scene.choices.pick(("", "", ", mask=True", ", mask=False"))
    scene.emit(f"nl.random_seed({text}{extra})", "nl.random_seed")


def reinterpreted(scene: Scene) -> None:
    """The bits of a tensor read, or written, as another dtype.

    Of a NaN the modes do not agree on the bits. What is written through a view may make one, so
    that happens in no loop, whose next turn would read what this one wrote.
    """
    choices = scene.choices
    spaces = (Space.SBUF, Space.PSUM, Space.SHARED_HBM, Space.PRIVATE_HBM)
    found = [
        v
        for v in scene.suitable(spaces=spaces)
        if 2 <= len(v.shape) <= 4 and not v.blocks
    ]
    found = [v for v in found if not is_float(v.dtype) or not v.is_odd]
    if not found or len(scene.bodies) > 1:
        return
    value = choices.pick(found)
    text = value.name
    if choices.chance(40) and value.shape[-1] > 1:
        start = choices.integer(0, value.shape[-1] - 1)
        stop = choices.integer(start + 1, value.shape[-1])
        text += f"[{':, ' * (len(value.shape) - 1)}{start}:{stop}]"
    kind = named(choices.pick(DTYPES))
    seen = scene.access(f"{text}.view(nl.{kind})", value)
    # of others it has fewer than it holds
    whole_bits = TFLOAT32 not in (
        value.dtype,
        seen.dtype,
    )
    if value.writable and whole_bits and choices.chance(40) and not value.space.is_hbm:
        source = operand(scene, seen.shape)
        if scene.dialect == "nki":
            scene.emit(f"nisa.tensor_copy({seen.text}, {source.text})", "view")
        else:
            scene.emit(f"{seen.text}[...] = {source.text}", "view")
        value.opcode = "view"
    elif scene.dialect == "nki":
        call = "nisa.dma_copy" if value.space.is_hbm else "nisa.tensor_copy"
        target = destination(scene, seen.shape, seen.dtype)
        scene.emit(f"{call}({target.text}, {seen.text})", "view")
    else:
        call = "nl.load" if value.space.is_hbm else "nisa.tensor_copy"
        sink(scene, f"{call}({seen.text})", seen.shape, "view")


def padded(scene: Scene) -> None:
    """Draw a tile that is written in one corner only, and read whole by other statements."""
    choices = scene.choices
    shape = (choices.integer(2, 8), choices.integer(2, 12))
    kind = choices.pick(("float32", "bfloat16", "int32", "uint8"))
    name = scene.fresh("t")
    rows, columns = (choices.integer(1, size) for size in shape)
    scene.emit(f"{name} = nl.ndarray({shape}, nl.{kind}, buffer=nl.sbuf)", "nl.ndarray")
    part = f"{name}[0:{rows}, 0:{columns}]"
    if scene.dialect == "nki":
        scene.emit(f"nisa.iota({part}, [[1, {columns}]], 0, {columns})", "nisa.iota")
    else:
        places = (
            f"{columns} * nl.arange({rows})[:, None] + nl.arange({columns})[None, :]"
        )
        scene.emit(f"{part} = nisa.iota({places}, dtype=nl.{kind})", "nisa.iota")
    scene.declare(name, "nisa.iota")
    scene.padded = True


BOTH: tuple[Callable[[Scene], None], ...] = (binary, binary, unary, reinterpreted)
CLASSIC: tuple[Callable[[Scene], None], ...] = (
    *BOTH,
    binary,
    unary,
    reduction,
    cast,
    cast,
    matmul,
    transpose,
    load,
    load_beyond,
    store,
    store,
    atomic_add,
    constant,
    dense_index,
    random_seed,
    reinterpreted,
)
"""Statements of a classic kernel other than drawn calls."""
