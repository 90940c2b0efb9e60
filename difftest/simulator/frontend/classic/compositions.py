"""``nki.language``: functions of which AWS documents what they return, not the instructions.

They are made here of instructions that are documented, computed in float32, and rounded to the
result's dtype once. Source: ``nki.language`` at tag v2.26.0.
"""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT32, TFLOAT32, as_dtype, is_float
from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.frontend.arguments import ascending, not_taken
from difftest.simulator.frontend.classic.calls import LANGUAGE
from difftest.simulator.frontend.classic.copies import copy
from difftest.simulator.frontend.classic.elementwise import activate, invert_number
from difftest.simulator.frontend.classic.masking import as_mask
from difftest.simulator.frontend.classic.operators import binary, on_chip
from difftest.simulator.frontend.classic.reductions import reduce
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import scan
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.operands import is_number, wrong_kind
from difftest.simulator.tile import Tile

_exp, _rsqrt = activate("exp"), activate("rsqrt")


@LANGUAGE.by_hand  # of several instructions
def mean(x, axis, *, dtype=None, mask=None, keepdims=False):
    """The mean along free axes: a float32 sum, scaled and rounded once."""
    data = on_chip(x, "nl.mean")
    total = reduce("nl.mean", "add", data, axis, FLOAT32, mask, keepdims)
    count = data.size // total.size
    plain = data.dtype if is_float(data.dtype) else FLOAT32
    return binary("multiply", total, 1.0 / count, dtype=plain if dtype is None else dtype)


@LANGUAGE.by_hand  # of several instructions
def var(x, axis, *, dtype=None, mask=None):
    """The variance along free axes, in float32."""
    data = on_chip(x, "nl.var")
    centred = binary("subtract", data, mean(data, axis, dtype=FLOAT32, mask=mask, keepdims=True))
    squared = binary("multiply", centred, centred, dtype=FLOAT32)
    return mean(squared, axis, dtype=data.dtype if dtype is None else dtype)


@LANGUAGE.by_hand  # of several instructions
def softmax(x, axis, *, dtype=None, compute_dtype=None, mask=None):
    """``exp(x - max) / sum(exp(x - max))`` along free axes, in float32."""
    data = on_chip(x, "nl.softmax")
    result = dtype if dtype is not None else compute_dtype
    peak = reduce("nl.softmax", "maximum", data, axis, FLOAT32, mask, True)
    shifted = binary("subtract", data, peak, dtype=FLOAT32)
    exponent = _exp(shifted, FLOAT32, None)
    total = reduce("nl.softmax", "add", exponent, axis, FLOAT32, None, True)
    scale = invert_number(total, None, None)
    return binary("multiply", exponent, scale, dtype=data.dtype if result is None else result)


@LANGUAGE.by_hand  # of several instructions
def rms_norm(x, w, axis, n, epsilon=1e-06, *, dtype=None, compute_dtype=None, mask=None):
    """``x / sqrt(sum(x ** 2) / n + epsilon) * w`` along free axes, in float32."""
    data, weight = on_chip(x, "nl.rms_norm"), on_chip(w, "nl.rms_norm", "w")
    if not is_number(n) or not is_number(epsilon) or not float(n):
        takes, received = (
            "n and epsilon as numbers, n not 0",
            f"n={n!r:.40}, epsilon={epsilon!r:.40}",
        )
        raise not_taken("nl.rms_norm", takes, "others", received)
    wanted = dtype if dtype is not None else compute_dtype
    result = data.dtype if wanted is None else wanted
    axes = ascending(axis, data, "nl.rms_norm")
    squared = binary("multiply", data, data, dtype=FLOAT32, mask=mask)
    total = reduce("nl.rms_norm", "add", squared, axes, FLOAT32, mask, True)
    scaled = binary("multiply", total, 1.0 / float(n), dtype=FLOAT32)
    shifted = binary("add", scaled, float(epsilon), dtype=FLOAT32)
    inverse = _rsqrt(shifted, FLOAT32, None)
    normed = binary("multiply", data, inverse, dtype=FLOAT32, mask=mask)
    return binary("multiply", normed, weight, dtype=result, mask=mask)


