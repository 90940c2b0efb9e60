"""Instructions element by element: arithmetic, activations, copies and casts."""

from __future__ import annotations

from difftest.simulator.dtypes import NAMES, name_of
from difftest.simulator.instructions.values import promote_dtypes
from tests.fuzz.exactness import LOOSE, ROUGH, Quality, either, product, total
from tests.fuzz.operands import (
    FLOATS,
    INTEGERS,
    destination,
    elements,
    number,
    operand,
    renamed,
    vector,
)
from tests.fuzz.scene import Operand, Scene, Shape
from tests.fuzz.sinks import finish

ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
SHIFTS = ("left_shift", "right_shift")
ONE_ROUNDING = ("divide", "mod", "fmod")
BINARY = (
    *ARITHMETIC,
    *ARITHMETIC,
    *COMPARISONS,
    *LOGICAL,
    *ONE_ROUNDING,
    *BITWISE,
    *SHIFTS,
    "power",
)
PYTHON = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "mod": "%",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "left_shift": "<<",
    "right_shift": ">>",
    "power": "**",
}
BITS = (*INTEGERS, "bool_")
"""What bitvec operators take."""
ENGINES = ("vector", "gpsimd", "scalar", "tensor")
PLAIN_FUNCTIONS = ("relu", "square", "sign", "abs")
"""Exact in float32 whichever way they are computed."""
CURVED = (
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
)
RANGED = ("sqrt", "rsqrt", "log", "sin", "arctan", "reciprocal")


def joined(op: str, a: Quality, b: Quality) -> Quality:
    """The quality of ``a <op> b``."""
    if a.loose or b.loose or op == "power":
        return LOOSE
    if op in ("add", "subtract"):
        return total(either(a, b), 2)
    if op == "multiply":
        return product(a, b)
    if op in ("maximum", "minimum"):
        return either(a, b)
    if op in COMPARISONS or op in LOGICAL:
        return Quality(1)
    return ROUGH


def promoted(a: str, b: str) -> str:
    """The result's dtype of two tiles."""

    def dtype(name: str) -> str:
        return "bool" if name == "bool_" else name

    return name_of(promote_dtypes(NAMES[dtype(a)], NAMES[dtype(b)])).replace("bool", "bool_")


def note_zeros(scene: Scene, op: str) -> None:
    """A maximum of 0.0 and -0.0 may be either: their signs are not compared in such a program."""
    if op in ("maximum", "minimum", "max", "min", "relu"):
        scene.zero_sign = False


def binary_op(scene: Scene) -> tuple[str, tuple[str, ...] | None]:
    """An operator, and the dtypes that it takes (None for all)."""
    op = scene.choices.pick(BINARY)
    note_zeros(scene, op)
    return op, BITS if op in BITWISE or op in SHIFTS else None


def _broadcast(scene: Scene, shape: Shape, *, partitions: bool) -> Shape:
    """A shape that broadcasts to ``shape``."""
    if not scene.choices.chance(20):
        return shape
    axis = scene.choices.integer(0 if partitions else 1, len(shape) - 1)
    return tuple(1 if k == axis else size for k, size in enumerate(shape))


def language_binary(scene: Scene) -> Operand:
    """``nl.add(x, y)`` and kin, or Python's operator."""
    choices = scene.choices
    op, dtypes = binary_op(scene)
    left = operand(scene, dtypes=dtypes)
    scalar = op in SHIFTS or choices.chance(35)
    if scalar:
        text, quality = number(scene)
        if dtypes:
            text, quality = str(choices.pick((1, 2, 0, 3))), ROUGH
        dtype = left.dtype if text.lstrip("-").isdigit() or left.dtype in FLOATS else "float32"
        if left.dtype == "uint32" and dtype == "uint32" and not dtypes:
            dtype = "float32"
        elif (text.isdigit() and left.dtype in INTEGERS and left.dtype != "uint32") or (
            left.dtype == "bool_" and dtype == "bool_"
        ):
            dtype = "int32"
    else:
        right = operand(scene, _broadcast(scene, left.shape, partitions=True), dtypes=dtypes)
        text, quality = right.text, right.quality
        dtype = promoted(left.dtype, right.dtype)
    if op in COMPARISONS or op in LOGICAL:
        dtype = "bool_"
    result = joined(op, left.quality, quality)
    first, second = (text, left.text) if scalar and choices.chance(30) else (left.text, text)
    if op in PYTHON and choices.chance(45) and op != "power":
        words, masked = f"({first} {PYTHON[op]} {second})", False
    else:
        if dtypes:
            dtype, masked = left.dtype if scalar else dtype, False
            if choices.chance(25):
                dtype = choices.pick(BITS)
            extra = f", dtype=nl.{dtype}"
        else:
            extra, dtype, masked = finish(scene, left.shape, dtype, loose=result.loose)
        words = f"nl.{op}({first}, {second}{extra})"
    return Operand(words, left.shape, dtype, quality=result, masked=masked, opcode=f"nl.{op}")


