"""``nki.language``: reductions along the last free axes, and what is made of them.

Results are new tiles in SBUF; a reduced axis goes unless ``keepdims``, and two dimensions stay at
least. Source: the stubs of ``nki.language`` at v2.32.0.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import FLOAT32, as_nki_dtype
from difftest.simulator.frontend.arguments import as_flag, last_axes, not_taken
from difftest.simulator.frontend.nki.binding import named, public
from difftest.simulator.frontend.nki.calls import issue_new, need_operand, settle
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.language.functions import (
    activated,
    elementwise,
    inverted,
    wanted,
    with_number,
)
from difftest.simulator.instructions import reduce as instructions
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.operands import need_number, need_tile


def _reduced(name: str, op: str, x: Any, axis: Any, dtype: object, keepdims: bool) -> Any:
    """The reduction of ``x`` by an operator along its last axes."""
    tile = need_operand(x, "x", f"nl.{name}")
    at = settle(tile) if isinstance(tile, DynamicView) else tile
    axes = last_axes(axis, at, f"nl.{name}")
    options = (ALU_OPS[op], axes, False, as_flag(keepdims, "keepdims"))
    return issue_new(instructions.tensor_reduce, (tile,), options, dtype=wanted(dtype, tile))


def _spread(vector: Any, like: Any) -> Any:
    """A reduction that kept its axes, repeated along them."""
    for dim, size in enumerate(like.shape):
        if vector.shape[dim] != size:
            vector = vector.broadcast(dim, size)
    return vector


def _reduction(name: str, op: str, summary: str) -> Any:
    def function(x: Any, axis: Any, dtype: object = None, keepdims: Any = False) -> Any:
        return _reduced(name, op, x, axis, dtype, keepdims)

    return named(function, name, summary)


for _name, _op, _summary in (
    ("sum", "add", "The sum along the last axes, in float32."),
    ("prod", "multiply", "The product along the last axes, in float32."),
    ("max", "maximum", "The largest element along the last axes."),
    ("min", "minimum", "The smallest element along the last axes."),
):
    _reduction(_name, _op, _summary)


@public
def all(x, axis, dtype=None):
    """Whether all elements along the last axes are other than 0: 1 or 0."""
    return _reduced("all", "logical_and", x, axis, dtype, False)


@public
def mean(x, axis, dtype=None, keepdims=False):
    """The mean along the last axes: a float32 sum, scaled and rounded once."""
    total = _reduced("mean", "add", x, axis, FLOAT32, keepdims)
    return with_number(total, "multiply", total.size / x.size, wanted(dtype, x), ("add", 0.0))


@public
def var(x, axis, dtype=None, keepdims=False):
    """The variance along the last axes, in float32; the axes are kept (AWS ignores keepdims)."""
    result = wanted(dtype, need_tile(x, "x", "nl.var"))
    centre = mean(x, axis, FLOAT32, True)
    centred = elementwise("subtract", x, _spread(centre, x), FLOAT32)
    squared = elementwise("multiply", centred, centred, FLOAT32)
    return mean(squared, axis, result, True)


@public
def softmax(x, axis=-1, dtype=None):
    """``exp(x - max) / sum(exp(x - max))`` along the last axes, in float32."""
    result = wanted(dtype, need_tile(x, "x", "nl.softmax"))
    peak = _reduced("softmax", "maximum", x, axis, FLOAT32, True)
    shifted = elementwise("subtract", x, _spread(peak, x), FLOAT32)
    exponent = activated("exp", shifted, FLOAT32)
    total = _reduced("softmax", "add", exponent, axis, FLOAT32, True)
    return elementwise("multiply", exponent, _spread(inverted(total, FLOAT32), x), result)


@public
def rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None):
    """``x / sqrt(sum(x * x) / n + epsilon) * w`` along the last axes."""
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
