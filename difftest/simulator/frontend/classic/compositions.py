"""``nki.language``: functions of which AWS documents what they return, not the instructions.

They are made here of instructions that are documented, computed in float32, and rounded to the
result's dtype once. Source: ``nki.language`` at tag v2.26.0.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BOOL, FLOAT32, TFLOAT32, as_dtype
from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.axes import ascending
from difftest.simulator.frontend.classic.activations import ACTIVATION
from difftest.simulator.frontend.classic.arithmetic import reciprocal
from difftest.simulator.frontend.classic.copies import copy
from difftest.simulator.frontend.classic.functions import NkiFunction, named
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import binary, on_chip
from difftest.simulator.frontend.classic.reductions import reduce
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import scan
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.operands import is_number
from difftest.simulator.tile import Tile

_LARGEST_ANGLE = float(np.nextafter(np.float32(np.pi), np.float32(0)))


def _floor(x: Tile, dtype: object, mask: object) -> Any:
    """``x - x mod 1``, exact for finite numbers."""
    part = binary("mod", x, 1.0, dtype=FLOAT32, mask=mask)
    return binary("subtract", x, part, dtype=dtype, mask=mask)


def _ceil(x: Tile, dtype: object, mask: object) -> Any:
    """``-floor(-x)``."""
    turned = binary("multiply", x, -1.0, dtype=FLOAT32, mask=mask)
    return binary("multiply", _floor(turned, FLOAT32, mask), -1.0, dtype=dtype, mask=mask)


def _trunc(x: Tile, dtype: object, mask: object) -> Any:
    """``x - fmod(x, 1)``."""
    part = binary("fmod", x, 1.0, dtype=FLOAT32, mask=mask)
    return binary("subtract", x, part, dtype=dtype, mask=mask)


def _sine(x: Tile, shift: float, dtype: object, mask: object) -> Any:
    """``sin(x + shift)``, the angle brought into the range that the Scalar Engine takes."""
    angle: Any = x
    for op, number in (
        ("add", shift + np.pi),
        ("mod", 2 * np.pi),
        ("subtract", np.pi),
        ("minimum", _LARGEST_ANGLE),
        ("maximum", -_LARGEST_ANGLE),
    ):
        angle = binary(op, angle, float(number), dtype=FLOAT32, mask=mask)
    return ACTIVATION["sin"](angle, dtype=dtype, mask=mask)


def _cos(x: Tile, dtype: object, mask: object) -> Any:
    return _sine(x, np.pi / 2, dtype, mask)


def _tan(x: Tile, dtype: object, mask: object) -> Any:
    cosine = _sine(x, np.pi / 2, FLOAT32, mask)
    inverse = reciprocal(cosine, dtype=FLOAT32, mask=mask)
    return binary("multiply", _sine(x, 0.0, FLOAT32, mask), inverse, dtype=dtype, mask=mask)


def _composed(name: str, compute: Any) -> NkiFunction:
    def function(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
        no_extras(f"nl.{name}", kwargs)
        data = on_chip(x, f"nl.{name}")
        return compute(data, data.dtype if dtype is None else dtype, mask)

    return named(function, name, f"``{name}(x)``, element by element; ``x`` is finite.")


COMPOSED = {
    name: _composed(name, compute)
    for name, compute in (
        ("floor", _floor),
        ("ceil", _ceil),
        ("trunc", _trunc),
        ("cos", _cos),
        ("tan", _tan),
    )
}


def all(x: Any, axis: Any, *, dtype: object = bool, mask: object = None, **kwargs: object) -> Any:
    """Whether all elements along free axes are true, as bool."""
    no_extras("nl.all", kwargs)
    data = on_chip(x, "nl.all")
    wanted = BOOL if dtype is bool or dtype is None else dtype
    return reduce("nl.all", "logical_and", data, axis, wanted, mask, False)


def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-06,
    *,
    dtype: object = None,
    compute_dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Any:
    """``x / sqrt(sum(x ** 2) / n + epsilon) * w`` along free axes, in float32."""
    no_extras("nl.rms_norm", kwargs)
    data, weight = on_chip(x, "nl.rms_norm"), on_chip(w, "nl.rms_norm", "w")
    if not is_number(n) or not is_number(epsilon) or not float(n):
        raise KernelError(
            "nl.rms_norm takes n and epsilon as numbers, n not 0",
            happened="nl.rms_norm got an n or an epsilon that it does not take",
            received=f"n={n!r:.40}, epsilon={epsilon!r:.40}",
        )
    wanted = dtype if dtype is not None else compute_dtype
    result = data.dtype if wanted is None else wanted
    axes = ascending(axis, data, "nl.rms_norm")
    squared = binary("multiply", data, data, dtype=FLOAT32, mask=mask)
    total = reduce("nl.rms_norm", "add", squared, axes, FLOAT32, mask, True)
    scaled = binary("multiply", total, 1.0 / float(n), dtype=FLOAT32)
    shifted = binary("add", scaled, float(epsilon), dtype=FLOAT32)
    inverse = ACTIVATION["rsqrt"](shifted, dtype=FLOAT32)
    normed = binary("multiply", data, inverse, dtype=FLOAT32, mask=mask)
    return binary("multiply", normed, weight, dtype=result, mask=mask)


def dropout(
    x: Any, rate: Any, *, dtype: object = None, mask: object = None, **kwargs: object
) -> Any:
    """``x`` with elements replaced by 0 at a rate, a number or a tile of one element."""
    no_extras("nl.dropout", kwargs)
    data = on_chip(x, "nl.dropout")
    chance = rate
    if isinstance(rate, Tile) and rate.size == 1:
        chance = copy(rate.broadcast_to((data.tile_shape()[0], 1)))
    return issue(scan.dropout, (data, chance), dtype=dtype, mask=mask)


def all_reduce(
    x: Any,
    op: object,
    program_axes: Any,
    *,
    dtype: object = None,
    mask: object = None,
    parallel_reduce: bool = True,
    asynchronous: bool = False,
    **kwargs: object,
) -> Any:
    """A reduction over the instances of a grid: of one instance, the tile itself."""
    no_extras("nl.all_reduce", kwargs)
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


def static_cast(input_data: Any, dtype: object) -> Any:
    """A number, or an array of the host, in another dtype."""
    wanted = as_dtype(dtype, "nl.static_cast")
    if isinstance(input_data, Tile):
        return copy(input_data, dtype=wanted)
    array = np.asarray(input_data)
    numbers = array.dtype.kind != "O" and is_number(array.reshape(-1)[0] if array.size else 0)
    if not numbers or wanted == TFLOAT32:
        raise KernelError(
            "nl.static_cast takes a number or an array, into a dtype that the host has",
            happened="nl.static_cast got something else",
            received=f"{input_data!r:.60}, dtype={dtype!r}",
        )
    cast = array.astype(wanted)
    return cast if array.ndim else cast[()]


class finfo:
    """``nl.finfo(dtype)``: the limits of a float dtype, as numbers of Python.

    Raises
    ------
    KernelError : the dtype is no float.
    """

    def __init__(self, dtype: object) -> None:
        self.dtype = as_dtype(dtype, "nl.finfo")
        try:
            known = FLOAT32 if self.dtype == TFLOAT32 else self.dtype
            limits: Any = ml_dtypes.finfo(known)  # type: ignore[no-untyped-call]
        except ValueError:
            raise KernelError(
                "nl.finfo takes a dtype of floats",
                happened="nl.finfo got a dtype that is none of floats",
                received=f"{dtype!r}",
            ) from None
        self.min, self.max = float(limits.min), float(limits.max)
        self.eps, self.tiny = float(limits.eps), float(limits.tiny)
        self.bits = self.dtype.itemsize * 8
