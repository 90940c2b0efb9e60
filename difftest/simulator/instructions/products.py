"""Matrix products in float32 whose elements do not depend on their place.

An array of processing elements computes all columns in the same way, so equal columns of an operand
give equal columns of the product. BLAS does not: the order of its additions depends on the row, the
column and the size of the product. So the operands are padded until each element goes through the
same inner loop.

The right padding depends on the processor. The first product of a process tries all of
:data:`PADDINGS`, and takes the first padding whose samples are independent of the place. Otherwise
NumPy adds the terms itself.

The padding repeats a column of the operand: zeros times an infinity would give NaN.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.machine import TRN2


class Padding(NamedTuple):
    """A padding of the operands of one BLAS product.

    Attributes
    ----------
    margin : columns on either side of the moving operand.
    columns : the number of columns is padded to a multiple of this.
    rows : the number of rows of the product is padded to a multiple of this.
    widest : the most columns of one product, without its margins; wider ones are split.
    """

    margin: int
    columns: int
    rows: int
    widest: int


PADDINGS = (Padding(0, 1, 1, 2**12), Padding(8, 16, 12, 2**8))
"""The first fits OpenBLAS's kernels for AVX-512 and AVX.

In its kernels for AVX2 (Haswell, Zen), the first and the last 8 columns of a block add in another
order. So do rows beyond a multiple of 12. Products of more than 384 columns have several blocks.
Measured with OpenBLAS 0.3.23 and 0.3.34, on one thread.
"""

DEEPEST = TRN2.partitions
"""The deepest single product. BLAS splits deeper ones at a depth that depends on their width."""

_PERIOD = 5
"""The number of different columns in the samples. It is not a period of BLAS's inner loops."""
_ROWS = TRN2.gemm_stationary_fmax
_COLUMNS = TRN2.gemm_moving_fmax
_FEW = ((_ROWS, _COLUMNS), (127, 257), (37, 48), (12, 200), (_ROWS, 1))
_MORE = (
    (_ROWS, 500),
    (5, _COLUMNS),
    (100, 100),
    (_ROWS, 16),
    (2, 130),
    (1, 96),
    (30, 5),
    (1, 1),
)
_SAMPLES = {DEEPEST: _FEW + _MORE, 61: _FEW}
"""The sizes [M, N] of sample products, by depth: full tiles, remainders of each size, vectors."""


def product(left: Array, right: Array, out: Array | None = None) -> Array:
    """Return ``left.T @ right`` of [K, M] and [K, N] in float32.

    Each element depends only on its row of ``left.T`` and its column of ``right``.
    """
    if out is None:
        out = np.empty((left.shape[1], right.shape[1]), np.float32)
    _multiply(left[:DEEPEST], right[:DEEPEST], out)
    for first in range(DEEPEST, len(left), DEEPEST):
        rest = slice(first, first + DEEPEST)
        part = np.empty(out.shape, np.float32)
        _multiply(left[rest], right[rest], part)
        out += part
    return out


def _multiply(left: Array, right: Array, out: Array) -> None:
    """Write ``left.T @ right`` to ``out``."""
    padding = chosen_padding()
    if padding is None:
        added_in_order(left, right, out)
    else:
        padded_product(padding, left, right, out)


@functools.cache
def chosen_padding() -> Padding | None:
    """Return the first padding for which BLAS computes all elements in the same way, or None."""
    return next((padding for padding in PADDINGS if is_uniform(padding)), None)


def is_uniform(padding: Padding) -> bool:
    """Return whether sample products with a padding depend on the operands' contents alone."""
    random = np.random.default_rng(0)
    for depth, sizes in _SAMPLES.items():
        different = random.standard_normal((2, depth, _PERIOD)).astype(np.float32)
        left, right = np.tile(different, _COLUMNS // _PERIOD + 1)
        wanted: Array | None = None
        for rows, columns in sizes:
            got = np.empty((rows, columns), np.float32)
            padded_product(padding, left[:, :rows], right[:, :columns], got)
            if wanted is None:
                wanted = np.tile(
                    got[:_PERIOD, :_PERIOD],
                    (rows // _PERIOD + 1, columns // _PERIOD + 1),
                )
            if not np.array_equal(got, wanted[:rows, :columns]):
                return False
    return True


def padded_product(padding: Padding, left: Array, right: Array, out: Array) -> None:
    """Write ``left.T @ right`` to ``out``, computed by BLAS with a padding."""
    rows, columns = out.shape
    stationary = _padded(left, 0, _at_least_two(rows, padding.rows))
    for first in range(0, columns, padding.widest):
        part = right[:, first : first + padding.widest]
        count = part.shape[1]
        width = _at_least_two(count, padding.columns) + 2 * padding.margin
        moving = _padded(part, padding.margin, width)
        target = out[:, first : first + count]
        if stationary.shape[1] == rows and width == count:
            np.matmul(stationary.T, moving, out=target)
        else:
            whole = np.matmul(stationary.T, moving)
            target[...] = whole[:rows, padding.margin : padding.margin + count]


def added_in_order(left: Array, right: Array, out: Array) -> None:
    """Write ``left.T @ right`` to ``out``; NumPy adds the terms of each element in order.

    That takes about five times as long as BLAS. A product of one column gets a second column:
    NumPy adds the terms of a single element in another order.
    """
    if right.shape[1] > 1:
        np.einsum(
            "km,kn->mn",
            np.ascontiguousarray(left),
            np.ascontiguousarray(right),
            out=out,
        )
        return
    wide = np.einsum("km,kn->mn", np.ascontiguousarray(left), _padded(right, 0, 2))
    out[...] = wide[:, :1]


def _at_least_two(count: int, multiple: int) -> int:
    """Return the size that a padding pads to. A product of one row or column is BLAS's ``gemv``."""
    return max(-(-count // multiple) * multiple, 2)


def _padded(array: Array, before: int, width: int) -> Array:
    """Return a contiguous array of ``width`` columns: the first and the last one are repeated."""
    after = before + array.shape[1]
    if array.shape[1] == width:
        return np.ascontiguousarray(array)
    wide = np.empty((len(array), width), np.float32)
    wide[:, :before] = array[:, :1]
    wide[:, before:after] = array
    wide[:, after:] = array[:, -1:]
    return wide
