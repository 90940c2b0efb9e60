"""Two-dimensional convolution as neural networks mean it (a cross-correlation).

    out[n, o, y, x] = bias[o] + sum over c, i, j of W[o, c, i, j] * X[n, c, y + i, x + j]

`conv2d_direct` is the definition. `conv2d` is equal to it and fast: use it in tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.arguments import float64, invalid
from reference.windows import Padding, Size, Window, windows

# The patches that one matrix product multiplies. Larger blocks leave the processor's cache and
# are slower, and without a bound 224 x 224 images of 256 channels would take a gigabyte each.
PATCH_BYTES = 8 * 2**20


def conv2d_direct(
    X: ArrayLike,
    W: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> NDArray[np.float64]:
    """Convolve by the definition, one product at a time. Parameters as in `conv2d`."""
    X, W, bias = _operands(X, W, bias, groups)
    batch, _, height, width = X.shape
    out_channels, group_channels, *taps = W.shape
    window = Window.of(taps, stride, padding, dilation)
    out = np.empty((batch, out_channels, *window.positions(height, width)))
    for n, o, y, x in np.ndindex(*out.shape):
        first_channel = o // (out_channels // groups) * group_channels
        total = bias[o]
        for c, i, j in np.ndindex(*W.shape[1:]):
            row = y * window.stride[0] + i * window.dilation[0] - window.rows_added[0]
            column = (
                x * window.stride[1] + j * window.dilation[1] - window.columns_added[0]
            )
            if 0 <= row < height and 0 <= column < width:
                total += W[o, c, i, j] * X[n, first_channel + c, row, column]
        out[n, o, y, x] = total
    return out


@np.errstate(invalid="ignore", over="ignore")  # inf and NaN are answers, not accidents
def conv2d(
    X: ArrayLike,
    W: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> NDArray[np.float64]:
    """Convolve images with filters.

    Parameters
    ----------
    X
        Images [N, C, H, W], of any real dtype.
    W
        Filters [O, C / groups, rows, columns].
    bias
        [O], added to each output channel; None adds nothing.
    stride, dilation
        One integer >= 1, or (vertical, horizontal).
    padding
        Zeros around the images: one integer >= 0, (vertical, horizontal), or
        (top, left, bottom, right) as in ONNX.
    groups
        Divides C and O: output channels of a group see the input channels of that group only.

    Returns
    -------
    [N, O, rows, columns] in float64. Each size is
    (size + padding on both sides - dilation * (taps - 1) - 1) // stride + 1.

    Raises
    ------
    ValueError
        If an argument is not as above; it names the argument.

    Notes
    -----
    The windows are a view of X. Each block of output rows is one matrix product over all images
    and groups; the block bounds the patches that the product gathers.
    """
    X, W, bias = _operands(X, W, bias, groups)
    out_channels, group_channels, *taps = W.shape
    window = Window.of(taps, stride, padding, dilation)

    # Groups become an axis before the windows are taken: afterwards it would cost a copy.
    padded = window.pad(X, 0.0)
    batch, _, height, width = padded.shape
    grouped = padded.reshape(batch, groups, group_channels, height, width)
    view = windows(grouped, taps, window.stride, window.dilation)
    # [N, G, C / G, i, j, rows, columns]
    patches = np.moveaxis(view, (-2, -1), (-4, -3))
    rows, columns = patches.shape[-2:]
    filters = W.reshape(groups, out_channels // groups, -1)

    out = np.empty((batch, *filters.shape[:2], rows, columns))
    row_bytes = patches[..., :1, :].nbytes
    block = max(1, PATCH_BYTES // max(1, row_bytes))
    for first in range(0, rows, block):
        some = patches[..., first : first + block, :]
        gathered = some.reshape(batch, groups, filters.shape[-1], -1)
        target = out[..., first : first + block, :]
        target[...] = (filters @ gathered).reshape(target.shape)
    return (
        out.reshape(batch, out_channels, rows, columns)
        + bias[:, np.newaxis, np.newaxis]
    )


def _operands(
    X: ArrayLike, W: ArrayLike, bias: ArrayLike | None, groups: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Read and check images, filters, bias and groups against one another."""
    X = float64("X", X, ("batch", "channels", "height", "width"))
    W = float64("W", W, ("out channels", "channels / groups", "rows", "columns"))
    if min(X.shape) < 1:
        raise invalid("X", f"shape {X.shape}", "every axis at least 1")
    if min(W.shape) < 1:
        raise invalid("W", f"shape {W.shape}", "every axis at least 1")
    channels = X.shape[1]
    (out_channels, group_channels) = W.shape[:2]
    if not isinstance(groups, int | np.integer) or groups < 1:
        raise invalid("groups", repr(groups), "an integer >= 1")
    if channels % groups or out_channels % groups:
        divides = f"a divisor of the {channels} channels of X and the {out_channels} filters of W"
        raise invalid("groups", groups, divides)
    if group_channels != channels // groups:
        accepted = f"{channels // groups}: {channels} channels of X in {groups} groups"
        raise invalid("W", f"{group_channels} channels a filter", accepted)
    bias = (
        np.zeros(out_channels)
        if bias is None
        else float64("bias", bias, ("out channels",))
    )
    if bias.size != out_channels:
        raise invalid(
            "bias", f"{bias.size} values", f"{out_channels}, one for each filter of W"
        )
    return X, W, bias
