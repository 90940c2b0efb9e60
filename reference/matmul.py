"""Matrix multiplication, the left operand given transposed as the Tensor Engine takes it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid


@np.errstate(invalid="ignore", over="ignore")  # inf and NaN are answers, not accidents
def matmul(lhsT: ArrayLike, rhs: ArrayLike) -> NDArray[np.float64]:
    """Return lhsT.T @ rhs: out[m, n] = sum over k of lhsT[k, m] * rhs[k, n].

    Parameters
    ----------
    lhsT
        Matrix [K, M], the left operand transposed, of any real dtype.
    rhs
        Matrix [K, N] of any real dtype.

    Returns
    -------
    Matrix [M, N] in float64.

    Raises
    ------
    ValueError
        If an operand is not a matrix, a dtype is not real, or K differs between them.
    """
    lhsT = float64("lhsT", lhsT, ("K", "M"))
    rhs = float64("rhs", rhs, ("K", "N"))
    if lhsT.shape[0] != rhs.shape[0]:
        raise invalid("rhs", f"K = {rhs.shape[0]}", f"K = {lhsT.shape[0]}, as in lhsT")
    return lhsT.T @ rhs
