"""Numbers: from a dtype's own bits to float32 and back.

"NKI Type Promotion" of ``nki.api.shared.rst``: the engines compute in float32 and cast once.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from difftest.simulator.dtypes import BOOL, FLOAT32, TFLOAT32, is_float

Array = NDArray[Any]
DType = np.dtype[Any]
_TFLOAT32_BITS = 11
"""Significant bits: ten in the mantissa and the leading one."""
_LEAST_EXPONENT = -125
"""``frexp``'s exponent of the smallest normal float32."""


def host_dtype(dtype: DType) -> DType:
    """The NumPy dtype of an array of ``dtype``: float32 for tfloat32, bits for packed ones."""
    if dtype == TFLOAT32:
        return FLOAT32
    if dtype == BOOL or dtype.names:
        return np.dtype(f"u{dtype.itemsize}")
    return dtype


def epsilon(dtype: DType) -> float:
    """From 1 to the next number of a float dtype."""
    if dtype == TFLOAT32:
        return 2.0 ** (1 - _TFLOAT32_BITS)
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def poison(dtype: DType) -> Array:
    """An element that nothing wrote, as it lies in memory: NaN, or bytes of 0xA5 (1 for bool)."""
    if is_float(dtype):
        return np.array(np.nan).astype(host_dtype(dtype))
    byte = 1 if dtype == BOOL else 0xA5
    return np.asarray(np.frombuffer(bytes([byte]) * dtype.itemsize, host_dtype(dtype))[0])


def to_float32(elements: Array) -> Array:
    """Elements of any dtype as the float32 that arithmetic works in."""
    return np.asarray(elements).astype(np.float32)


def rounded(values: Array, dtype: DType) -> Array:
    """``values`` cast once into ``dtype``: to nearest even; integers saturate and NaN gives 0."""
    if dtype == BOOL:
        return np.asarray(values != 0).astype(np.uint8)
    if dtype.names or values.dtype == dtype:
        return values
    if not np.issubdtype(dtype, np.integer):
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


def wrapped(values: Array, dtype: DType) -> Array:
    """The low bits of integers as the integers of ``dtype`` that have them."""
    return values.astype(np.int64).astype(host_dtype(dtype)) if dtype != BOOL else values != 0


def constant(value: Any, dtype: DType) -> Array:
    """A number to be rounded into ``dtype``; an integer for integers is exact up to 64 bits."""
    if dtype.names or not isinstance(value, (int, np.integer)) or is_float(dtype):
        return np.array(value).astype(host_dtype(dtype) if dtype.names else np.float32)
    return np.array(np.clip(int(value), -(2**63), 2**63 - 1), np.int64)
