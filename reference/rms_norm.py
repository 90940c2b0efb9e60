"""Root mean square normalization."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid


@np.errstate(invalid="ignore", over="ignore")  # inf and NaN are answers, not accidents
def rms_norm(x: ArrayLike, gamma: ArrayLike, eps: float = 1e-6) -> NDArray[np.float64]:
    """Return gamma * x / sqrt(mean(x ** 2) + eps), the mean along the last axis.

    Parameters
    ----------
    x
        Matrix [T, N] of any real dtype.
    gamma
        Vector [N] of any real dtype.
    eps
        Added to the mean square.

    Returns
    -------
    Matrix [T, N] in float64.

    Raises
    ------
    ValueError
        If a dtype is not real, or N differs between the arguments.
    """
    x = float64("x", x, ("T", "N"))
    gamma = float64("gamma", gamma, ("N",))
    if gamma.shape[0] != x.shape[1]:
        raise invalid("gamma", f"N = {gamma.shape[0]}", f"N = {x.shape[1]}, as in x")
    return gamma * x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + eps)
