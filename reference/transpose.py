"""Matrix transposition."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from reference.arguments import numeric


def transpose(a: ArrayLike) -> NDArray[Any]:
    """Return the transpose of a matrix: out[n, m] = a[m, n].

    Parameters
    ----------
    a
        Matrix [M, N] of any real dtype.

    Returns
    -------
    Matrix [N, M] in the dtype of `a`, because transposition only moves data; a copy, not a view.

    Raises
    ------
    ValueError
        If `a` is not a matrix, or its dtype is not real.
    """
    return numeric("a", a, ("M", "N")).T.copy()
