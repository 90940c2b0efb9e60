"""Operands: tiles that exist, views of them, and new tensors with values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tests.fuzz.exactness import ROUGH, Quality, constant
from tests.fuzz.program import Input
from tests.fuzz.scene import Operand, Scene, Shape, Value
from tests.fuzz.views import Wanted, access, base_for, view_of, whole

FLOATS = ("float32", "bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e5m2")
INTEGERS = ("int32", "uint8", "int8", "int16", "uint16", "uint32")
DTYPES = (
    "float32",
    "float32",
    "int32",
    "float16",
    "bfloat16",
    "uint8",
    "bool_",
    *FLOATS[3:],
    *INTEGERS[2:],
)
ON_CHIP = ("sbuf", "psum")
PARTITIONS = (2, 1, 3, 4, 5, 8, 16, 32, 128)
FREE = (2, 1, 3, 4, 5, 8, 6, 12, 16)

RECIPES: tuple[tuple[str, Quality], ...] = (
    ("np.arange(7) - 3", Quality(2)),
    ("np.arange(11) / 4", Quality(2, 2)),
    ("np.array([0, 1])", Quality(1)),
    ("(np.arange(13) * 5 % 13 - 6) / 2", Quality(3, 1)),
    ("np.array([1])", Quality(1)),
)
WIDE_INTEGERS = (
    "np.array([2**31 - 1, -(2**31), 3, -1, 2**24 + 1])",
    "np.array([2**32 - 1, 0, 2**31, 5])",
    "np.array([127, -128, 255, -1, 32767, -32768, 65535])",
)
SPECIALS = (
    "np.array([np.inf, 1.0, -0.0, np.nan, -np.inf, 0.0])",
    "np.array([1e-45, -1e-40, 3e38, 65504.0, -2.5, 6e-8, 448.0])",
    "np.array([0.1, 1 / 3, 1e-3, 2049.0, 257.0, -17.3])",
)


def shape_of(scene: Scene, ndim: int | None = None) -> Shape:
    """A tile's shape: partitions and one to three free axes, small."""
    choices = scene.choices
    ndim = ndim or choices.pick((2, 2, 3, 4))
    free = [choices.pick(FREE if ndim < 4 else FREE[:5]) for _ in range(ndim - 1)]
    return (choices.pick(PARTITIONS), *free)


def dtype_of(scene: Scene, allowed: tuple[str, ...] | None = None) -> str:
    """A dtype, one that is not allowed in a spoilt program."""
    if allowed is None or scene.spoil():
        return scene.choices.pick(DTYPES)
    return scene.choices.pick(allowed)


def new_input(
    scene: Scene, shape: Shape, dtype: str, *, exact: bool = False, mutable: bool = False
) -> Value:
    """An argument of the kernel: a tensor in HBM, which it may write to if ``mutable``."""
    choices = scene.choices
    kind = "plain" if exact else choices.pick(("plain", "plain", "plain", "wide", "special"))
    if kind == "wide" and dtype in INTEGERS:
        limits = f"np.iinfo(np.{dtype})"
        expression = f"np.clip({choices.pick(WIDE_INTEGERS)}, {limits}.min, {limits}.max)"
        quality = ROUGH
    elif kind == "special" and dtype in FLOATS:
        expression, quality = choices.pick(SPECIALS), ROUGH
        if dtype.startswith("float8"):
            expression = f"np.clip({expression}, -240, 240)"
        elif dtype == "float16":
            expression = f"np.clip({expression}, -65504, 65504)"
    else:
        expression, quality = choices.pick(RECIPES)
        if dtype.startswith("u") or dtype == "bool_":
            expression = f"np.abs({expression})"
    value = Value(scene.fresh("m" if mutable else "a"), shape, dtype, "hbm", quality.rounded(dtype))
    value.argument, value.writable = True, mutable
    scene.inputs.append(Input(value.name, shape, dtype, expression, mutable))
    return value


def filled(
    scene: Scene, shape: Shape, dtype: str, space: str, *, exact: bool = False, blocks: int = 0
) -> Value:
    """A new tensor on chip, all of it written."""
    choices = scene.choices
    name = scene.fresh("t")
    value = Value(name, shape, dtype, space, blocks=blocks)
    sizes = ", ".join(
        f"nl.par_dim({s})" if blocks and k == blocks else str(s) for k, s in enumerate(shape)
    )
    kinds = ["load", "full", "memset", "iota", "zeros"]
    kind = choices.pick(kinds) if not blocks and space == "sbuf" else "zeros"
    if kind == "load" and dtype != "tfloat32":
        source = new_input(scene, shape, dtype, exact=exact)
        scene.emit(f"{name} = nl.load({source.name})", "nl.load")
        value.quality, value.opcode = source.quality, "nl.load"
    elif kind == "iota":
        index = scene.grid_index(shape)
        terms = " + ".join(f"{k + 1} * {index}[{k}]" for k in range(len(shape)))
        scene.emit(f"{name} = nisa.iota({terms}, dtype=nl.{dtype})", "nisa.iota")
        largest = sum((k + 1) * (size - 1) for k, size in enumerate(shape))
        value.quality, value.opcode = constant(largest).rounded(dtype), "nisa.iota"
    else:
        number = choices.pick((0, 1, 2, 3, 0.5, -1))
        if dtype.startswith("u") or dtype == "bool_":
            number = abs(number)
        if kind == "memset":
            scene.emit(f"{name} = nisa.memset({shape}, {number}, dtype=nl.{dtype})", "nisa.memset")
        else:
            scene.emit(
                f"{name} = nl.full(({sizes}), {number}, nl.{dtype}, buffer=nl.{space})"
                if number or choices.chance(30)
                else f"{name} = nl.zeros(({sizes}), nl.{dtype}, buffer=nl.{space})",
                "nl.full",
            )
        value.quality, value.opcode = constant(number).rounded(dtype), f"nl.{kind}"
    return scene.declare(value)