def tensor_tensor(scene: Scene) -> Operand:
    op, dtypes = binary_op(scene)
    left = operand(scene, dtypes=dtypes)
    spaces = ("sbuf",) if left.space == "psum" else ("sbuf", "psum")
    shape = _broadcast(scene, left.shape, partitions=False)
    right = operand(scene, shape, dtypes=dtypes, spaces=spaces)
    result = joined(op, left.quality, right.quality)
    dtype = promoted(left.dtype, right.dtype)
    masks = scene.choices.chance(70)
    if dtypes:
        dtype, masked = scene.choices.pick((dtype, dtype, *BITS)), False
        extra = f", dtype=nl.{dtype}"
    else:
        extra, dtype, masked = finish(scene, left.shape, dtype, masks=masks, loose=result.loose)
    if scene.choices.chance(12):
        extra += f", engine=nisa.{scene.choices.pick(ENGINES)}_engine"
    text = f"nisa.tensor_tensor({left.text}, {right.text}, op=nl.{op}{extra})"
    return Operand(
        text, left.shape, dtype, quality=result, masked=masked, opcode="nisa.tensor_tensor"
    )


def _step(scene: Scene, data: Operand, kinds: tuple[str, ...]) -> tuple[str, str, Quality]:
    """An operator with a number or a vector: its name, the operand's text and quality."""
    op = scene.choices.pick(kinds)
    note_zeros(scene, op)
    if op in BITWISE or op in SHIFTS:
        return op, str(scene.choices.pick((1, 3, 0, 2))), ROUGH
    if scene.choices.chance(35):
        column = vector(scene, data.shape[0])
        return op, column.text, column.quality
    return op, *number(scene)


_ARITHMETIC_STEPS = (*ARITHMETIC, *COMPARISONS, *LOGICAL, *ONE_ROUNDING)


def tensor_scalar(scene: Scene) -> Operand:
    choices = scene.choices
    bitwise = choices.chance(15)
    data = operand(scene, dtypes=BITS if bitwise else None)
    kinds = (*BITWISE, *SHIFTS) if bitwise else (*_ARITHMETIC_STEPS, "power")
    op, text, quality = _step(scene, data, kinds)
    result = joined(op, data.quality, quality)
    words = f"nisa.tensor_scalar({data.text}, nl.{op}, {text}"
    if choices.chance(25):
        words += ", reverse0=True"
    if choices.chance(40) and not result.loose:
        op1, text1, quality1 = _step(scene, data, kinds if bitwise else _ARITHMETIC_STEPS)
        words += f", op1=nl.{op1}, operand1={text1}"
        result = joined(op1, result, quality1)
        if choices.chance(25):
            words += ", reverse1=True"
    dtype, masked, extra = data.dtype, False, ""
    if bitwise and choices.chance(25):
        dtype = choices.pick(BITS)
        extra = f", dtype=nl.{dtype}"
    elif not bitwise:
        extra, dtype, masked = finish(scene, data.shape, data.dtype, loose=result.loose)
    if choices.chance(8):
        extra += f", engine=nisa.{choices.pick(ENGINES)}_engine"
    return Operand(
        f"{words}{extra})",
        data.shape,
        dtype,
        quality=result,
        masked=masked,
        opcode="nisa.tensor_scalar",
    )


def scalar_tensor_tensor(scene: Scene) -> Operand:
    data = operand(scene)
    op0, text, quality = _step(scene, data, _ARITHMETIC_STEPS)
    spaces = ("sbuf",) if data.space == "psum" else ("sbuf", "psum")
    other = operand(scene, data.shape, spaces=spaces)
    op1 = scene.choices.pick(_ARITHMETIC_STEPS)
    note_zeros(scene, op1)
    result = joined(op1, joined(op0, data.quality, quality), other.quality)
    extra, dtype, masked = finish(scene, data.shape, data.dtype, loose=result.loose)
    for flag in ("reverse0", "reverse1"):
        if scene.choices.chance(20):
            extra += f", {flag}=True"
    text = (
        f"nisa.scalar_tensor_tensor(data={data.text}, op0=nl.{op0}, operand0={text}, "
        f"op1=nl.{op1}, operand1={other.text}{extra})"
    )
    return Operand(
        text, data.shape, dtype, quality=result, masked=masked, opcode="nisa.scalar_tensor_tensor"
    )


def unary(scene: Scene) -> Operand:
    """Functions of one tile: exact ones, negation, inversion, and the reciprocal."""
    choices = scene.choices
    name = choices.pick(
        (
            *PLAIN_FUNCTIONS,
            "nl.negative",
            "-",
            "~",
            "nl.invert",
            "nl.logical_not",
            "nl.reciprocal",
            "nisa.reciprocal",
        )
    )
    note_zeros(scene, name)
    inverts = name in ("~", "nl.invert")
    data = operand(scene, dtypes=(*INTEGERS, "bool_") if inverts else None)
    quality = data.quality
    if name == "square":
        quality = product(quality, quality)
    elif name == "nl.logical_not" or (name == "~" and data.dtype == "bool_"):
        quality = Quality(1)
    elif inverts or "reciprocal" in name:
        quality = ROUGH
    if name in ("-", "~"):
        return renamed(data, f"({name}{data.text})", quality=quality, space="sbuf", opcode=name)
    opcode = name if "." in name else f"nl.{name}"
    dtype = "bool_" if name == "nl.logical_not" else data.dtype
    extra, dtype, masked = ("", dtype, False) if inverts else finish(scene, data.shape, dtype)
    return Operand(
        f"{opcode}({data.text}{extra})",
        data.shape,
        dtype,
        quality=quality,
        masked=masked,
        opcode=opcode,
    )


