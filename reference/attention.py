"""Scaled dot product attention, with grouped heads and a causal mask if wanted."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid
from reference.softmax import softmax


@np.errstate(invalid="ignore", over="ignore")  # inf and NaN are answers, not accidents
def attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, causal: bool = False
) -> NDArray[np.float64]:
    """Return softmax(q @ k.T / sqrt(D)) @ v for each head.

    Parameters
    ----------
    q
        Array [H, Sq, D] of any real dtype.
    k, v
        Arrays [G, Sk, D] of any real dtype; H is a multiple of G, and head h of q uses head
        h // (H // G) of these.
    causal
        Whether a query sees the keys up to its own position alone, the last query the last key:
        query i sees key j if j - i <= Sk - Sq. Then there are no more queries than keys.

    Returns
    -------
    Array [H, Sq, D] in float64.

    Raises
    ------
    ValueError
        If a dtype is not real or the shapes do not fit.
    """
    q, k, v = (
        float64(name, value, ("heads", "positions", "D"))
        for name, value in (("q", q), ("k", k), ("v", v))
    )
    heads, queries, size = q.shape
    groups, keys, _ = k.shape
    if k.shape[2] != size:
        raise invalid("k", f"D = {k.shape[2]}", f"D = {size}, as in q")
    if v.shape != k.shape:
        raise invalid("v", f"shape {v.shape}", f"{k.shape}, the shape of k")
    if groups == 0 or heads % groups:
        raise invalid(
            "q", f"{heads} heads", f"a multiple of the {groups} heads of k and v"
        )
    if causal and queries > keys:
        raise invalid("q", f"{queries} queries", f"at most {keys}, the keys, if causal")
    k, v = (np.repeat(array, heads // groups, axis=0) for array in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(size)
    if causal:
        later = np.arange(keys) - np.arange(queries)[:, None] > keys - queries
        scores = np.where(later, -np.inf, scores)
    return softmax(scores) @ v
