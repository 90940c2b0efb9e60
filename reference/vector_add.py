"""Vector addition."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid


@np.errstate(invalid="ignore")  # inf - inf is NaN: an answer, not an accident
def vector_add(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Return a + b, element by element.

    Parameters
    ----------
    a, b
        Two arrays of one shape, of any real dtype.

    Returns
    -------
    The sum in float64, of the same shape.

    Raises
    ------
    ValueError
        If the shapes differ (nothing is broadcast) or a dtype is not real.
    """
    a = float64("a", a)
    b = float64("b", b)
    if a.shape != b.shape:
        raise invalid("b", f"shape {b.shape}", f"the shape of a, {a.shape}")
    return a + b
