"""Each rule of each record at its limit and just over it."""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator import NkiError, Space
from tests.unit.simulator.instructions.calls.uses import Tensor, Use

PSUM = Space.PSUM
GPSIMD_IN_PSUM = "the GpSimd Engine cannot access PSUM"


class Edge(NamedTuple):
    """A legal use at the limit, one just over it, and the error that says so."""

    legal: Use
    illegal: Use
    error: type[NkiError]
    text: str


LIMITS: dict[tuple[str, str], list[Edge]] = {}
"""By instruction and rule."""


def limit(name, rule, legal, illegal, error, text):
    """Register a limit of a rule of an instruction."""
    LIMITS.setdefault((name, rule), []).append(Edge(legal, illegal, error, text))


def tile(*shape, dtype="float32", space=Space.SBUF, **given):
    """A tile, by default of float32 in SBUF."""
    return Tensor(shape, dtype, space, **given)


A_TILE = tile(4, 8)
IN_PSUM = tile(4, 8, space=PSUM)
INTEGERS = tile(4, 8, dtype="int32")
