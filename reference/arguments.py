"""Arguments of the references: read once, refused with one clear error."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def invalid(argument: str, received: object, accepted: str) -> ValueError:
    """Return the error for a bad argument: its name, the received and the accepted values."""
    return ValueError(f"{argument}: received {received}; accepted: {accepted}")


def numeric(
    argument: str, value: ArrayLike, axes: tuple[str, ...] | None = None
) -> NDArray[Any]:
    """Return `value` as an array of real numbers, its own dtype kept.

    Parameters
    ----------
    argument
        Name of the argument, for the error.
    value
        Anything that `np.asarray` takes: integers, any float type of NumPy or ml_dtypes.
    axes
        The names of the axes it must have, or None for any shape.

    Raises
    ------
    ValueError
        If `value` is not numeric and real, or has another number of axes.
    """
    array = np.asarray(value)
    if not np.can_cast(array.dtype, np.float64, casting="same_kind"):
        raise invalid(
            argument, f"dtype {array.dtype}", "integers or real floating point"
        )
    if axes is not None and array.ndim != len(axes):
        raise invalid(
            argument, f"shape {array.shape}", f"{len(axes)} axes ({', '.join(axes)})"
        )
    return array


def float64(
    argument: str, value: ArrayLike, axes: tuple[str, ...] | None = None
) -> NDArray[np.float64]:
    """Return `value` in float64, which holds every value of the narrower types exactly.

    The array itself comes back, uncopied, if it is float64 already. Raises as `numeric` does.
    """
    return numeric(argument, value, axes).astype(np.float64, copy=False)
