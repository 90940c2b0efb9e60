"""A convolution, its bias, and a max pooling of windows side by side: one layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import invalid
from reference.conv2d import conv2d
from reference.maxpool2d import maxpool2d
from reference.windows import Padding, Size, pair


def conv2d_maxpool(
    X: ArrayLike,
    W: ArrayLike,
    bias: ArrayLike | None = None,
    pool_size: Size = 1,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> NDArray[np.float64]:
    """Return maxpool2d(conv2d(X, W, bias), pool_size).

    Parameters
    ----------
    X
        Images [N, C, H, W], of any real dtype.
    W
        Filters [O, C / groups, rows, columns].
    bias
        [O], added before pooling; None adds nothing.
    pool_size
        Side of the square pooling window and distance between windows, or (rows, columns);
        1 pools nothing. Rows and columns of the convolution that do not fill a window are left
        out.
    stride, padding, dilation, groups
        Of the convolution, as in `conv2d`.

    Returns
    -------
    [N, O, rows // pool_size, columns // pool_size] in float64, rows and columns as of `conv2d`.

    Raises
    ------
    ValueError
        If an argument is not as above; it names the argument.
    """
    convolved = conv2d(X, W, bias, stride, padding, dilation, groups)
    pool = pair("pool_size", pool_size)
    rows, columns = convolved.shape[-2:]
    if pool[0] > rows or pool[1] > columns:
        raise invalid(
            "pool_size",
            repr(pool_size),
            f"at most the convolution's {rows} x {columns}",
        )
    return maxpool2d(convolved, pool)
