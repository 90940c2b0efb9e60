"""Literal definitions of conversions, math operators and activation functions.

Source: "Supported Math Operators" and "Supported Activation Functions" of ``nki.api.shared.rst``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from difftest.simulator.dtypes import BOOL, FLOAT32, TFLOAT32, is_float

Array = NDArray[Any]
DType = np.dtype[Any]
_TFLOAT32_BITS = 11
"""The number of significant bits: ten in the mantissa, and the leading one."""
_LEAST_EXPONENT = -125
"""The exponent that ``frexp`` returns for the smallest normal float32."""


def host_dtype(dtype: DType) -> DType:
    """Return the NumPy dtype for a ``dtype``: float32 for tfloat32, bits for packed dtypes."""
    if dtype == TFLOAT32:
        return FLOAT32
    if dtype == BOOL or dtype.names:
        return np.dtype(f"u{dtype.itemsize}")
    return dtype


def epsilon(dtype: DType) -> float:
    """Return the distance from 1 to the next number of a float dtype."""
    if dtype == TFLOAT32:
        return 2.0 ** (1 - _TFLOAT32_BITS)
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def poison_element(dtype: DType) -> Array:
    """Return an unwritten element as it is in memory: NaN, or bytes of 0xA5 (1 for bool)."""
    if is_float(dtype):
        return np.array(np.nan).astype(host_dtype(dtype))
    byte = 1 if dtype == BOOL else 0xA5
    return np.asarray(
        np.frombuffer(bytes([byte]) * dtype.itemsize, host_dtype(dtype))[0]
    )


def to_float32(elements: Array) -> Array:
    """Return elements of any dtype as float32, the dtype of arithmetic."""
    return np.asarray(elements).astype(np.float32)


def round_literal(values: Array, dtype: DType) -> Array:
    """Cast ``values`` once into ``dtype``, to nearest even; integers saturate and NaN gives 0."""
    if dtype == BOOL:
        return np.asarray(values != 0).astype(np.uint8)
    if dtype.names or values.dtype == dtype:
        return values
    if not np.issubdtype(dtype, np.integer):
        exact = values.astype(np.float32)
        if dtype == TFLOAT32:
            return _to_tfloat32(exact)
        return exact.astype(dtype)
    bounds = np.iinfo(dtype)
    if values.dtype.kind in "iub":
        return np.clip(values.astype(np.int64), bounds.min, bounds.max).astype(dtype)
    whole = np.rint(values.astype(np.float64))
    return np.clip(
        np.where(np.isnan(whole), 0.0, whole), bounds.min, bounds.max
    ).astype(dtype)


def _to_tfloat32(values: Array) -> Array:
    _, exponent = np.frexp(values.astype(np.float64))
    step = np.ldexp(1.0, np.maximum(exponent, _LEAST_EXPONENT) - _TFLOAT32_BITS)
    return np.asarray(np.rint(values / step) * step, dtype=np.float32)


def wrapped(values: Array, dtype: DType) -> Array:
    """Return the low bits of integers, as integers of ``dtype``."""
    if dtype == BOOL:
        return np.not_equal(values, 0)
    return values.astype(np.int64).astype(host_dtype(dtype))


def literal_constant(value: Any, dtype: DType) -> Array:
    """Return a number to be rounded into ``dtype``; for integers it is exact up to 64 bits."""
    if dtype.names or not isinstance(value, (int, np.integer)) or is_float(dtype):
        return np.array(value).astype(host_dtype(dtype) if dtype.names else np.float32)
    return np.array(np.clip(int(value), -(2**63), 2**63 - 1), np.int64)


BITVEC: dict[str, Callable[..., Any]] = {
    "invert": np.invert,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": lambda x, y: np.right_shift(
        x.view(f"u{x.itemsize}"), y.astype(f"u{x.itemsize}")
    ).view(x.dtype),
}
"""Operators on bit patterns; the right shift is logical."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "reciprocal": lambda x: np.float32(1) / x,
    "abs": np.abs,
    "square": lambda x: x * x,
    "relu": lambda x: np.where(x < 0, np.float32(0), x),
    "logical_not": np.logical_not,
    "abs_max": lambda x, y: np.where(np.abs(x) > np.abs(y), x, y),
    "abs_min": lambda x, y: np.where(np.abs(x) < np.abs(y), x, y),
    **{
        name: getattr(np, name)
        for name in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "maximum",
            "minimum",
            "equal",
            "not_equal",
            "greater_equal",
            "greater",
            "less_equal",
            "less",
            "logical_and",
            "logical_or",
            "logical_xor",
            "power",
            "mod",
            "fmod",
        )
    },
}
"""Operators on float32."""
UNARY = ("invert", "logical_not", "rsqrt", "reciprocal", "abs", "square", "relu")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
START = {
    "add": 0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "abs_max": 0.0,
    "abs_min": np.inf,
}
"""The value of a register after a reset, by the operator that reduces into it."""


