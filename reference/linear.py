"""A linear layer with GELU."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid

_erf = np.vectorize(math.erf, otypes=[np.float64])


@np.errstate(invalid="ignore", over="ignore")  # inf and NaN are answers, not accidents
def linear_gelu(x: ArrayLike, w: ArrayLike, bias: ArrayLike) -> NDArray[np.float64]:
    """Return gelu(x.T @ w + bias), where gelu(a) = a * (1 + erf(a / sqrt(2))) / 2.

    Parameters
    ----------
    x
        Matrix [K, M] of any real dtype.
    w
        Matrix [K, N] of any real dtype.
    bias
        Matrix [1, N] of any real dtype.

    Returns
    -------
    Matrix [M, N] in float64.

    Raises
    ------
    ValueError
        If a dtype is not real or the shapes do not fit.
    """
    x = float64("x", x, ("K", "M"))
    w = float64("w", w, ("K", "N"))
    bias = float64("bias", bias, ("1", "N"))
    if w.shape[0] != x.shape[0]:
        raise invalid("w", f"K = {w.shape[0]}", f"K = {x.shape[0]}, as in x")
    if bias.shape != (1, w.shape[1]):
        raise invalid("bias", f"shape {bias.shape}", f"(1, {w.shape[1]})")
    total = x.T @ w + bias
    return total * (1 + _erf(total / math.sqrt(2))) / 2
