"""Windows that slide over images: their geometry, and views of the elements under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from reference.arguments import invalid

Size = int | Sequence[int]  # one number for both axes, or (vertical, horizontal)
Padding = int | Sequence[int]  # also (top, left, bottom, right), the order of ONNX


def pair(argument: str, value: Size) -> tuple[int, int]:
    """Read (vertical, horizontal), or one integer for both.

    Raises
    ------
    ValueError
        If `value` is neither, or an integer in it is less than 1.
    """
    numbers = _integers(value)
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise invalid(argument, repr(value), "one or two integers >= 1")
    return numbers[0], numbers[-1]


def _integers(value: int | Sequence[int]) -> tuple[int, ...]:
    """Read an integer or a sequence of them; anything else is empty."""
    try:
        return tuple(map(index, value if isinstance(value, Sequence) else (value,)))
    except TypeError:
        return ()


@dataclass(frozen=True)
class Window:
    """A window of taps, where it stops on an image, and the border put around that image."""

    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    rows_added: tuple[int, int]  # at the top and at the bottom
    columns_added: tuple[int, int]  # on the left and on the right

    @classmethod
    def of(cls, taps: Size, stride: Size, padding: Padding, dilation: Size) -> Window:
        """Read the arguments of a sliding-window operator.

        Raises
        ------
        ValueError
            If `taps` (shown as kernel_size), `stride` or `dilation` is not one or two integers
            >= 1, or `padding` not one, two or four integers >= 0.
        """
        pads = _integers(padding)
        if len(pads) not in (1, 2, 4) or min(pads) < 0:
            raise invalid("padding", repr(padding), "one, two or four integers >= 0")
        top, left, bottom, right = (pads * 4)[:4]
        return cls(
            taps=pair("kernel_size", taps),
            stride=pair("stride", stride),
            dilation=pair("dilation", dilation),
            rows_added=(top, bottom),
            columns_added=(left, right),
        )

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns from the first tap to the last."""
        (rows, columns), (down, across) = self.taps, self.dilation
        return down * (rows - 1) + 1, across * (columns - 1) + 1

    def positions(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of places at which the window lies inside the padded image.

        Raises
        ------
        ValueError
            If there is none.
        """
        height = height + sum(self.rows_added)
        width = width + sum(self.columns_added)
        rows, columns = self.extent
        if height < rows or width < columns:
            received = f"images of {height} x {width}, padding included"
            raise invalid("X", received, f"at least the window's {rows} x {columns}")
        return (height - rows) // self.stride[0] + 1, (width - columns) // self.stride[
            1
        ] + 1

    def pad(self, images: NDArray[Any], fill: float) -> NDArray[Any]:
        """Put the border around images [..., H, W]: the same array, uncopied, if there is none."""
        border = (self.rows_added, self.columns_added)
        if border == ((0, 0), (0, 0)):
            return images
        return np.pad(
            images, ((0, 0),) * (images.ndim - 2) + border, constant_values=fill
        )


def windows(
    images: NDArray[Any], kernel_size: Size, stride: Size = 1, dilation: Size = 1
) -> NDArray[Any]:
    """Return every window of images as a view: nothing is copied.

    Parameters
    ----------
    images
        Array [..., H, W].
    kernel_size
        Taps of a window, one number or (rows, columns).
    stride, dilation
        Distance between windows, and between the taps of one.

    Returns
    -------
    Read-only view [..., rows, columns, kernel rows, kernel columns] of the memory of `images`.

    Raises
    ------
    ValueError
        If an argument is not as above, or no window fits.
    """
    window = Window.of(kernel_size, stride, 0, dilation)
    window.positions(*images.shape[-2:])
    view = sliding_window_view(images, window.extent, axis=(-2, -1))
    (down, right), (tap_down, tap_right) = window.stride, window.dilation
    return view[..., ::down, ::right, ::tap_down, ::tap_right]
