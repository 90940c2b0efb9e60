"""Values on their way through an engine: as float32, and as columns that broadcast."""

from __future__ import annotations

import numpy as np

from difftest.simulator.dtypes import FLOAT32, Array


def as_float(values: Array) -> Array:
    """On-chip elements as the float32 that arithmetic works in."""
    return values if values.dtype == FLOAT32 else values.astype(np.float32)


def column(vector: Array, ndim: int) -> Array:
    """A vector with one element in each partition, shaped to broadcast against ``ndim`` axes."""
    return vector if vector.ndim == ndim else vector.reshape(vector.shape[:1] + (1,) * (ndim - 1))


def rows(values: Array) -> Array:
    """The free axes as one: [partitions, elements]."""
    return values if values.ndim == 2 else values.reshape(values.shape[0], -1)
