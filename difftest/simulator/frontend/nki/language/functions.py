"""The functions of ``nki.language``: operators as tokens for ``op=`` and as functions; reductions.

A function's result is a new tile in SBUF with the shape of its input, and with its dtype unless
``dtype`` names another. A number may be an operand beside a tile. Broadcasting of tiles is reported
as a note (release notes of NKI 0.3, known issues). For functions without a documented operator, AWS
documents the result, not the instructions. A trace has the instructions chosen here, which compute
in float32 and round once. Reductions are along the last free axes. A reduced axis is removed unless
``keepdims``, and at least two dimensions stay. Source: the stubs of ``nki.language`` at v2.32.0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT32, WIDE_INTEGERS, as_nki_dtype
from difftest.simulator.errors import NotModelledError
from difftest.simulator.frontend.arguments import (
    LARGEST_ANGLE,
    as_flag,
    last_axes,
    not_taken,
)
from difftest.simulator.frontend.levels import check_level, named, public
from difftest.simulator.frontend.nki.calls import (
    OperatorName,
    issue_new,
    need_operand,
    settle,
    to_one_size,
)
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.language.creation import SBUF, new_tensor
from difftest.simulator.frontend.nki.tensor import ComparedTensor
from difftest.simulator.instructions import activation as scalar_engine
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import elementwise as vector_engine
from difftest.simulator.instructions import reduce as instructions
from difftest.simulator.instructions.alu import (
    ACTIVATIONS,
    ALU_OPS,
    NKI_OPS,
    AluOp,
    alu_op,
    check_generation,
)
from difftest.simulator.instructions.checks import is_number, need_number, need_tile
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_OPERANDS = (Tile, DynamicView)
_WIDE_INTEGERS = frozenset(WIDE_INTEGERS)

Function = Callable[..., Any]
Body = Callable[[Any, Any], Any]
"""Computes a function's result from its tile and the result's dtype."""


def wanted(dtype: object, like: Any = None) -> Any:
    """Return the dtype of a call; by default that of ``like``, or None for the usual one."""
    if dtype is None:
        return getattr(like, "dtype", None)
    return as_nki_dtype(dtype)


@functools.cache
def _operator_named(name: str) -> AluOp:
    """Return the operator of the function of a name."""
    return alu_op(OperatorName(name), f"nl.{name}", NKI_OPS)


def elementwise(name: str, x: Any, y: Any, dtype: object) -> Any:
    """Compute ``x <op> y``: tensor_tensor for two tiles, tensor_scalar for a tile and a number."""
    where = f"nl.{name}"
    op = _operator_named(name)
    check_generation(op, where, current().machine)
    if isinstance(x, _OPERANDS) and isinstance(y, _OPERANDS):
        result = wanted(dtype, x)
        # AWS's examples broadcast a column to a tile. Other functions do not broadcast.
        takes_column = name in ("abs_max", "abs_min")
        if takes_column and y.size == y.shape[0] < x.size:
            return _with_scalar(op, x, y, result)
        return _of_two_tiles(op, *to_one_size(where, x, y), result)
    if isinstance(x, _OPERANDS) and is_number(y):
        if name == "power":
            raise not_taken(
                where,
                "no number as y: it does not compile (release notes of NKI 0.3, known issues)",
                "a number as y",
                f"nl.power({x!r}, {y!r})",
                error=NotModelledError,
            )
        return _with_scalar(op, x, y, wanted(dtype, x))
    if isinstance(y, _OPERANDS) and is_number(x):
        return _with_scalar(op, y, x, wanted(dtype, y), reverse=True)
    raise not_taken(
        where,
        "two tiles, or a tile and a number",
        f"a {type(x).__name__} and a {type(y).__name__}",
        f"{x!r:.60} and {y!r:.60}",
    )


def _with_scalar(
    op: AluOp, tile: Any, scalar: Any, dtype: Any, *, reverse: bool = False
) -> Any:
    """Compute ``tile <op> scalar`` of a number or a column; ``scalar <op> tile`` if reversed."""
    options = (op, reverse, None, False)
    operands = (tile, scalar, None)
    return issue_new(vector_engine.tensor_scalar, operands, options, dtype=dtype)


def _of_two_tiles(op: AluOp, x: Any, y: Any, dtype: Any) -> Any:
    """Compute ``x <op> y``; integers of 32 bits on the engine that can read their memory."""
    if not _WIDE_INTEGERS.issuperset((x.dtype, y.dtype, dtype)):
        return issue_new(vector_engine.tensor_tensor, (x, y), (op,), dtype=dtype)
    in_psum = Space.PSUM in (x._space, y._space)
    engine = Engine.VECTOR if in_psum else Engine.UNKNOWN
    dst = new_tensor(x.shape, dtype, SBUF, "", "nl.ndarray")
    return issue_new(vector_engine.tensor_tensor, (x, y), (op,), dst=dst, engine=engine)


def with_number(x: Any, op: str, number: float, dtype: Any, then: Any = None) -> Any:
    """Compute ``x <op> number`` on the Vector Engine.

    ``then`` is a second operator and its number.
    """
    second, other = then or (None, None)
    options = (ALU_OPS[op], False, ALU_OPS[second] if second else None, False)
    return issue_new(
        vector_engine.tensor_scalar, (x, number, other), options, dtype=dtype
    )


def activated(name: str, x: Any, dtype: Any) -> Any:
    """Apply a function of the Scalar Engine, by name, to ``x``."""
    if name == "rsqrt" and x._space is Space.PSUM:
        check_level("nl.rsqrt of a tile in PSUM")
    options = (name, None, Accumulate.IDLE)
    return issue_new(
        scalar_engine.activation, (x, 1.0, None), options, others=(None,), dtype=dtype
    )


def inverted(x: Any, dtype: Any) -> Any:
    """Compute ``1 / x`` on the Vector Engine."""
    return issue_new(vector_engine.reciprocal, (x,), dtype=dtype)


def _sine(shift: float, x: Any, dtype: Any) -> Any:
    """Compute ``sin(x + shift)``, with the angle reduced to the Scalar Engine's range."""
    x = with_number(x, "add", shift + np.pi, FLOAT32, ("mod", 2 * np.pi))
    x = with_number(x, "add", -np.pi, FLOAT32, ("minimum", LARGEST_ANGLE))
    x = with_number(x, "maximum", -LARGEST_ANGLE, FLOAT32, ("add", 0.0))
    return activated("sin", x, dtype)


