"""Round into a dtype once, to nearest even, and give the size of a unit in the last place.

The harness has its own rounding, over ml_dtypes. A judge of the simulator may not share the
simulator's arithmetic.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


def is_float_dtype(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is a floating-point dtype of NumPy or ml_dtypes."""
    return dtype.kind not in "iub"


def round_once(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round ``values`` to nearest even in ``dtype``; integers saturate."""
    if values.dtype == dtype:
        return values
    if is_float_dtype(dtype):
        near = _near(values) if dtype == np.float16 else values
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            narrow: Array = near.astype(dtype)
        return narrow
    if dtype.kind == "b":
        return values.astype(np.bool_)
    info = np.iinfo(dtype)
    rounded: Array = np.clip(np.rint(values), info.min, info.max).astype(dtype)
    return rounded


def _near(values: Array) -> Array:
    """Return values that float16 rounds to the same numbers, but faster.

    NumPy takes 30 times as long to convert values that become subnormal or infinite. Subnormal
    numbers of float16 are multiples of 2**-24, as are float64's numbers around 2**28. A sample
    shows whether there are many of them.
    """
    sample = np.abs(values.reshape(-1)[::17])
    if np.count_nonzero((sample > 0) & (sample < 2.0**-14)) > sample.size // 64:
        apart = (np.abs(values) < 2.0**-14) * (1.5 * 2.0**28)
        values = np.copysign((values + apart) - apart, values)
    if np.count_nonzero((sample >= 65520.0) & (sample < np.inf)) > sample.size // 64:
        values = np.where(
            np.abs(values) >= 65520.0, np.copysign(np.inf, values), values
        )
    return values


def float_info(dtype: np.dtype[Any]) -> Any:
    """Return the ``finfo`` of a dtype of NumPy or ml_dtypes."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Return u, the largest relative error of one rounding to nearest into ``dtype``."""
    return float(float_info(dtype).eps) / 2


def ulp(values: Float64, dtype: np.dtype[Any]) -> Float64:
    """Return the distance between neighbours in ``dtype`` at each finite value; 1 for integers."""
    if not is_float_dtype(dtype):
        return np.ones_like(values)
    info = float_info(dtype)
    _, exponent = np.frexp(values)
    distance = np.where(values == 0, 0.0, np.ldexp(1.0, exponent - 1 - int(info.nmant)))
    return np.maximum(distance, float(info.smallest_subnormal))
