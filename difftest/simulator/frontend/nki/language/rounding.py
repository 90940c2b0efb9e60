"""``nki.language``: functions for which no operator is documented, made of those that are.

AWS documents what they return (stubs at v2.32.0), not which instructions they are; a trace has the
ones here. Computed in float32, and rounded to the result's dtype once.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.instructions import elementwise as vector_engine
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.tile import Tile


def _combined(x: Any, op: str, y: Any, dtype: Any) -> Any:
    return gate.issue(vector_engine.tensor_tensor, (x, y), (ALU_OPS[op],), dtype=dtype)


def _with_number(x: Tile, op: str, number: float, dtype: Any) -> Any:
    options = (ALU_OPS[op], False, None, False)
    return gate.issue(vector_engine.tensor_scalar, (x, number, None), options, dtype=dtype)


def down(x: Tile, dtype: Any) -> Any:
    """The largest integers that are at most ``x``: ``x - x mod 1``, exact for finite numbers."""
    return _combined(x, "subtract", _with_number(x, "mod", 1.0, FLOAT32), dtype)


def up(x: Tile, dtype: Any) -> Any:
    """The smallest integers that are at least ``x``: ``-down(-x)``."""
    lowered = down(_with_number(x, "multiply", -1.0, FLOAT32), FLOAT32)
    return _with_number(lowered, "multiply", -1.0, dtype)


def toward_zero(x: Tile, dtype: Any) -> Any:
    """``x`` without its fraction: ``x - fmod(x, 1)``, exact for finite numbers."""
    return _combined(x, "subtract", _with_number(x, "fmod", 1.0, FLOAT32), dtype)


def quotient(x: Tile, y: Tile, dtype: Any) -> Any:
    """``x / y``, as the product with the reciprocal, which the Vector Engine has."""
    inverse = gate.issue(vector_engine.reciprocal, (y,), dtype=FLOAT32)
    return _combined(x, "multiply", inverse, dtype)
