"""Large float64 arrays in temporary files, so that they need little memory.

The system may write the pages of a file to disk and take their memory for other data. An array in
a file is an ordinary array. Who has written or read a part of it calls :func:`release`, which from
time to time removes the array's pages from the memory of this process.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from difftest.support.rounding import Array, Float64

LARGE = 2**26
"""The least bytes of an array in a file."""
_KEPT = 2**24
"""The bytes of an array that may be used before its pages are removed from the memory."""
BLOCK = 2**18
"""The number of elements that a loop over large arrays takes at a time."""
_HAS_FILES = hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")
"""Whether the system can reserve the space of a file. Without it, a full disk ends the process."""


class _Mapping(mmap.mmap):
    """The mapping of a temporary file into the memory of this process.

    Attributes
    ----------
    used : the bytes that were written or read since the pages were last removed.
    """

    used = 0


def zeros(shape: tuple[int, ...]) -> Float64:
    """Return a new float64 array of zeros.

    It is in a temporary file if it is large, and if the system has the space for a file.
    """
    size = math.prod(shape) * np.dtype(np.float64).itemsize
    mapping = _file_mapping(size) if size >= LARGE and _HAS_FILES else None
    if mapping is None:
        return np.zeros(shape)
    return np.ndarray(shape, np.float64, mapping)


def _file_mapping(size: int) -> _Mapping | None:
    """Return the mapping of a new temporary file; None if there is no space for it."""
    try:
        with tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return _Mapping(file.fileno(), size)
    except OSError:  # the array fits into memory, or NumPy says that it does not
        return None


def float64_copy(array: Array) -> Float64:
    """Return a contiguous float64 copy of an array, allocated as :func:`zeros` does."""
    copied = zeros(array.shape)
    for target, source in blocks(copied, array):
        target[...] = source
    return copied


def blocks(*arrays: Array, most: int = BLOCK) -> Iterator[tuple[Array, ...]]:
    """Yield arrays of one shape in blocks, whose temporary values need little memory.

    ``most`` is the largest number of elements of a block.
    """
    if not all(array.flags.c_contiguous for array in arrays):
        yield arrays
        return
    lines = [array.reshape(-1) for array in arrays]
    for first in range(0, arrays[0].size, most):
        block = tuple(line[first : first + most] for line in lines)
        yield block
        for array, part in zip(arrays, block, strict=True):
            release(array, part.nbytes)


def release(array: Array, used: int) -> None:
    """Note that ``used`` bytes of an array were written or read.

    Once they are many, the system may take back the pages of an array in a file.
    """
    if array.nbytes < LARGE:
        return
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, _Mapping):
        return
    base.used += used
    if base.used >= _KEPT:
        base.used = 0
        base.madvise(mmap.MADV_DONTNEED)
