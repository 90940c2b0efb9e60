"""Values on their way through an engine: as float32, as columns that broadcast, and added up."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32, WIDE_INTEGERS, Array, DType, need_arithmetic
from difftest.simulator.instructions.observing import rounded_integers, rounded_sum
from difftest.simulator.lifted import step

FLOAT64 = np.dtype(np.float64)
"""No dtype of the machine: for what must not be rounded on the way."""


def as_float(values: Array) -> Array:
    """On-chip elements as the float32 that arithmetic works in; float64 asks for what is exact."""
    if values.dtype == FLOAT32 or values.dtype == FLOAT64:
        return values
    need_arithmetic(values.dtype)
    if values.dtype in WIDE_INTEGERS:
        rounded_integers(values)
    return values.astype(np.float32)


def added(terms: Sequence[Array], dtype: DType) -> Array:
    """The sum of elements in float32, in order, which a DMA rounds to ``dtype``."""
    total = as_float(terms[0])
    for term in terms[1:]:
        total = total + as_float(term)
    if dtype in WIDE_INTEGERS:
        rounded_sum(total, np.add.reduce([term.astype(FLOAT64) for term in terms]))
    return total


def column(vector: Array, ndim: int) -> Array:
    """A vector with one element in each partition, shaped to broadcast against ``ndim`` axes."""
    return vector if vector.ndim == ndim else vector.reshape(vector.shape[:1] + (1,) * (ndim - 1))


def rows(values: Array) -> Array:
    """The free axes as one: [partitions, elements]."""
    return values if values.ndim == 2 else values.reshape(values.shape[0], -1)


_AT_A_TIME = 2**17
"""Elements for which a workspace is kept."""


class _Workspace(threading.local):
    """Memory for what is thrown away at once, which to allocate each time takes longer than to use.

    One array for each purpose and thread, as large as it ever was needed.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def array(self, purpose: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array whose elements are of no account, until the next one for this purpose."""
        size = math.prod(shape)
        kept = self._kept.get(purpose)
        if kept is None or kept.size < size:
            kept = self._kept[purpose] = np.empty(size, dtype)
        return kept[:size].reshape(shape)


_workspace = _Workspace()


@step
def sum_in_order(lines: Array, start: Array | None = None) -> Array:
    """The sum of each row of float32 ``lines`` [P, N] from its first element to its last: [P].

    ``start`` [P] is what the sum begins with. Engines add so: a float32 ``tensor_reduce`` of 128
    elements on trn1 (NKI 0.6) gave the bits of a sum from left to right in 4096 of 4096 rows, in
    four published runs, where NumPy's sum in pairs differs in 78 % of them. Longer rows are assumed
    to be added in the same way.
    """
    if start is not None and (start.any() or np.signbit(start).any()):
        lines = np.concatenate([start[:, None], lines], axis=1)
        start = None
    # NumPy adds in pairs, but subtracts in order; rounding to nearest even knows no sign.
    result: Array = 0 - np.subtract.reduce(lines, axis=1, initial=0)
    if start is None and not result.all():
        result[(result == 0) & np.signbit(lines).all(axis=1)] = -0.0  # nothing but -0.0
    return result


@step
def multiply_add(values: Array, factor: Any, shift: Array) -> Array:
    """``values * factor + shift`` for float32, rounded once, as a fused multiply-add rounds.

    The product of two float32 numbers is exact in float64. The sum is rounded to float64 and then
    to float32: twice, which differs from once only where the first lands on the middle between two
    float32 numbers.

    Parameters
    ----------
    factor : a float32 number, or [P, 1, ...] as ``shift`` is, of as many axes as ``values``.
    """
    result = np.empty(values.shape, values.dtype)
    step = max(1, _AT_A_TIME // max(1, math.prod(values.shape[1:])))
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        wide = _workspace.array("wide", values[part].shape, FLOAT64)
        wide[...] = values[part]
        wide *= (factor[part] if factor.ndim else factor).astype(FLOAT64)
        wide += shift[part].astype(FLOAT64)
        result[part] = wide
    return result