@LANGUAGE.issues(scan.dropout)
def dropout(x, rate, *, dtype=None, mask=None):
    """``x`` with elements replaced by 0 at a rate, a number or a tile of one element."""
    data, prob = on_chip(x, "nl.dropout"), rate
    if isinstance(rate, Tile) and rate.size == 1:
        prob = copy(rate._broadcast_to((data.tile_shape()[0], 1)))
    return locals()


@LANGUAGE.by_hand  # of the grid, and a copy
def all_reduce(
    x, op, program_axes, *, dtype=None, mask=None, parallel_reduce=True, asynchronous=False
):
    """A reduction over the instances of a grid: of one instance, the tile itself."""
    del parallel_reduce, asynchronous
    data, operator = on_chip(x, "nl.all_reduce"), alu_op(op, "nl.all_reduce")
    axes, grid = as_integers(program_axes, "nl.all_reduce's program_axes"), current().grid
    for axis in axes:
        if not 0 <= axis < max(len(grid), 1):
            raise KernelError(
                "nl.all_reduce names axes of the launch grid",
                happened=f"nl.all_reduce got axis {axis} of a grid of {len(grid)} dimensions",
                received=f"program_axes={program_axes!r}",
            )
    if any(grid[axis] > 1 for axis in axes if axis < len(grid)):
        raise not_modelled(
            "nl.all_reduce over several instances of a grid", f"{operator.name} over {axes}"
        )
    return copy(data, dtype=dtype, mask=mask)


def sizeinbytes(dtype: object) -> int:
    """The bytes of an element of a dtype; it lies in ``nki.language.constants`` alone."""
    return as_dtype(dtype, "sizeinbytes").itemsize


@LANGUAGE.by_hand  # of the host
def static_cast(input_data, dtype):
    """A number, or an array of the host, in another dtype."""
    wanted = as_dtype(dtype, "nl.static_cast")
    if isinstance(input_data, Tile):
        return copy(input_data, dtype=wanted)
    array = np.asarray(input_data)
    numbers = array.dtype.kind != "O" and is_number(array.reshape(-1)[0] if array.size else 0)
    if not numbers or wanted == TFLOAT32:
        takes = "a number or an array, into a dtype that the host has"
        raise wrong_kind((input_data, dtype), takes, "nl.static_cast")
    cast = array.astype(wanted)
    return cast if array.ndim else cast[()]


@LANGUAGE.by_hand  # a class
class finfo:
    """``nl.finfo(dtype)``: the limits of a float dtype, as numbers of Python."""

    def __init__(self, dtype: object) -> None:
        self.dtype = as_dtype(dtype, "nl.finfo")
        if not is_float(self.dtype):
            raise wrong_kind(self.dtype, "a dtype of floats", "nl.finfo")
        known = FLOAT32 if self.dtype == TFLOAT32 else self.dtype
        limits: Any = ml_dtypes.finfo(known)  # type: ignore[no-untyped-call]
        self.min, self.max = float(limits.min), float(limits.max)
        self.eps, self.tiny = float(limits.eps), float(limits.tiny)
        self.bits = self.dtype.itemsize * 8


@LANGUAGE.by_hand  # of the host
def device_print(prefix, x, *, mask=None):
    """Print a tile's values, those that a mask leaves, while the kernel is simulated."""
    chosen = as_mask(mask, x.shape if isinstance(x, Tile) else ())
    if chosen is False:
        return
    if not isinstance(x, Tile):
        print(prefix, x)
    elif chosen is True:
        print(prefix, x.values())
    else:
        masked: Any = np.ma.masked_array  # without types before NumPy 2.3
        print(prefix, masked(x.values(np.asarray(chosen)), ~np.asarray(chosen)))
