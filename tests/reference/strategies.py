"""Hypothesis's strategies for the references: windows that fit, and arrays of every real kind."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

FLOATS = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)
DTYPES = (*FLOATS, np.int32, np.int8, np.uint8)


def sizes(largest: int) -> st.SearchStrategy[Any]:
    """One number for both axes or a pair."""
    number = st.integers(1, largest)
    return number | st.tuples(number, number)


def arrays(shape: tuple[int, ...], dtype: Any) -> st.SearchStrategy[NDArray[Any]]:
    """Small integers, which every dtype holds and whose sums float64 holds exactly."""
    least = 0 if np.dtype(dtype).kind == "u" else -3
    integers = hnp.arrays(np.int8, shape, elements=st.integers(least, 3))
    return integers.map(lambda values: values.astype(dtype))


@st.composite
def windows_that_fit(
    draw: st.DrawFn, most_padding: int = 2
) -> tuple[tuple[int, int], dict[str, Any]]:
    """An image size, and the arguments of a window with at least one place on it."""
    window = {
        "kernel_size": draw(sizes(3)),
        "stride": draw(sizes(3)),
        "dilation": draw(sizes(2)),
    }
    extent = [
        dilation * (taps - 1) + 1
        for taps, dilation in zip(
            both_axes(window["kernel_size"]), both_axes(window["dilation"]), strict=True
        )
    ]
    down, across = (st.integers(0, min(most_padding, size - 1)) for size in extent)
    both = st.integers(0, min(most_padding, *(size - 1 for size in extent)))
    padding = draw(
        both | st.tuples(down, across) | st.tuples(down, across, down, across)
    )
    top, left, bottom, right = (both_axes(padding) * 2)[:4]
    least = (max(1, extent[0] - top - bottom), max(1, extent[1] - left - right))
    image = (least[0] + draw(st.integers(0, 3)), least[1] + draw(st.integers(0, 3)))
    return image, {**window, "padding": padding}


def both_axes(value: int | tuple[int, ...]) -> tuple[int, ...]:
    """(n, n) of a number, a tuple as it is."""
    return value if isinstance(value, tuple) else (value, value)
