"""Operands: tiles that exist, views of them, and new tensors with values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from difftest.simulator import Space
from difftest.simulator.dtypes import NAMES, is_integer
from tests.fuzz import chains, views
from tests.fuzz.scene import Access, Scene, Shape, Value
from tests.unit.simulator.instructions.calls.spelling import named
from tests.unit.simulator.instructions.calls.tensors import NEWER_DTYPES

FLOATS = ("float32", "bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e5m2")
INTEGERS = ("int32", "uint8", "int8", "int16", "uint16", "uint32")
DTYPES = tuple(
    NAMES[name]
    for name in ("float32", "int32", "bfloat16", "uint8", "bool", *FLOATS, *INTEGERS)
)
PARTITIONS = (2, 1, 3, 4, 5, 8, 16, 32, 128)
FREE = (2, 1, 3, 4, 5, 8, 6, 12, 16)
PLAIN = (
    "np.arange(7) - 3",
    "np.arange(11) / 4",
    "np.array([0, 1])",
    "(np.arange(13) * 5 % 13 - 6) / 2",
    "np.array([1])",
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
LARGEST = {"float8_e4m3": 240, "float8_e5m2": 240, "float16": 65504}
FILL = "fill"
"""Note the writers of a tensor without a drawn write: the tensor is not given back."""
ON_CHIP = (Space.SBUF, Space.PSUM)


def shape_of(scene: Scene, ndim: int | None = None) -> Shape:
    """A tile's shape: partitions and one to three free axes, small."""
    choices = scene.choices
    ndim = ndim or choices.pick((2, 2, 3, 4))
    free = [choices.pick(FREE if ndim < 4 else FREE[:5]) for _ in range(ndim - 1)]
    return (choices.pick(PARTITIONS), *free)


def expression_of(scene: Scene, dtype: str) -> str:
    """NumPy's text for the values of an argument: mostly small ones, seldom the odd ones."""
    choices = scene.choices
    kind = choices.pick(("plain", "plain", "plain", "odd"))
    if kind == "odd" and dtype in INTEGERS:
        limits = f"np.iinfo(np.{dtype})"
        return f"np.clip({choices.pick(WIDE_INTEGERS)}, {limits}.min, {limits}.max)"
    if kind == "odd" and dtype in FLOATS:
        most = LARGEST.get(dtype)
        odd = choices.pick(SPECIALS)
        return f"np.clip({odd}, -{most}, {most})" if most else odd
    plain = choices.pick(PLAIN)
    return f"np.abs({plain})" if dtype.startswith("u") or dtype == "bool_" else plain


def filled(
    scene: Scene,
    shape: Shape,
    dtype: np.dtype[Any],
    space: Space = Space.SBUF,
    expression: str = "",
) -> Value:
    """A new tensor, all of it written: from an argument, in its buffer."""
    name = scene.fresh("t")
    kind = named(dtype)
    made = f"{name} = nl.ndarray({shape}, nl.{kind}, buffer=nl.{space.value})"
    if dtype in NEWER_DTYPES:
        scale = kind.startswith("float8_e8m0")  # it lacks a zero: NaN
        number = scene.choices.pick((1, 0.5, 0)) if scale else 0
        scene.emit(made, "nl.ndarray")
        scene.emit(f"nisa.memset({name}, {number})", "nisa.memset")
        return scene.declare(name, FILL)
    host = "float32" if kind == "tfloat32" else kind
    given = scene.argument(
        shape,
        host,
        expression or expression_of(scene, kind),
        mutable=scene.dialect == "nki",
    )
    if space is given.space and host == kind:
        return given
    if space is Space.SBUF:
        cast = "" if host == kind else f", dtype=nl.{kind}"
        scene.emit(f"{name} = nl.load({given.name}{cast})", "nl.load")
        return scene.declare(name, FILL)
    scene.emit(made, "nl.ndarray")
    if space.is_hbm:
        scene.emit(f"nisa.dma_copy(dst={name}, src={given.name})", "nisa.dma_copy")
    elif scene.dialect == "nki":
        scene.emit(
            f"nisa.tensor_copy({name}, nl.load({given.name}))", "nisa.tensor_copy"
        )
    else:
        scene.emit(f"{name}[...] = nl.load({given.name})", "nl.load")
    return scene.declare(name, FILL)


def blocked(scene: Scene, shape: Shape, dtype: np.dtype[Any], space: Space) -> Value:
    """Draw a new tensor of zeros, or of ones, with a block dimension before its partitions."""
    name = scene.fresh("t")
    sizes = f"{shape[0]}, nl.par_dim({shape[1]}), {', '.join(map(str, shape[2:]))}"
    number = scene.choices.pick((0, 1))
    scene.emit(
        f"{name} = nl.full(({sizes}), {number}, nl.{named(dtype)}, buffer=nl.{space.value})",
        "nl.full",
    )
    return scene.declare(name, FILL, blocks=1)


def view_of(scene: Scene, value: Value) -> Access:
    """A view of a value, as the dialect has them."""
    return (chains if scene.dialect == "nki" else views).view_of(scene, value)