def _tangent(x: Any, dtype: Any) -> Any:
    sine = _sine(0.0, x, FLOAT32)
    cosine = _sine(np.pi / 2, x, FLOAT32)
    return elementwise("multiply", sine, inverted(cosine, FLOAT32), dtype)


def _without_rest(op: str, x: Any, dtype: Any) -> Any:
    """Compute ``x - x <op> 1``, exact for finite numbers: mod gives floor, fmod gives trunc."""
    return elementwise("subtract", x, with_number(x, op, 1.0, FLOAT32), dtype)


def _up(x: Any, dtype: Any) -> Any:
    """Return the smallest integers that are at least ``x``: minus the floor of ``-x``."""
    lowered = _without_rest("mod", with_number(x, "multiply", -1.0, FLOAT32), FLOAT32)
    return with_number(lowered, "multiply", -1.0, dtype)


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_BODIES: dict[str, tuple[Body, str]] = {
    **{
        name: (
            partial(activated, name),
            f"Compute ``{name}(x)``, element by element, on the Scalar Engine.",
        )
        for name in ACTIVATIONS
    },
    "invert": (lambda x, dtype: with_number(x, "invert", 0, dtype), ""),
    "logical_not": (lambda x, dtype: with_number(x, "logical_not", 0, dtype), ""),
    "ceil": (_up, "Compute ``ceil(x)``, element by element; ``x`` is finite."),
    "floor": (
        partial(_without_rest, "mod"),
        "Compute ``floor(x)``, element by element; ``x`` is finite.",
    ),
    "trunc": (
        partial(_without_rest, "fmod"),
        "Compute ``trunc(x)``, element by element; ``x`` is finite.",
    ),
    "tan": (
        _tangent,
        "Compute ``tan(x)``, in radians of any size, element by element.",
    ),
    "copy": (
        lambda x, dtype: issue_new(
            copies.tensor_copy, (x,), dtype=dtype, engine=Engine.VECTOR
        ),
        "Copy to SBUF, on the Vector Engine.",
    ),
    "reciprocal": (inverted, "Compute ``1 / x``, element by element."),
    "sin": (
        partial(_sine, 0.0),
        "Compute ``sin(x)``, in radians of any size, element by element.",
    ),
    "cos": (
        partial(_sine, np.pi / 2),
        "Compute ``cos(x)``, in radians of any size, element by element.",
    ),
    "negative": (
        lambda x, dtype: elementwise("multiply", x, -1.0, dtype),
        "Compute ``-x``, element by element.",
    ),
}
"""Functions of one tile: their computation and their documentation."""


def _of_two(name: str) -> Function:
    compares = name in _COMPARISONS

    def function(x: Any, y: Any, dtype: object = None) -> Any:
        tile = elementwise(name, x, y, dtype)
        if compares:
            return current().kind(ComparedTensor)._whole(tile._storage)
        return tile

    return named(function, name, f"Compute ``{name}(x, y)``, element by element.")


