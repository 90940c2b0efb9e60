"""Run a computation on SBUF tiles in the current dialect, without its loads and stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl

UNIT = Path(__file__).parents[3]


def on_nki_tiles(compute: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """Return the result of `compute` for the arrays as tiles, by a launch with these options.

    One array, or a tuple of arrays.
    """

    def kernel(*tensors):
        results = compute(*(nl.load(tensor) for tensor in tensors))
        tiles = results if type(results) is tuple else (results,)
        return tuple(stored(tile) for tile in tiles)

    outputs = launch(kernel, arrays, **options).outputs
    return outputs[0] if len(outputs) == 1 else outputs


def stored(tile: Any) -> Any:
    """A tensor in HBM with the tile's elements; a tile in PSUM goes through SBUF."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    if nl.is_psum(tile.buffer):
        moved = nl.ndarray(tile.shape, tile.dtype)
        nisa.tensor_copy(moved, tile)
        tile = moved
    nisa.dma_copy(out, tile)
    return out


def raised(
    kind: type[Exception], compute: Callable[..., Any], *arrays: Any, **options: Any
) -> str:
    """The text of the error of this kind that the computation raises, at a line of a test."""
    with pytest.raises(kind) as caught:
        on_nki_tiles(compute, *arrays, **options)
    error = caught.value
    assert not isinstance(error, NkiError) or Path(error.location.file).is_relative_to(
        UNIT
    )
    return str(error)


def values(*shape: int, seed: int = 0) -> Any:
    """Normal float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tile(shape: Any, dtype: Any = nl.float32, buffer: Any = nl.sbuf) -> Any:
    """A tile of ones."""
    made = nl.ndarray(shape, dtype, buffer=buffer)
    nisa.memset(made, 1)
    return made
