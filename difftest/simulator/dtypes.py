"""NKI's dtypes, their on-chip representation, and rounding.

The engines compute in float32 and round once, into the output's dtype (AWS documentation,
``nki.api.shared.rst``, "NKI Type Promotion"). On-chip tensors of every floating dtype are therefore
kept as float32 arrays whose values the dtype can represent. An engine reads them without a cast,
and :func:`round_to` is the only step that loses bits. Integers are kept as they are. HBM keeps the
dtype's own bits. :func:`from_bits` and :func:`to_bits` convert between the two, as a DMA does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from difftest.simulator.errors import DtypeError

Array = NDArray[Any]
DType = np.dtype[Any]

FLOAT32 = np.dtype(np.float32)
FLOAT16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8_E4M3 = np.dtype(ml_dtypes.float8_e4m3)
FLOAT8_E5M2 = np.dtype(ml_dtypes.float8_e5m2)
TFLOAT32 = np.dtype("V4")
"""1 sign, 8 exponent and 10 mantissa bits in 4 bytes; NumPy has no such dtype (NKI uses V4 too)."""
BOOL = np.dtype(np.bool_)
INT32 = np.dtype(np.int32)
WIDE_INTEGERS = (INT32, np.dtype(np.uint32))

FLOATS = (FLOAT32, TFLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)
INTEGERS = tuple(map(DType, ("int8", "uint8", "int16", "uint16", "int32", "uint32")))
DTYPES = (*FLOATS, *INTEGERS, BOOL)

NAMES: dict[str, DType] = {
    **{str(dtype): dtype for dtype in DTYPES if dtype != TFLOAT32},
    "tfloat32": TFLOAT32,
}

FLOAT8_E4M3FN = np.dtype(ml_dtypes.float8_e4m3fn)
"""OCP's float8 of NeuronCore-v4, up to 448 and without infinities; FLOAT8_E4M3 ends at 240."""
FLOAT8_E8M0FNU = np.dtype(ml_dtypes.float8_e8m0fnu)
"""A power of two in 8 bits: the scale of an MX group (OCP Microscaling, 1.0)."""
FLOAT8_E4M3FN_X4 = np.dtype([("float8_e4m3fn_x4", "<u4")])
FLOAT8_E5M2_X4 = np.dtype([("float8_e5m2_x4", "<u4")])
FLOAT4_E2M1FN_X4 = np.dtype([("float4_e2m1fn_x4", "<u2")])
"""Four MX elements in one; the first in the lowest bits, which is an assumption for float4."""

MX_NAMES: dict[str, DType] = {
    "float8_e8m0fnu": FLOAT8_E8M0FNU,
    "float8_e4m3fn_x4": FLOAT8_E4M3FN_X4,
    "float8_e5m2_x4": FLOAT8_E5M2_X4,
    "float4_e2m1fn_x4": FLOAT4_E2M1FN_X4,
}
"""Dtypes of the current dialect (`nki`) that no engine computes in. Only quantize_mx writes them,
only nc_matmul_mx reads them, and copies move their bits.
"""
NKI_NAMES: dict[str, DType] = {
    **NAMES,
    "float8_e4m3fn": FLOAT8_E4M3FN,
    **MX_NAMES,
}
"""All dtypes of the current dialect (AWS ``nki.api.shared.rst`` at tag v2.32.0), by name."""
_MX_NAME_OF = {dtype: name for name, dtype in MX_NAMES.items()}

_OF_HALVES = np.arange(2**16, dtype=np.uint16).view(FLOAT16).astype(np.float32)
_KNOWN: dict[object, DType] = {dtype: dtype for dtype in DTYPES}
_NKI_ONLY = frozenset((FLOAT8_E4M3FN, *_MX_NAME_OF))
_FLOAT_SET = frozenset((*FLOATS, FLOAT8_E4M3FN))
NARROW = _FLOAT_SET - {FLOAT32, TFLOAT32}
"""Floats that may round a finite float32 to an infinity or NaN."""


@cache
def dtype_name(dtype: DType) -> str:
    """Return the dtype's name in ``nki.language``."""
    if dtype == TFLOAT32:
        return "tfloat32"
    return _MX_NAME_OF.get(dtype) or str(dtype)


