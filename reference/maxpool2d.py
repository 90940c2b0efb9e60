"""Two-dimensional max pooling.

    out[n, c, y, x] = max over i, j of X[n, c, y * stride + i, x * stride + j]

`maxpool2d_direct` is the definition. `maxpool2d` is equal to it and fast: use it in tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import invalid, numeric
from reference.windows import Padding, Size, Window, windows


def maxpool2d_direct(
    X: ArrayLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Padding = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> NDArray[Any]:
    """Pool by the definition, one element at a time. Parameters as in `maxpool2d`."""
    X, window = _operands(X, kernel_size, stride, padding, dilation, ceil_mode)
    values = _comparable(X)
    *_, height, width = X.shape
    out = np.full(
        (*X.shape[:2], *window.positions(height, width)), _lowest(values), values.dtype
    )
    for n, c, y, x in np.ndindex(*out.shape):
        for i, j in np.ndindex(*window.taps):
            row = y * window.stride[0] + i * window.dilation[0] - window.rows_added[0]
            column = (
                x * window.stride[1] + j * window.dilation[1] - window.columns_added[0]
            )
            if 0 <= row < height and 0 <= column < width:
                out[n, c, y, x] = np.maximum(out[n, c, y, x], values[n, c, row, column])
    return out.astype(X.dtype, copy=False)


def maxpool2d(
    X: ArrayLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Padding = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
) -> NDArray[Any]:
    """Take the largest value under each window. A NaN under a window is its largest.

    Parameters
    ----------
    X
        Images [N, C, H, W], of any real dtype.
    kernel_size
        Taps of a window, one integer >= 1 or (rows, columns).
    stride
        Distance between windows, one integer >= 1 or (vertical, horizontal); None is
        `kernel_size`, windows side by side.
    padding
        Border around the images that never wins: one integer >= 0, (vertical, horizontal), or
        (top, left, bottom, right) as in ONNX; less than the window's extent.
    dilation
        Distance between the taps of a window, one integer >= 1 or (vertical, horizontal).
    ceil_mode
        False alone: rows and columns that do not fill a window are left out.

    Returns
    -------
    [N, C, rows, columns] in the dtype of X, because a maximum is one of the values. Each size is
    (size + padding on both sides - dilation * (taps - 1) - 1) // stride + 1. A window with every
    tap in the border, which dilation makes possible, gives -inf (for integers their least).

    Raises
    ------
    ValueError
        If an argument is not as above; it names the argument.

    Notes
    -----
    The windows are a view of X. One `np.maximum` over whole images for each tap is 4 to 10 times
    as fast as `max` over the window axes, whose inner loop is only as long as a window.
    """
    X, window = _operands(X, kernel_size, stride, padding, dilation, ceil_mode)
    values = _comparable(X)
    padded = window.pad(values, _lowest(values))
    view = windows(padded, window.taps, window.stride, window.dilation)
    out = view[..., 0, 0].copy()
    for i, j in np.ndindex(*window.taps):
        np.maximum(out, view[..., i, j], out=out)
    return out.astype(X.dtype, copy=False)


def _operands(
    X: ArrayLike,
    kernel_size: Size,
    stride: Size | None,
    padding: Padding,
    dilation: Size,
    ceil_mode: bool,
) -> tuple[NDArray[Any], Window]:
    """Read and check the arguments of a pooling."""
    X = numeric("X", X, ("batch", "channels", "height", "width"))
    if min(X.shape) < 1:
        raise invalid("X", f"shape {X.shape}", "every axis at least 1")
    if ceil_mode:
        raise invalid("ceil_mode", ceil_mode, "False: output sizes round down")
    window = Window.of(
        kernel_size, kernel_size if stride is None else stride, padding, dilation
    )
    rows, columns = window.extent
    if max(window.rows_added) >= rows or max(window.columns_added) >= columns:
        accepted = f"less than the window's extent of {rows} x {columns}"
        raise invalid("padding", repr(padding), accepted)
    return X, window


def _comparable(X: NDArray[Any]) -> NDArray[Any]:
    """Return X itself, or in float64 where NumPy has no fast maximum (bfloat16, float8, int4).

    Those go to float64 and back without loss. Not all of them have a -inf, float64 has.
    """
    native = X.dtype.kind in "biu" or np.issubdtype(X.dtype, np.floating)
    return X if native else X.astype(np.float64)


def _lowest(values: NDArray[Any]) -> float:
    """Return the value that never wins a maximum."""
    if values.dtype.kind in "iu":
        return np.iinfo(values.dtype).min
    return False if values.dtype.kind == "b" else -np.inf