def apply_literal(op: str, left: Array, right: Array) -> Array:
    """Apply one operator to bit patterns or to float32 values; do not round the result."""
    if op in BITVEC and op not in UNARY:
        stored = (s.astype(np.uint8) if s.dtype == BOOL else s for s in (left, right))
        return np.asarray(BITVEC[op](*stored))
    if op in BITVEC:
        return np.asarray(BITVEC[op](left))
    if op in UNARY:
        return np.asarray(ARITHMETIC[op](to_float32(left)))
    return np.asarray(ARITHMETIC[op](to_float32(left), to_float32(right)))


def bit_pattern(value: Any, dtype: DType) -> Array:
    """Return a number as a bitvec operand in the data's width; it may be signed or unsigned."""
    pattern = np.array(int(value) % 2 ** (8 * dtype.itemsize), f"u{dtype.itemsize}")
    if dtype == BOOL:
        return pattern
    return pattern.view(host_dtype(dtype))


_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _normal(x: Array) -> Array:
    """Return the normal distribution's probability below x."""
    return 0.5 * np.asarray(_erfc(-math.sqrt(0.5) * x), np.float64)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    upper: Array = 1.0 / (1.0 + small)
    return np.where(x < 0, small * upper, upper)


def _times(x: Array, factor: Array) -> Array:
    """Return ``x * factor``, but 0 for a factor of 0 and an infinite x: the limit."""
    return np.where(factor == 0, 0.0 * np.clip(x, -1, 1), x * factor)


def _sigmoid_times(x: Array) -> Array:
    """Return the derivative of ``x * sigmoid(x)``."""
    gate = _sigmoid(x)
    return gate + _times(x, gate * _sigmoid(-x))


_STEEP = 1.702

EXACT: dict[str, Callable[[Array], Any]] = {
    "copy": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "square": np.square,
    "sign": np.sign,
    "abs": np.abs,
    "reciprocal": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
}
"""Functions whose last place is certain."""
CURVES: dict[str, Callable[[Array], Any]] = {
    "sigmoid": _sigmoid,
    "gelu": lambda x: _times(x, _normal(x)),
    "gelu_dx": lambda x: (
        _normal(x) + _times(x, np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))
    ),
    "gelu_apprx_tanh": lambda x: _times(
        x, _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    ),
    "gelu_apprx_sigmoid": lambda x: _times(x, _sigmoid(_STEEP * x)),
    "gelu_apprx_sigmoid_dx": lambda x: _sigmoid_times(_STEEP * x),
    "silu": lambda x: _times(x, _sigmoid(x)),
    "silu_dx": _sigmoid_times,
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "mish": lambda x: _times(x, np.tanh(np.logaddexp(0.0, x))),
    "erf": lambda x: np.asarray(_erf(x), np.float64),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
}
"""Functions whose last places differ between libraries. Float64 keeps their relative precision;
``1 + tanh`` and ``1 - erf`` would lose it.
"""
FUNCTIONS = {**EXACT, **CURVES}


def activate(name: str, x: Array) -> Array:
    """Return ``name(x)`` in float64, rounded once to float32."""
    return np.asarray(FUNCTIONS[name](x.astype(np.float64))).astype(np.float32)


def curve(values: Array) -> Array:
    """Return the accepted difference of two computations of a curved function: a few last places.

    Near a function's zero its last place is far below the error of its terms.
    """
    magnitude: Array = np.abs(values.astype(np.float64)) * 2.0**-19
    return np.maximum(magnitude, 2.0**-18)