def operand(
    scene: Scene,
    shape: Shape | None = None,
    *,
    spaces: tuple[str, ...] = ON_CHIP,
    dtypes: tuple[str, ...] | None = None,
    exact: bool = False,
    loose: bool = False,
    suits: Callable[[Shape], bool] | None = None,
) -> Operand:
    """A tile to read: an old one, a part of it, or a new one, of ``shape`` if that is given.

    ``exact`` asks for values that float32 adds up exactly, ``loose`` allows inexact ones.
    """
    choices = scene.choices
    if scene.spoil():
        anything = [value for value in scene.values if loose or not value.quality.loose]
        if anything:
            return view_of(scene, choices.pick(anything[::-1]))
    known = scene.suitable(spaces=spaces, dtypes=dtypes, exact=exact, loose=loose)
    if shape is None:
        fit = [value for value in known if value.space != "hbm"]
        if fit and choices.chance(75):
            found = view_of(scene, choices.pick(fit))
            if suits is None or suits(found.shape):
                return found
        shape = shape_of(scene)
        if suits is not None and not suits(shape):
            shape = next(s for s in _SOME_SHAPES if suits(s))
    fit = [value for value in known if _holds(value, shape)]
    if fit and choices.chance(60):
        return _part(scene, choices.pick(fit), shape)
    wanted = base_for(scene, shape, reading=True)
    space = "psum" if "psum" in spaces and choices.chance(12) else spaces[0]
    dtype = dtype_of(scene, dtypes)
    if space == "psum" and (dtypes is None or "float32" in dtypes):
        dtype = "float32"
    value = filled(scene, wanted.shape, dtype, space, exact=exact, blocks=wanted.block)
    return access(scene, value, shape, wanted)


_SOME_SHAPES = ((2, 8), (1, 4), (16, 8), (32, 4), (2, 2, 4), (1, 2, 2, 2), (2, 6), (128, 8))


def _holds(value: Value, shape: Shape) -> bool:
    return (
        value.blocks == 0
        and len(value.shape) == len(shape)
        and all(have >= want for have, want in zip(value.shape, shape, strict=True))
    )


def _part(scene: Scene, value: Value, shape: Shape) -> Operand:
    """An access of ``shape`` of a tensor that is at least as large along each axis."""
    kind = scene.choices.pick(("sliced", "indexed"))
    if value.shape == shape and scene.choices.chance(50):
        return whole(value)
    return access(scene, value, shape, Wanted(value.shape, kind, tuple(range(len(shape)))))


def destination(
    scene: Scene,
    shape: Shape,
    *,
    dtype: str | None = None,
    spaces: tuple[str, ...] = ("sbuf", "psum"),
    fill: bool = False,
) -> Operand:
    """A tile to write to. ``fill`` if its old values matter; ``dtype`` if it must be that one."""
    choices = scene.choices
    wants = None if dtype is None else (dtype,)
    known = [
        value
        for value in scene.suitable(spaces=spaces, dtypes=wants)
        if value.writable and _holds(value, shape)
    ]
    if known and choices.chance(50):
        return _part(scene, choices.pick(known), shape)
    wanted = base_for(scene, shape, reading=False)
    space = "psum" if "psum" in spaces and choices.chance(15) else "sbuf"
    chosen = dtype or dtype_of(scene)
    if fill or choices.chance(50):
        value = filled(scene, wanted.shape, chosen, space, exact=True, blocks=wanted.block)
        return access(scene, value, shape, wanted)
    name = scene.fresh("e")
    sizes = ", ".join(
        f"nl.par_dim({s})" if wanted.block and k == wanted.block else str(s)
        for k, s in enumerate(wanted.shape)
    )
    scene.emit(f"{name} = nl.ndarray(({sizes}), nl.{chosen}, buffer=nl.{space})", "nl.ndarray")
    value = Value(name, wanted.shape, chosen, space, constant(0), wanted.block, readable=False)
    scene.declare(value)
    return access(scene, value, shape, wanted)


def number(scene: Scene, dtype: str = "float32", *, nonzero: bool = False) -> tuple[str, Quality]:
    """A Python number, seldom a NumPy one, and its quality."""
    choices = scene.choices
    value = choices.pick((1, 2, 0, 3, 0.5, -1, -2, 1.25, 38))
    if nonzero and value == 0:
        value = 2
    if choices.chance(10):
        return f"np.float32({value})", constant(value)
    if choices.chance(4):
        return choices.pick(('float("inf")', "1e30", "0.1")), ROUGH
    return str(value), constant(value)


def vector(scene: Scene, partitions: int, dtypes: tuple[str, ...] | None = None) -> Operand:
    """A tile with one element in each partition."""
    return operand(scene, (partitions, 1), dtypes=dtypes)


def renamed(source: Operand, text: str, **changes: object) -> Operand:
    """An expression over an operand: another text, and no base to write to."""
    return replace(source, text=text, base=None, covers=False, **changes)  # type: ignore[arg-type]


def elements(shape: Shape) -> int:
    return math.prod(shape)
