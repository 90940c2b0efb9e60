"""Values inside an engine: dtypes, float32, columns that broadcast, and sums."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT32,
    TFLOAT32,
    WIDE_INTEGERS,
    Array,
    DType,
    as_dtype,
    is_float,
    need_arithmetic,
)
from difftest.simulator.instructions.anomalies import rounded_integers, rounded_sum
from difftest.simulator.lifted import step
from difftest.simulator.tile import Tile

FLOAT64 = np.dtype(np.float64)
"""Not a dtype of the machine: for values that must not be rounded."""


def as_float(values: Array) -> Array:
    """Return on-chip elements as float32, the dtype of arithmetic; float64 stays exact."""
    if values.dtype == FLOAT32 or values.dtype == FLOAT64:
        return values
    need_arithmetic(values.dtype)
    if values.dtype in WIDE_INTEGERS:
        rounded_integers(values)
    return values.astype(np.float32)


def added(terms: Sequence[Array], dtype: DType) -> Array:
    """Return the sum of elements in float32, in order, which a DMA rounds to ``dtype``."""
    total = as_float(terms[0])
    for term in terms[1:]:
        total = total + as_float(term)
    if dtype in WIDE_INTEGERS:
        rounded_sum(total, np.add.reduce([term.astype(FLOAT64) for term in terms]))
    return total


def column(vector: Array, ndim: int) -> Array:
    """Return a vector, one element a partition, in a shape that broadcasts over ``ndim`` axes."""
    if vector.ndim == ndim:
        return vector
    return vector.reshape(vector.shape[:1] + (1,) * (ndim - 1))


def rows(values: Array) -> Array:
    """Return values with one free axis: [partitions, elements]."""
    if values.ndim == 2:
        return values
    return values.reshape(values.shape[0], -1)


_AT_A_TIME = 2**17
"""The number of elements processed in one workspace."""


_workspace = threading.local()
"""Memory for temporary values: allocating it each time takes longer than using it."""


def _wide(shape: tuple[int, ...]) -> Array:
    """Return a float64 array of arbitrary values, valid until this thread's next call."""
    size = math.prod(shape)
    kept = getattr(_workspace, "wide", None)
    if kept is None or kept.size < size:
        kept = _workspace.wide = np.empty(size, FLOAT64)
    return kept[:size].reshape(shape)


@step
def sum_in_order(lines: Array, start: Array | None = None) -> Array:
    """Return the sum of each row of float32 ``lines`` [P, N], first element to last: [P].

    ``start`` [P] is the sum's first value. Engines add in this order: a float32 ``tensor_reduce``
    of 128 elements on trn1 (NKI 0.6) gave the bits of a left-to-right sum in 4096 of 4096 rows, in
    four published runs. NumPy's pairwise sum differs in 78 % of them. Longer rows are assumed to
    behave in the same way.
    """
    if start is not None and (start.any() or np.signbit(start).any()):
        lines = np.concatenate([start[:, None], lines], axis=1)
        start = None
    # NumPy adds in pairs, but subtracts in order; rounding to nearest even ignores the sign.
    result: Array = 0 - np.subtract.reduce(lines, axis=1, initial=0)
    if start is None and not result.all():
        # all terms are -0.0
        result[(result == 0) & np.signbit(lines).all(axis=1)] = -0.0
    return result


@step
def multiply_add(values: Array, factor: Any, shift: Array) -> Array:
    """Return ``values * factor + shift`` for float32, rounded once as a fused multiply-add.

    The product of two float32 numbers is exact in float64. The sum is rounded twice: to float64,
    then to float32. This differs from one rounding only if the first one gives a midpoint between
    two float32 numbers.

    Parameters
    ----------
    factor : a float32 number, or [P, 1, ...] like ``shift``, with as many axes as ``values``.
    """
    result = np.empty(values.shape, values.dtype)
    step = max(1, _AT_A_TIME // max(1, math.prod(values.shape[1:])))
    for first in range(0, len(values), step):
        part = slice(first, first + step)
        wide = _wide(values[part].shape)
        wide[...] = values[part]
        wide *= (factor[part] if factor.ndim else factor).astype(FLOAT64)
        wide += shift[part].astype(FLOAT64)
        result[part] = wide
    return result


# -- the dtype of a result -------------------------------------------------------------------------

_UINT8 = np.dtype(np.uint8)
_WIDEST = 8
"""The itemsize of dtypes that only the host has."""

_RANK = {
    FLOAT8_E4M3: 0,
    FLOAT8_E4M3FN: 0,
    FLOAT8_E5M2: 0,
    FLOAT16: 1,
    BFLOAT16: 1,
    TFLOAT32: 2,
    FLOAT32: 3,
}
"""The ranks of floats: the higher of two is the result. Integers have none."""
_WIDENED: dict[int, DType] = {0: BFLOAT16, 1: FLOAT32}
"""The result for two different floats of one rank: neither holds the other, so it is wider."""


@lru_cache(maxsize=256)
def promote_dtypes(a: DType, b: DType) -> DType:
    """Return the dtype of an arithmetic result with operands of dtypes ``a`` and ``b``."""
    need_arithmetic(a)
    need_arithmetic(b)
    if a == b and is_float(a):
        return a
    ranks = _RANK.get(a, -1), _RANK.get(b, -1)
    if ranks[0] != ranks[1]:
        if ranks[0] > ranks[1]:
            return a
        return b
    if ranks[0] >= 0:
        return _WIDENED[ranks[0]]
    wide = np.promote_types(_UINT8 if a == BOOL else a, _UINT8 if b == BOOL else b)
    if wide.itemsize > 4:
        return FLOAT32
    return as_dtype(wide)


def scalar_dtype(value: object) -> DType:
    """Return a scalar's dtype: a NumPy scalar's own; bool uint8, int int32, float float32.

    NumPy's 64-bit scalars, such as ``np.sqrt(128)``, lack a dtype on the hardware. They count as
    Python numbers.
    """
    kind: Any = type(value)
    return _counts_as(kind)


@lru_cache(maxsize=256)
def _counts_as(kind: Any) -> DType:
    if issubclass(kind, np.generic):
        own = np.dtype(kind)
        if own.itemsize < _WIDEST:
            return as_dtype(own)
    if issubclass(kind, bool):
        return _UINT8
    if issubclass(kind, (int, np.integer)):
        return INT32
    return FLOAT32


def operand_dtype(operand: Descriptor | type) -> DType:
    """Return the dtype of a call's operand: a tile's, or the dtype for its type of number."""
    if isinstance(operand, Descriptor):
        return operand.dtype
    return _counts_as(operand)


def quotient_dtype(left: object, right: object) -> DType:
    """Return the dtype of ``nl.divide``'s result: :func:`promote`'s, but float32 for integers.

    The page of nl.divide gives NumPy's divide as its meaning, whose quotient of integers is a
    fraction. Its sentence on ``dtype`` is common to all functions, nl.equal included.
    """
    promoted = promote(left, right)
    if is_float(promoted):
        return promoted
    return FLOAT32


def promote(left: object, right: object) -> DType:
    """Return the dtype of an arithmetic result of tiles and scalars."""
    return promote_dtypes(_own_dtype(left), _own_dtype(right))


def _own_dtype(operand: object) -> DType:
    if isinstance(operand, Tile):
        return operand.dtype
    return scalar_dtype(operand)