def as_dtype(spec: object, role: str = "", names: Iterable[str] = NAMES) -> DType:
    """Return the NKI dtype for ``spec``: a dtype, a NumPy scalar type or a name.

    ``role`` names the tensor in the error.

    Raises
    ------
    DtypeError : the hardware has no such dtype (float64 and int64 among others).
    """
    if isinstance(spec, np.dtype) and spec in _KNOWN:
        return spec
    if isinstance(spec, str) and spec in NAMES:
        return NAMES[spec]
    try:
        dtype = np.dtype(spec)  # type: ignore[call-overload]
    except TypeError:
        dtype = None
    entry = _KNOWN.get(dtype) if dtype is not None else None
    if entry is None:
        raise DtypeError(
            "NKI has no such dtype",
            happened=f"{role or 'a tensor'} has the dtype {getattr(spec, '__name__', spec)!s:.40}",
            received=f"{role} of dtype {spec!r}" if role else f"dtype {spec!r}",
            limit=", ".join(sorted(names)),
            remedy="name one of those; convert an input on the host: array.astype(np.float32)",
        )
    return entry


def as_nki_dtype(spec: object, role: str = "") -> DType:
    """Return the dtype as :func:`as_dtype` does, including the current dialect's own."""
    if isinstance(spec, np.dtype) and spec in _KNOWN:  # the common case
        return spec
    if isinstance(spec, str) and spec in NKI_NAMES:
        return NKI_NAMES[spec]
    try:
        dtype: DType = np.dtype(spec)  # type: ignore[call-overload]
    except TypeError:
        return as_dtype(spec, role, NKI_NAMES)
    if dtype in _NKI_ONLY:
        return dtype
    return as_dtype(spec, role, NKI_NAMES)


def packed(values: Array, dtype: DType) -> Array:
    """Return ``values`` [..., 4] in a packed dtype [...], the first in the lowest bits."""
    if dtype == FLOAT4_E2M1FN_X4:
        codes = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
        places = np.arange(0, 16, 4, dtype=np.uint16)
        shifted = (codes.astype(np.uint16) & 15) << places
        return np.asarray(np.bitwise_or.reduce(shifted, axis=-1).view(dtype))
    element: Any = ml_dtypes.float8_e4m3fn
    if dtype == FLOAT8_E5M2_X4:
        element = ml_dtypes.float8_e5m2
    codes = np.ascontiguousarray(values.astype(element))
    return np.asarray(codes.view(np.uint32)[..., 0].view(dtype))


def need_arithmetic(dtype: DType) -> None:
    """Raise :class:`DtypeError` for a dtype whose bits can only be moved."""
    if dtype in _MX_NAME_OF:
        raise DtypeError(
            "MX dtypes are moved, and not computed in or cast",
            happened=f"an instruction was to compute in {dtype_name(dtype)}, or to cast it",
            received=dtype_name(dtype),
            remedy="quantize with nisa.quantize_mx, multiply with nisa.nc_matmul_mx",
        )


def is_float(dtype: DType) -> bool:
    """Return whether the dtype is one of NKI's floats."""
    return dtype in _FLOAT_SET


def is_integer(dtype: DType) -> bool:
    """Return whether the dtype is an integer or bool."""
    return dtype in INTEGERS or dtype == BOOL


def storage_dtype(dtype: DType) -> DType:
    """Return the NumPy dtype in which on-chip tensors of ``dtype`` are kept."""
    if dtype in _FLOAT_SET:
        return FLOAT32
    return dtype


