"""Numbers: from a dtype's own bits to float32 and back, and which dtype a result has.

"NKI Type Promotion" of ``nki.api.shared.rst``: the engines compute in float32 and cast once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.simulator.dtypes import (
    BFLOAT16,
    BOOL,
    DTYPES,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT32,
    TFLOAT32,
    as_dtype,
    is_float,
)

Array = NDArray[Any]
UINT8 = np.dtype(np.uint8)
WIDE = (INT32, np.dtype(np.uint32))
_TFLOAT32_BITS = 11
"""Significant bits: ten in the mantissa and the leading one."""
_LEAST_EXPONENT = -125
"""``frexp``'s exponent of the smallest normal float32."""


def host_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The NumPy dtype of an array of ``dtype``; NumPy has no tfloat32, so float32 holds it."""
    return FLOAT32 if dtype == TFLOAT32 else dtype


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array in which nothing was written: NaN, or bytes of 0xA5 (True for bool)."""
    if is_float(dtype):
        return np.full(shape, np.nan).astype(host_dtype(dtype))
    if dtype == BOOL:
        return np.full(shape, True)
    return np.full(shape, np.frombuffer(bytes([0xA5]) * dtype.itemsize, dtype)[0])


def to_float32(elements: Array) -> Array:
    """Elements of any dtype as the float32 that arithmetic works in."""
    return elements.astype(np.float32)


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """``values`` cast once into ``dtype``: to nearest even; integers saturate and NaN gives 0."""
    if dtype == BOOL:
        return np.asarray(values != 0)
    if is_float(dtype):
        exact = values.astype(np.float32)
        return _to_tfloat32(exact) if dtype == TFLOAT32 else exact.astype(dtype)
    bounds = np.iinfo(dtype)
    if values.dtype.kind in "iub":
        return np.clip(values.astype(np.int64), bounds.min, bounds.max).astype(dtype)
    whole = np.rint(values.astype(np.float64))
    return np.clip(np.where(np.isnan(whole), 0.0, whole), bounds.min, bounds.max).astype(dtype)


def _to_tfloat32(values: Array) -> Array:
    _, exponent = np.frexp(values.astype(np.float64))
    step = np.ldexp(1.0, np.maximum(exponent, _LEAST_EXPONENT) - _TFLOAT32_BITS)
    return np.asarray(np.rint(values / step) * step, dtype=np.float32)


def wrapped(values: Array, dtype: np.dtype[Any]) -> Array:
    """The low bits of integers as the integers of ``dtype`` that have them."""
    if dtype == BOOL:
        return np.asarray(values != 0)
    return values.astype(np.int64).astype(dtype)


_FLOAT_RANK = {FLOAT8_E4M3: 0, FLOAT8_E5M2: 0, FLOAT16: 1, BFLOAT16: 1, TFLOAT32: 2, FLOAT32: 3}


def promoted(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The documented dtype of an arithmetic result with operands of these dtypes."""
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = _promoted_pair(result, dtype)
    return result


def _promoted_pair(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    if is_float(a) and is_float(b):
        if a != b and _FLOAT_RANK[a] == _FLOAT_RANK[b]:
            return BFLOAT16 if _FLOAT_RANK[a] == 0 else FLOAT32
        return max(a, b, key=lambda dtype: _FLOAT_RANK[dtype])
    if is_float(a) or is_float(b):
        return a if is_float(a) else b
    wider = np.promote_types(UINT8 if a == BOOL else a, UINT8 if b == BOOL else b)
    return wider if wider in DTYPES else FLOAT32


def is_number(value: object) -> bool:
    """Whether ``value`` is a real number of Python, NumPy or ml_dtypes."""
    if isinstance(value, np.generic):
        return value.dtype.kind in "biuf" or value.dtype in DTYPES
    return isinstance(value, (bool, int, float))


def dtype_of_number(value: Any) -> np.dtype[Any]:
    """What a number counts as; a number whose dtype the machine lacks counts as Python's."""
    if isinstance(value, np.generic) and value.dtype in DTYPES:
        return as_dtype(value.dtype)
    if isinstance(value, bool):
        return UINT8
    return INT32 if isinstance(value, (int, np.integer)) else FLOAT32
