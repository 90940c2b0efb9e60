"""``nki.language``: each operator as a token for ``op=`` and as a function that returns a tile.

A function's result is a new tile in SBUF in the shape of its input, in its dtype unless ``dtype``
names another. A number may stand beside a tile; that tiles broadcast is a note (release notes of
NKI 0.3, known issues). Source: the stubs of ``nki.language`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT32, WIDE_INTEGERS, as_nki_dtype
from difftest.simulator.errors import KernelError, NotModelledError
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.issue import issue_new, need_operand
from difftest.simulator.frontend.nki.language.creation import ndarray
from difftest.simulator.frontend.nki.language.rounding import down, quotient, toward_zero, up
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.operands import OperatorName, operator_of, to_one_size
from difftest.simulator.frontend.nki.tensor import ComparedTensor
from difftest.simulator.instructions import activation as scalar_engine
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import elementwise as vector_engine
from difftest.simulator.instructions.alu import ALU_OPS, NKI_OPS
from difftest.simulator.instructions.functions import ACTIVATIONS
from difftest.simulator.instructions.operands import is_number, need_tile
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_LARGEST_ANGLE = np.nextafter(np.float32(np.pi), np.float32(0))
"""The largest float32 in the range of the Scalar Engine's sin."""

Function = Callable[..., Any]
_OPERANDS = (Tile, DynamicView)


def _wanted(dtype: object, tile: Tile | DynamicView) -> Any:
    return tile.dtype if dtype is None else as_nki_dtype(dtype)


