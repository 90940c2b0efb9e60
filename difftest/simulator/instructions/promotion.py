"""NKI's type promotion (AWS ``nki.api.shared.rst`` at tag v2.26.0, "NKI Type Promotion")."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT32,
    TFLOAT32,
    as_dtype,
    is_float,
)
from difftest.simulator.tile import Tile

_UINT8 = np.dtype(np.uint8)
_WIDEST = 8
"""Bytes of the dtypes that only the host has."""

_RANK: dict[np.dtype[Any], int] = {
    FLOAT8_E4M3: 0,
    FLOAT8_E5M2: 0,
    FLOAT16: 1,
    BFLOAT16: 1,
    TFLOAT32: 2,
    FLOAT32: 3,
}
_WIDENED: dict[int, np.dtype[Any]] = {0: BFLOAT16, 1: FLOAT32}
"""Two different floats of one rank: neither holds the other, so a wider type does."""


@lru_cache(maxsize=256)
def promote_dtypes(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of an arithmetic result with operands of dtypes ``a`` and ``b``."""
    if is_float(a) and is_float(b):
        if a == b:
            return a
        if _RANK[a] == _RANK[b]:
            return _WIDENED[_RANK[a]]
        return a if _RANK[a] > _RANK[b] else b
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    wide = np.promote_types(_UINT8 if a == BOOL else a, _UINT8 if b == BOOL else b)
    return FLOAT32 if wide.itemsize > 4 else as_dtype(wide)


def scalar_dtype(value: object) -> np.dtype[Any]:
    """The dtype of a scalar: a NumPy scalar its own; bool uint8, int int32, float float32.

    NumPy's 64-bit scalars (what ``np.sqrt(128)`` gives) have no dtype on the hardware; they count
    as Python's numbers.
    """
    return _counts_as(type(value))


def _counts_as(kind: type) -> np.dtype[Any]:
    if issubclass(kind, np.generic):
        own = np.dtype(kind)
        if own.itemsize < _WIDEST:
            return as_dtype(own)
    if issubclass(kind, bool):
        return _UINT8
    return INT32 if issubclass(kind, (int, np.integer)) else FLOAT32


def operand_dtype(operand: Descriptor | type) -> np.dtype[Any]:
    """The dtype of an operand of a call: a tile's, or what its type of number counts as."""
    return operand.dtype if isinstance(operand, Descriptor) else _counts_as(operand)


def quotient_dtype(*operands: object) -> np.dtype[Any]:
    """The dtype of ``nl.divide``'s result: :func:`promote`'s, float32 for integers.

    The page of nl.divide gives NumPy's divide as its meaning, whose quotient of integers is a
    fraction; its sentence on ``dtype`` is the one that all functions share, nl.equal included.
    """
    promoted = promote(*operands)
    return promoted if is_float(promoted) else FLOAT32


def promote(*operands: object) -> np.dtype[Any]:
    """The dtype of an arithmetic result over tiles and scalars."""
    dtypes = [op.dtype if isinstance(op, Tile) else scalar_dtype(op) for op in operands]
    result: np.dtype[Any] = reduce(promote_dtypes, dtypes)
    return result
