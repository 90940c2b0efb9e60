"""``nl.add`` and kin: operators as functions, which instructions also take as ``op``."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.classic.functions import NkiFunction, named
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import binary, on_chip, unary
from difftest.simulator.instructions import elementwise as instructions
from difftest.simulator.instructions.alu import ALU_OPS


def _binary_function(name: str) -> NkiFunction:
    def function(
        x: Any, y: Any, dtype: object = None, mask: object = None, **kwargs: object
    ) -> Any:
        no_extras(f"nl.{name}", kwargs)
        return binary(name, x, y, dtype=dtype, mask=mask)

    return named(function, name, f"``x {name} y``, element by element; shapes broadcast.")


def _unary_alu_function(name: str) -> NkiFunction:
    def function(x: Any, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
        no_extras(f"nl.{name}", kwargs)
        return unary(name, x, dtype=dtype, mask=mask)

    return named(function, name, f"``{name} x``, element by element.")


BINARY = {name: _binary_function(name) for name, op in ALU_OPS.items() if not op.unary}
UNARY = {name: _unary_alu_function(name) for name in ("invert", "logical_not")}


def reciprocal(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
    """``1 / x``, on the Vector Engine."""
    no_extras("nl.reciprocal", kwargs)
    return issue(instructions.reciprocal, (on_chip(x, "nl.reciprocal"),), dtype=dtype, mask=mask)


reciprocal.nki_name = "reciprocal"  # type: ignore[attr-defined]


def negative(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
    """``-x``."""
    no_extras("nl.negative", kwargs)
    data = on_chip(x, "nl.negative")
    return binary("multiply", data, -1.0, dtype=data.dtype if dtype is None else dtype, mask=mask)