def known(
    scene: Scene, spaces: Sequence[Space] = ON_CHIP, dtypes: Sequence[Any] | None = None
) -> Access | None:
    """A view of a value that is there."""
    found = scene.suitable(spaces=tuple(spaces), dtypes=dtypes)
    return view_of(scene, scene.choices.pick(found)) if found else None


def operand(
    scene: Scene,
    shape: Shape | None = None,
    *,
    spaces: Sequence[Space] = (Space.SBUF,),
    dtypes: Sequence[np.dtype[Any]] | None = None,
    plain: bool = False,
) -> Access:
    """Draw a tile to read: an old one, a part of it, or a new one, of ``shape`` if that is given.

    ``plain`` if odd values are excluded.
    """
    made = _any_operand(scene, shape, spaces, dtypes)
    if plain and made.value.is_odd:
        value = filled(scene, made.shape, made.dtype, spaces[0], "np.arange(7)")
        return scene.access(value.name, value)
    return made


def _any_operand(
    scene: Scene,
    shape: Shape | None,
    spaces: Sequence[Space],
    dtypes: Sequence[np.dtype[Any]] | None,
) -> Access:
    choices = scene.choices
    if shape is None:
        found = known(scene, spaces, dtypes) if choices.chance(80) else None
        if found is not None:
            return found
        shape = shape_of(scene)
    fit = [
        v
        for v in scene.suitable(spaces=tuple(spaces), dtypes=dtypes)
        if holds(v, shape)
    ]
    if fit and choices.chance(70):
        return part_of(scene, choices.pick(fit), shape)
    space = spaces[0] if choices.chance(85) else choices.pick(spaces)
    return new(scene, shape, choices.pick(dtypes or DTYPES), space, reading=True)


def new(
    scene: Scene, shape: Shape, dtype: np.dtype[Any], space: Space, *, reading: bool
) -> Access:
    """An access of ``shape`` of a new tensor, all of it written."""
    if scene.dialect == "nki" or space.is_hbm or len(shape) < 2:
        value = filled(scene, shape, dtype, space)
        return scene.access(value.name, value)
    wanted = views.base_for(scene, shape, reading=reading)
    make = blocked if wanted.kind == "block" else filled
    return views.access(scene, make(scene, wanted.shape, dtype, space), shape, wanted)


def holds(value: Value, shape: Shape) -> bool:
    """Return whether a part of a value has the shape."""
    return (
        value.blocks == 0
        and len(value.shape) == len(shape)
        and all(have >= want for have, want in zip(value.shape, shape, strict=True))
    )


def part_of(scene: Scene, value: Value, shape: Shape) -> Access:
    """An access of ``shape`` of a tensor that is at least as large along each axis."""
    if value.shape == shape and scene.choices.chance(50):
        return scene.access(value.name, value)
    kinds = ("sliced",) if scene.dialect == "nki" else ("sliced", "indexed")
    wanted = views.Wanted(
        value.shape, scene.choices.pick(kinds), tuple(range(len(shape)))
    )
    return views.access(scene, value, shape, wanted)


def destination(
    scene: Scene,
    shape: Shape,
    dtype: np.dtype[Any],
    spaces: Sequence[Space] = (Space.SBUF,),
    *,
    fill: bool = False,
) -> Access:
    """A tile to write to; ``fill`` if its old values matter."""
    choices = scene.choices
    fit = [
        value
        for value in scene.suitable(spaces=tuple(spaces), dtypes=(dtype,))
        if value.writable and holds(value, shape)
    ]
    if fit and choices.chance(50):
        return part_of(scene, choices.pick(fit), shape)
    space = spaces[0] if choices.chance(85) else choices.pick(spaces)
    if scene.dialect == "nki":  # as many elements, in that shape or another
        shape = choices.pick(
            (shape, shape, (shape[0], math.prod(shape[1:])), (*shape, 1))
        )
    if (fill or choices.chance(40)) and dtype not in NEWER_DTYPES:
        return new(scene, shape, dtype, space, reading=False)
    wanted = views.base_for(scene, shape, reading=False) if not space.is_hbm else None
    if scene.dialect == "nki" or wanted is None or wanted.kind == "block":
        wanted = views.Wanted(shape, "whole")
    name = scene.fresh("e")
    text = f"{name} = nl.ndarray({wanted.shape}, nl.{named(dtype)}, buffer=nl.{space.value})"
    if space is Space.SHARED_HBM:
        scene.before(text)
        scene.kept.append(scene.declare(name))
    else:
        scene.emit(text, "nl.ndarray")
        scene.declare(name)
    return views.access(scene, scene.values[-1], shape, wanted)


def number(scene: Scene) -> str:
    """A Python number, seldom a NumPy one."""
    choices = scene.choices
    value = choices.pick((1, 2, 0, 3, 0.5, -1, -2, 1.25, 38))
    if choices.chance(10):
        return f"np.float32({value})"
    return (
        choices.pick(('float("inf")', "1e30", "0.1"))
        if choices.chance(4)
        else str(value)
    )


def integers_of(dtype: np.dtype[Any]) -> bool:
    """Return whether bitvec operators take it."""
    return is_integer(dtype) or dtype == np.bool_
