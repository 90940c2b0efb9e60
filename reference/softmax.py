"""Softmax over the last axis."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64


@np.errstate(invalid="ignore")  # a row of infinities has no softmax: NaN is the answer
def softmax(x: ArrayLike) -> NDArray[np.float64]:
    """Return exp(x) over its sum along the last axis.

    Parameters
    ----------
    x
        Array [..., N] of any real dtype, N at least 1.

    Returns
    -------
    Array of the same shape in float64. The largest element of a row is subtracted first, which
    changes nothing but keeps exp from overflowing.

    Raises
    ------
    ValueError
        If the dtype is not real, or there is no element to take the largest of.
    """
    x = float64("x", x)
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
