"""The gated multi-layer perceptron of current language models."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid


@np.errstate(invalid="ignore", over="ignore")  # inf and NaN are answers, not accidents
def gated_mlp(
    x: ArrayLike, gate: ArrayLike, up: ArrayLike, down: ArrayLike
) -> NDArray[np.float64]:
    """Return (silu(x @ gate) * (x @ up)) @ down, where silu(a) = a / (1 + exp(-a)).

    Parameters
    ----------
    x
        Matrix [T, N] of any real dtype.
    gate, up
        Matrices [N, F] of any real dtype.
    down
        Matrix [F, N] of any real dtype.

    Returns
    -------
    Matrix [T, N] in float64.

    Raises
    ------
    ValueError
        If a dtype is not real or the shapes do not fit.
    """
    x = float64("x", x, ("T", "N"))
    gate = float64("gate", gate, ("N", "F"))
    up = float64("up", up, ("N", "F"))
    down = float64("down", down, ("F", "N"))
    if gate.shape[0] != x.shape[1]:
        raise invalid("gate", f"N = {gate.shape[0]}", f"N = {x.shape[1]}, as in x")
    if up.shape != gate.shape:
        raise invalid("up", f"shape {up.shape}", f"{gate.shape}, the shape of gate")
    if down.shape != gate.shape[::-1]:
        raise invalid("down", f"shape {down.shape}", f"{gate.shape[::-1]}, [F, N]")
    gated = x @ gate
    return (gated / (1 + np.exp(-gated)) * (x @ up)) @ down