def _of_one(name: str, body: Body, summary: str) -> Function:
    def function(x: Any, dtype: object = None) -> Any:
        tile = need_operand(x, "x", f"nl.{name}")
        return body(tile, wanted(dtype, tile))

    return named(
        function, name, summary or f"Compute ``{name}(x)``, element by element."
    )


FUNCTIONS: dict[str, Any] = {
    **{name: OperatorName(name) for name in ("average", "prelu", "bypass")},
    **{name: _of_two(name) for name, op in NKI_OPS.items() if not op.unary},
    **{name: _of_one(name, *body) for name, body in _BODIES.items()},
}
"""The functions that are operators, too, by name. The first ones are operators of single
instructions (tensor_partition_reduce, activate2), and no functions.
"""


def _reduced(
    name: str, op: str, x: Any, axis: Any, dtype: object, keepdims: bool
) -> Any:
    """Reduce ``x`` by an operator along its last axes."""
    tile = need_operand(x, "x", f"nl.{name}")
    at = settle(tile) if isinstance(tile, DynamicView) else tile
    axes = last_axes(axis, at, f"nl.{name}")
    options = (ALU_OPS[op], axes, False, as_flag(keepdims, "keepdims"))
    return issue_new(
        instructions.tensor_reduce, (tile,), options, dtype=wanted(dtype, tile)
    )


def _spread(vector: Any, like: Any) -> Any:
    """Repeat a reduction that kept its axes along these axes."""
    for dim, size in enumerate(like.shape):
        if vector.shape[dim] != size:
            vector = vector.broadcast(dim, size)
    return vector


def _reduction(name: str, op: str, summary: str) -> Any:
    def function(x: Any, axis: Any, dtype: object = None, keepdims: Any = False) -> Any:
        return _reduced(name, op, x, axis, dtype, keepdims)

    return named(function, name, summary)


for _name, _op, _summary in (
    ("sum", "add", "Compute the sum along the last axes, in float32."),
    ("prod", "multiply", "Compute the product along the last axes, in float32."),
    ("max", "maximum", "Return the largest element along the last axes."),
    ("min", "minimum", "Return the smallest element along the last axes."),
):
    _reduction(_name, _op, _summary)


@public
def all(x, axis, dtype=None):
    """Return whether all elements along the last axes are nonzero: 1 or 0."""
    return _reduced("all", "logical_and", x, axis, dtype, False)


@public
def mean(x, axis, dtype=None, keepdims=False):
    """Compute the mean along the last axes: a float32 sum, scaled and rounded once."""
    total = _reduced("mean", "add", x, axis, FLOAT32, keepdims)
    return with_number(
        total, "multiply", total.size / x.size, wanted(dtype, x), ("add", 0.0)
    )


@public
def var(x, axis, dtype=None, keepdims=False):
    """Compute the variance along the last axes, in float32.

    The axes are kept, because AWS ignores keepdims.
    """
    result = wanted(dtype, need_tile(x, "x", "nl.var"))
    centre = mean(x, axis, FLOAT32, True)
    centred = elementwise("subtract", x, _spread(centre, x), FLOAT32)
    return mean(elementwise("multiply", centred, centred, FLOAT32), axis, result, True)


@public
def softmax(x, axis=-1, dtype=None):
    """Compute ``exp(x - max) / sum(exp(x - max))`` along the last axes, in float32."""
    result = wanted(dtype, need_tile(x, "x", "nl.softmax"))
    peak = _reduced("softmax", "maximum", x, axis, FLOAT32, True)
    shifted = elementwise("subtract", x, _spread(peak, x), FLOAT32)
    exponent = activated("exp", shifted, FLOAT32)
    total = _reduced("softmax", "add", exponent, axis, FLOAT32, True)
    return elementwise(
        "multiply", exponent, _spread(inverted(total, FLOAT32), x), result
    )


@public
def rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None):
    """Compute ``x / sqrt(sum(x * x) / n + epsilon) * w`` along the last axes."""
    tile = need_tile(x, "x", "nl.rms_norm")
    for name, number in (("n", n), ("epsilon", epsilon)):
        need_number(number, name, "nl.rms_norm")
    if not n:
        raise not_taken("nl.rms_norm", "an n that is not 0", "an n of 0", f"n={n!r}")
    work = FLOAT32 if compute_dtype is None else as_nki_dtype(compute_dtype)
    squared = elementwise("multiply", tile, tile, work)
    total = _reduced("rms_norm", "add", squared, axis, FLOAT32, True)
    mean_square = with_number(total, "multiply", 1.0 / n, FLOAT32, ("add", epsilon))
    scale = activated("rsqrt", mean_square, FLOAT32)
    normal = elementwise("multiply", tile, _spread(scale, tile), work)
    return elementwise("multiply", normal, w, wanted(dtype, tile))
