"""Run a computation on SBUF tiles, without writing the loads and stores around it each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator import launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl


def on_tiles(compute: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """Return the result of ``compute`` for the arrays as tiles: an array, or a tuple of arrays."""

    def kernel(*tensors):
        results = compute(*(nl.load(tensor) for tensor in tensors))
        return tuple(
            map(written, results if isinstance(results, tuple) else (results,))
        )

    outputs = launch(kernel, arrays, **options).outputs
    return outputs[0] if len(outputs) == 1 else outputs


def written(tile: Any) -> Any:
    """A tensor in HBM with the tile's elements; a tile in PSUM goes through SBUF."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def in_psum(tile: Any) -> Any:
    """A copy of the tile in PSUM."""
    psum = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.psum)
    psum[...] = nisa.tensor_copy(tile)
    return psum


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Repeatable random values around 0, inexact in the narrow dtypes before they are rounded."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(
    *shape: int, low: int, high: int, dtype: Any, seed: int = 0
) -> np.ndarray[Any, Any]:
    """Repeatable random integers from ``low`` to below ``high``."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)
