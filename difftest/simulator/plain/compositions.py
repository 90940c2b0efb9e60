"""Functions of ``nki.language`` by what they return: rounding, angles, norms, and kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, FLOAT32, TFLOAT32
from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.plain import rules
from difftest.simulator.plain.copies import copy
from difftest.simulator.plain.elementwise import binary, each_element
from difftest.simulator.plain.indices import integers
from difftest.simulator.plain.meanings import means, meant
from difftest.simulator.plain.operators import math_operator
from difftest.simulator.plain.reductions import reduce_free
from difftest.simulator.plain.rounding import Array, is_number, to_float32
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor


def _elementwise(compute: Callable[[Array], Array]) -> Callable[..., PlainTensor]:
    def meaning(x: PlainTensor, dtype: Any, mask: Any) -> PlainTensor:
        def computed(values: Array) -> Array:
            return np.asarray(compute(to_float32(values).astype(np.float64))).astype(np.float32)

        return each_element(x.shape, dtype or x.dtype, (x,), computed, mask)

    return meaning


for _name in ("floor", "ceil", "trunc", "cos", "tan"):
    means(f"nl.{_name}", x=rules.tile(), dtype=rules.dtype)(_elementwise(getattr(np, _name)))


def _bool(value: Any, name: str, where: str) -> Any:
    """A role: a dtype, which Python's bool also names."""
    return BOOL if value is bool or value is None else rules.dtype(value, name, where)


@means("nl.all", x=rules.tile(), dtype=_bool)
def every(x: PlainTensor, axis: Any, dtype: Any, mask: Any) -> PlainTensor:
    """Whether all elements along free axes are true."""
    return reduce_free("logical_and", x, axis, dtype, mask, keepdims=False)


@means(
    "nl.rms_norm",
    x=rules.tile(),
    w=rules.tile(),
    n=rules.number,
    epsilon=rules.number,
    dtype=rules.dtype,
    compute_dtype=rules.dtype,
)
def rms_norm(
    x: PlainTensor,
    w: PlainTensor,
    axis: Any,
    n: Any,
    epsilon: Any,
    dtype: Any,
    compute_dtype: Any,
    mask: Any,
) -> PlainTensor:
    """``x / sqrt(sum(x ** 2) / n + epsilon) * w``, in float32."""
    rules.require(float(n) != 0, "nl.rms_norm takes an n that is not 0", n, error=KernelError)
    squared = binary("multiply", x, x, FLOAT32, mask)
    total = reduce_free("add", squared, axis, FLOAT32, mask, keepdims=True)
    scaled = binary("multiply", total, 1.0 / float(n), FLOAT32)
    shifted = binary("add", scaled, float(epsilon), FLOAT32)
    inverse = meant("nl.rsqrt", x=shifted, dtype=FLOAT32, mask=None)
    normed = binary("multiply", x, inverse, FLOAT32, mask)
    return binary("multiply", normed, w, dtype or compute_dtype or x.dtype, mask)


@means("nl.dropout", x=rules.tile(), rate=rules.number_or(rules.tile()), dtype=rules.dtype)
def dropout(x: PlainTensor, rate: Any, dtype: Any, mask: Any) -> PlainTensor:
    """``x`` with elements replaced by 0 at a rate."""
    if isinstance(rate, PlainTensor) and rate.size == 1:
        rate = copy(rate.broadcast_to((x.shape[0], 1)), None, None)
    dropped: PlainTensor = meant("nisa.dropout", data=x, prob=rate, mask=mask, dtype=dtype)
    return dropped


@means("nl.all_reduce", x=rules.tile(), op=math_operator, dtype=rules.dtype)
def all_reduce(
    x: PlainTensor,
    op: str,
    program_axes: Any,
    dtype: Any,
    mask: Any,
    parallel_reduce: Any,
    asynchronous: Any,
) -> PlainTensor:
    """A reduction over the instances of a grid: of one instance, the tile itself."""
    grid = current().grid
    axes = integers(program_axes, "program_axes")
    known = all(0 <= axis < max(len(grid), 1) for axis in axes)
    rules.require(known, "nl.all_reduce names axes of the grid", axes, error=KernelError)
    if any(grid[axis] > 1 for axis in axes if axis < len(grid)):
        raise not_modelled("nl.all_reduce over several instances of a grid", f"{op} over {axes}")
    return copy(x, mask, dtype)


@means("nl.static_cast")
def static_cast(input_data: Any, dtype: Any) -> Any:
    """A number or an array in another dtype."""
    wanted = rules.needed_dtype(dtype, "dtype", "nl.static_cast")
    if isinstance(input_data, PlainTensor):
        return copy(input_data, None, wanted)
    array = np.asarray(input_data)
    number = array.reshape(-1)[0] if array.size else 0
    rules.require(
        array.dtype.kind != "O" and is_number(number) and wanted != TFLOAT32,
        "nl.static_cast takes a number or an array, into a dtype that the host has",
        f"{input_data!r:.60}",
        error=KernelError,
    )
    cast = array.astype(wanted)
    return cast if array.ndim else cast[()]