def _round_tfloat32(values: Array) -> Array:
    """Round to 10 mantissa bits, to nearest even; keep infinities and NaN."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = (bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    result: Array = np.where(special, bits, rounded).view(np.float32)
    return result


def _round_integer(values: Array, dtype: DType) -> Array:
    """Round to nearest even integers, saturating; NaN gives 0 (assumed, not documented)."""
    if values.dtype == dtype:
        return values
    if dtype == INT32 and values.dtype == FLOAT32 and _fits_int32(values):
        return np.rint(values).astype(dtype)
    if values.dtype.kind in "iub":
        wide = values.astype(np.int64)
    else:
        wide = np.rint(values.astype(np.float64))
        missing = np.isnan(wide)
        if np.count_nonzero(missing):
            wide = np.where(missing, 0.0, wide)
    low, high = _limits_of(dtype, wide.dtype)
    result: Array = np.minimum(np.maximum(wide, low), high).astype(dtype)
    return result


def _fits_int32(values: Array) -> bool:
    """Return whether all of the values, float32 numbers, round to 32-bit integers."""
    if not values.size:
        return True
    largest: float = np.maximum.reduce(np.abs(values), None)
    return largest < 2.0**31  # false for NaN


@lru_cache(maxsize=32)
def _limits_of(dtype: DType, wide: DType) -> tuple[Array, Array]:
    """Return the smallest and the largest number of an integer dtype, as ``wide`` arrays.

    NumPy takes twice as long to compare a small array with a number.
    """
    need_arithmetic(dtype)
    info = np.iinfo(dtype)
    return np.array(info.min, wide), np.array(info.max, wide)


def _fits_float16(values: Array) -> bool:
    """Return whether the values are many float32 numbers without a NaN.

    NumPy casts to float16 one by one. Steps over whole arrays take a half to a third of the time.
    """
    many = values.size >= 2**12 and values.dtype == FLOAT32
    return many and not np.isnan(values.max())


def _round_float16(values: Array) -> Array:
    """Round to 10 mantissa bits, to nearest even; subnormal numbers to multiples of 2**-24.

    The spacing of float16 numbers is the spacing of float32 numbers that are 2**13 times as large.
    """
    sizes = np.abs(values)
    bits = np.minimum(sizes, 2.0**16).view(np.uint32)
    bits &= np.uint32(0x7F800000)
    np.maximum(bits, np.uint32(0x38800000), out=bits)  # of 2**-14
    bits += np.uint32(13 << 23)
    rounded: Array = sizes + bits.view(np.float32)
    rounded -= bits.view(np.float32)
    np.copysign(rounded, values, out=rounded)
    overflows = sizes >= 65520.0
    if overflows.any():
        np.copyto(rounded, np.copysign(np.inf, values), where=overflows)
    return rounded


def round_to(values: Array, dtype: DType) -> Array:
    """Return ``values`` (an engine's float32 results, or integers) rounded once to ``dtype``.

    The result has :func:`storage_dtype`; it may be ``values`` itself where nothing is lost. Floats
    round to nearest even (ml_dtypes' casts). Float to integer rounds to nearest even and saturates.
    """
    if dtype == FLOAT32:
        return values if values.dtype == FLOAT32 else values.astype(np.float32)
    if dtype == BOOL:
        return values if values.dtype == BOOL else values != 0
    if dtype not in _FLOAT_SET:
        return _round_integer(values, dtype)
    exact = values if values.dtype == FLOAT32 else values.astype(np.float32)
    if dtype == TFLOAT32:
        return _round_tfloat32(exact)
    if dtype == FLOAT16 and _fits_float16(exact):
        return _round_float16(exact)
    with np.errstate(over="ignore"):
        return exact.astype(dtype).astype(np.float32)


def has_subnormals(array: Array) -> bool:
    """Return whether some numbers of a sample are subnormal in float32."""
    if not is_float(array.dtype):
        return False
    sizes = np.abs(from_bits(array.reshape(-1)[::17], array.dtype))
    return bool(sizes[sizes < 2.0**-126].any())


def from_bits(array: Array, dtype: DType) -> Array:
    """Return an HBM array of ``dtype``'s own bits as an on-chip array (a DMA's read)."""
    if dtype == TFLOAT32:
        return array.view(np.float32)
    if dtype == FLOAT16:
        return _OF_HALVES.take(array.view(np.uint16))
    if dtype in _FLOAT_SET and dtype != FLOAT32:
        return array.astype(np.float32)
    return array


def to_bits(values: Array, dtype: DType) -> Array:
    """Return an on-chip array, whose values ``dtype`` represents, as ``dtype``'s own bits."""
    if dtype == TFLOAT32:
        return np.asarray(values, dtype=np.float32).view(TFLOAT32)
    if dtype == FLOAT16 and _fits_float16(values):
        # Scaling by 2**-112 corrects the exponent bias, so that the bits can be shifted.
        bits = (values * np.float32(2.0**-112)).view(np.uint32)
        sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
        halves = ((bits >> np.uint32(13)) & np.uint32(0x7FFF)) | sign
        return halves.astype(np.uint16).view(FLOAT16)
    if values.dtype == dtype:
        return values
    return values.astype(dtype)