def _named(function: Function, name: str, summary: str) -> Function:
    """``function`` under its public name, known to instructions as an operator."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    made = public(function)
    made.nki_name = name  # type: ignore[attr-defined]
    return made


def elementwise(name: str, x: Any, y: Any, dtype: object) -> Any:
    """``x <op> y``: tensor_tensor for two tiles, tensor_scalar for a tile and a number."""
    where = f"nl.{name}"
    op = operator_of(OperatorName(name), where)
    tiles = [side for side in (x, y) if isinstance(side, _OPERANDS)]
    if not tiles or not all(isinstance(side, _OPERANDS) or is_number(side) for side in (x, y)):
        raise KernelError(
            f"{where} takes two tiles, or a tile and a number",
            happened=f"{where} got a {type(x).__name__} and a {type(y).__name__}",
            received=f"{x!r:.60} and {y!r:.60}",
        )
    wanted = _wanted(dtype, tiles[0])
    if len(tiles) == 1:
        if name == "power" and tiles[0] is x:
            raise NotModelledError(
                "nl.power(tile, number) does not compile (release notes of NKI 0.3, known issues)",
                happened="nl.power got a tile and a number",
                received=f"nl.power({x!r}, {y!r})",
            )
        number = y if tiles[0] is x else x
        options = (op, tiles[0] is y, None, False)
        return issue_new(
            vector_engine.tensor_scalar, (tiles[0], number, None), options, dtype=wanted
        )
    if name in ("abs_max", "abs_min") and y.size == y.shape[0] < x.size:
        # AWS's examples put a column beside a tile; other functions do not broadcast.
        return issue_new(
            vector_engine.tensor_scalar, (x, y, None), (op, False, None, False), dtype=wanted
        )
    x, y = to_one_size(where, x, y)
    if all(dtype in WIDE_INTEGERS for dtype in (x.dtype, y.dtype, wanted)):
        made = ndarray(x.shape, wanted)
        in_psum = any(tile.space is Space.PSUM for tile in tiles)
        engine = Engine.VECTOR if in_psum else Engine.UNKNOWN
        issue_new(vector_engine.tensor_tensor, (x, y), (op,), dst=made, engine=engine)
        return made
    return issue_new(vector_engine.tensor_tensor, (x, y), (op,), dtype=wanted)


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def _binary(name: str) -> Function:
    def function(x: Any, y: Any, dtype: object = None) -> Any:
        made = elementwise(name, x, y, dtype)
        return current().kind(ComparedTensor).whole(made.storage) if name in _COMPARISONS else made

    return _named(function, name, f"``{name}(x, y)``, element by element.")


def _unary(name: str) -> Function:
    def function(x: Any, dtype: object = None) -> Any:
        tile = need_operand(x, "x", f"nl.{name}")
        options = (ALU_OPS[name], False, None, False)
        return issue_new(
            vector_engine.tensor_scalar, (tile, 0, None), options, dtype=_wanted(dtype, tile)
        )

    return _named(function, name, f"``{name}(x)``, element by element.")


def _activation(name: str) -> Function:
    def function(x: Any, dtype: object = None) -> Any:
        tile = need_operand(x, "x", f"nl.{name}")
        if name == "rsqrt" and tile.space is Space.PSUM:
            check_level("nl.rsqrt of a tile in PSUM")
        return issue_new(
            scalar_engine.activation,
            (tile, 1.0, None),
            (name, None, Accumulate.IDLE),
            others=(None,),
            dtype=_wanted(dtype, tile),
        )

    return _named(function, name, f"``{name}(x)``, element by element, on the Scalar Engine.")


TOKENS = {name: OperatorName(name) for name in ("average", "prelu", "bypass")}
"""Operators of single instructions (tensor_partition_reduce, activate2) that are no functions."""

BINARY = {name: _binary(name) for name, op in NKI_OPS.items() if not op.unary}
UNARY = {name: _unary(name) for name in ("invert", "logical_not")}
ACTIVATION = {name: _activation(name) for name in ACTIVATIONS if name not in ("copy", "reciprocal")}


def _copied(x: Any, dtype: object = None) -> Any:
    tile = need_operand(x, "x", "nl.copy")
    return issue_new(copies.tensor_copy, (tile,), dtype=_wanted(dtype, tile), engine=Engine.VECTOR)


def _inverted(x: Any, dtype: object = None) -> Any:
    tile = need_operand(x, "x", "nl.reciprocal")
    return issue_new(vector_engine.reciprocal, (tile,), dtype=_wanted(dtype, tile))


def _sine(x: Any, shift: float, dtype: object, where: str) -> Any:
    """``sin(x + shift)``, with the angle brought into the range that the Scalar Engine takes."""
    tile = need_operand(x, "x", where)
    turned: Any = tile
    for first, value, second, other in (
        ("add", shift + np.pi, "mod", 2 * np.pi),
        ("add", -np.pi, "minimum", _LARGEST_ANGLE),
        ("maximum", -_LARGEST_ANGLE, "add", 0.0),
    ):
        options = (ALU_OPS[first], False, ALU_OPS[second], False)
        operands = (turned, float(value), float(other))
        turned = issue_new(vector_engine.tensor_scalar, operands, options, dtype=FLOAT32)
    return ACTIVATION["sin"](turned, _wanted(dtype, tile))


def _sin(x: Any, dtype: object = None) -> Any:
    return _sine(x, 0.0, dtype, "nl.sin")


def _cos(x: Any, dtype: object = None) -> Any:
    return _sine(x, np.pi / 2, dtype, "nl.cos")


def _negated(x: Any, dtype: object = None) -> Any:
    return elementwise("multiply", x, -1.0, dtype)


def _tangent(x: Any, dtype: object = None) -> Any:
    tile = need_operand(x, "x", "nl.tan")
    sine, cosine = (_sine(tile, shift, FLOAT32, "nl.tan") for shift in (0.0, np.pi / 2))
    return quotient(sine, cosine, _wanted(dtype, tile))


def _rounded(name: str, rounded: Callable[[Tile, Any], Any]) -> Function:
    def function(x: Any, dtype: object = None) -> Any:
        tile = need_tile(x, "x", f"nl.{name}")
        return rounded(tile, _wanted(dtype, tile))

    return _named(function, name, f"``{name}(x)``, element by element; ``x`` is finite.")


OTHERS = {
    "ceil": _rounded("ceil", up),
    "floor": _rounded("floor", down),
    "trunc": _rounded("trunc", toward_zero),
    "tan": _named(_tangent, "tan", "``tan(x)``, in radians of any size, element by element."),
    "copy": _named(_copied, "copy", "A copy in SBUF, on the Vector Engine."),
    "reciprocal": _named(_inverted, "reciprocal", "``1 / x``, element by element."),
    "sin": _named(_sin, "sin", "``sin(x)``, in radians of any size, element by element."),
    "cos": _named(_cos, "cos", "``cos(x)``, in radians of any size, element by element."),
    "negative": _named(_negated, "negative", "``-x``, element by element."),
}
FUNCTIONS: dict[str, Any] = {**TOKENS, **ACTIVATION, **UNARY, **BINARY, **OTHERS}
"""The functions that are operators too, by name."""