def copies(scene: Scene) -> Operand:
    """A copy, a cast, or the tile itself."""
    choices = scene.choices
    data = operand(scene, loose=True)
    name = choices.pick(("nisa.tensor_copy", "nl.copy", "astype", "itself", "nl.broadcast_to"))
    loose = data.quality.loose
    if name == "itself":
        return renamed(data, data.text, opcode="=")
    if name == "nl.broadcast_to":
        narrow = operand(scene, _broadcast(scene, data.shape, partitions=True), loose=True)
        return renamed(
            narrow,
            f"nl.broadcast_to({narrow.text}, shape={data.shape})",
            shape=data.shape,
            space="sbuf",
            opcode=name,
        )
    if name == "astype":
        dtype = choices.pick(FLOATS if loose else (*FLOATS, *INTEGERS))
        return renamed(
            data,
            f"{data.text}.astype(nl.{dtype})",
            dtype=dtype,
            space="sbuf",
            quality=data.quality.rounded(dtype),
            opcode=name,
        )
    extra, dtype, masked = finish(scene, data.shape, data.dtype, loose=loose)
    if name == "nisa.tensor_copy" and choices.chance(20):
        extra += f", engine=nisa.{choices.pick(ENGINES)}_engine"
    return Operand(
        f"{name}({data.text}{extra})",
        data.shape,
        dtype,
        quality=data.quality,
        masked=masked,
        opcode=name,
    )


def functions(scene: Scene) -> Operand:
    """``nl.exp`` and kin; those of a limited range get values inside it."""
    choices = scene.choices
    name = choices.pick((*CURVED, *RANGED))
    text, shape, dtype = _argument(scene, name)
    extra, dtype, masked = finish(scene, shape, dtype, loose=True)
    return Operand(
        f"nl.{name}({text}{extra})", shape, dtype, quality=LOOSE, masked=masked, opcode=f"nl.{name}"
    )


def _argument(scene: Scene, name: str) -> tuple[str, Shape, str]:
    if name in RANGED:
        data = operand(scene, dtypes=FLOATS[:2], exact=True)
        if scene.spoil():
            return data.text, data.shape, data.dtype
        text = f"nl.minimum(nl.add(nl.abs({data.text}), 0.5), 1.5)"
        return text, data.shape, data.dtype
    data = operand(scene)
    return data.text, data.shape, data.dtype


def activation(scene: Scene) -> Operand:
    """``nisa.activation`` and ``activation_reduce``, with scale, bias and the registers."""
    choices = scene.choices
    plain = choices.chance(60)
    name = choices.pick((*PLAIN_FUNCTIONS, "copy") if plain else CURVED)
    note_zeros(scene, name)
    data = operand(scene, exact=plain)
    extra, quality = "", data.quality
    if choices.chance(40):
        if choices.chance(30):
            factor = vector(scene, data.shape[0], ("float32",))
            text, given = factor.text, factor.quality
        else:
            text, given = number(scene)
        extra += f", scale={text}"
        quality = product(quality, given)
    if choices.chance(40):
        bias = vector(scene, data.shape[0], ("float32", "float16", "bfloat16"))
        extra += f", bias={bias.text}"
        quality = total(either(quality, bias.quality), 2)
    if name == "square":
        quality = product(quality, quality)
    quality = quality if plain else LOOSE
    reduces = total(quality, elements(data.shape)).exact and choices.chance(45)
    op = "nisa.activation"
    if reduces:
        into = registers(scene, data, quality)
        if choices.chance(50):
            op = "nisa.activation_reduce"
            extra += f", reduce_op=np.add, reduce_res={into}"
        else:
            command = choices.pick(("reset_reduce", "reduce", "reset"))
            extra += f", reduce_op=np.add, reduce_res={into}, reduce_cmd=nisa.reduce_cmd.{command}"
    more, dtype, masked = finish(scene, data.shape, data.dtype, loose=quality.loose)
    text = f"{op}(nl.{name}, {data.text}{extra}{more})"
    return Operand(text, data.shape, dtype, quality=quality, masked=masked, opcode=op)


def registers(scene: Scene, data: Operand, quality: Quality) -> str:
    """The text of a [P, 1] destination that a reduction is read out to."""
    target = destination(scene, (data.shape[0], 1), spaces=("sbuf",))
    scene.wrote(target, ROUGH if scene.integers else total(quality, elements(data.shape)), "reduce")
    return target.text
