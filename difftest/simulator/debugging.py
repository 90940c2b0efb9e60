"""What a debugger shows of a tensor: statistics and values, beside its shape and dtype."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DEBUGGERS = frozenset({"pdb", "bdb", "IPython", "pydevd", "_pydevd_bundle", "_pydev_bundle"})
"""Packages that ask for a repr to show it to a person: Python's, IPython's, those of editors."""
_ON_THE_WAY = frozenset({"pprint", "reprlib"})
_FEW = 48
"""Elements that are shown; of more, the ends of each axis."""


def is_for_a_person(depth: int = 2) -> bool:
    """Whether a debugger called the function ``depth`` frames up, such as a ``__repr__``."""
    frame = sys._getframe(depth)
    while frame.f_back is not None and _package(frame.f_globals) in _ON_THE_WAY:
        frame = frame.f_back
    return _package(frame.f_globals) in _DEBUGGERS


def _package(names: dict[str, Any]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def contents(values: NDArray[Any], unwritten: NDArray[np.bool_] | None) -> str:
    """Statistics of what was written, and the values, indented under a headline.

    >>> print(contents(np.float32([[1, 2], [np.nan, 5]]), np.array([[False] * 2, [False, True]])))
      min 1, max 2, mean 1.5; 1 of 4 never written, 1 NaN, 0 infinite
      [[ 1.  2.]
       [nan  5.]]
    """
    numbers = values.astype(np.float64)
    written = numbers if unwritten is None else numbers[~unwritten]
    finite = written[np.isfinite(written)]
    missing = 0 if unwritten is None else int(unwritten.sum())
    text = "nothing finite was written"
    if finite.size:
        text = f"min {finite.min():g}, max {finite.max():g}, mean {finite.mean():g}"
    text += (
        f"; {missing} of {numbers.size} never written, {int(np.isnan(written).sum())} NaN, "
        f"{int(np.isinf(written).sum())} infinite"
    )
    shown = np.array2string(numbers, threshold=_FEW, edgeitems=3, precision=6)
    return "\n".join(f"  {line}" for line in (text, *shown.splitlines()))
