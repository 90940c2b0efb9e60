"""Rotary position embedding."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid


@np.errstate(invalid="ignore", over="ignore")  # inf and NaN are answers, not accidents
def rope(x: ArrayLike, cos: ArrayLike, sin: ArrayLike) -> NDArray[np.float64]:
    """Return x with element i of each row rotated against element i + D / 2.

    out[t, i] = x[t, i] cos[t, i] - x[t, i + D/2] sin[t, i], and
    out[t, i + D/2] = x[t, i + D/2] cos[t, i] + x[t, i] sin[t, i].

    Parameters
    ----------
    x
        Matrix [T, D] of any real dtype, D even.
    cos, sin
        Matrices [T, D / 2] of any real dtype: of the angle of position t and frequency i.

    Returns
    -------
    Matrix [T, D] in float64.

    Raises
    ------
    ValueError
        If a dtype is not real, D is odd, or the shapes do not fit.
    """
    x = float64("x", x, ("T", "D"))
    if x.shape[1] % 2:
        raise invalid("x", f"D = {x.shape[1]}", "an even D")
    shape = (x.shape[0], x.shape[1] // 2)
    tables = {"cos": float64("cos", cos), "sin": float64("sin", sin)}
    for name, table in tables.items():
        if table.shape != shape:
            raise invalid(name, f"shape {table.shape}", f"[T, D / 2] = {shape}")
    first, second = np.split(x, 2, axis=1)
    return np.concatenate(
        [
            first * tables["cos"] - second * tables["sin"],
            second * tables["cos"] + first * tables["sin"],
        ],
        axis=1,
    )
