"""Elementwise kernels of large tiles, and the same steps on bare arrays.

The kernels take their output as an argument, as triton-viz needs it, and are undecorated: each
peer runs the same functions.
"""

import neuronxcc.nki.language as nl
import numpy as np

ROWS = 128


def add(a, b, out):
    """out = a + b, in tiles of 128 rows."""
    rows, columns = a.shape
    for first in nl.affine_range(rows // 128):
        left = nl.load(a[first * 128 : (first + 1) * 128, 0:columns])
        right = nl.load(b[first * 128 : (first + 1) * 128, 0:columns])
        nl.store(out[first * 128 : (first + 1) * 128, 0:columns], left + right)


def softmax(x, out):
    """out = exp(x) over the sum along each row, in tiles of 128 rows."""
    rows, columns = x.shape
    for first in nl.affine_range(rows // 128):
        tile = nl.load(x[first * 128 : (first + 1) * 128, 0:columns])
        powers = nl.exp(tile)
        total = nl.sum(powers, axis=1, keepdims=True)
        nl.store(out[first * 128 : (first + 1) * 128, 0:columns], powers / total)


def update(row, out):
    """out[3] = row."""
    nl.store(out[3:4, 0 : out.shape[1]], nl.load(row))


def bare_add(a, b, out):
    """Do the steps of ``add`` on arrays."""
    for first in range(0, len(a), ROWS):
        rows = slice(first, first + ROWS)
        left = a[rows].copy()
        right = b[rows].copy()
        out[rows] = left + right


def bare_softmax(x, out):
    """Do the steps of ``softmax`` on arrays, with NumPy's pairwise sums."""
    for first in range(0, len(x), ROWS):
        rows = slice(first, first + ROWS)
        powers = np.exp(x[rows].copy())
        total = powers.sum(axis=1, keepdims=True)
        out[rows] = powers / total


def bare_softmax_in_order(x, out):
    """Do the steps of ``softmax`` with sums in the engines' order."""
    for first in range(0, len(x), ROWS):
        rows = slice(first, first + ROWS)
        powers = np.exp(x[rows].copy())
        total = -np.subtract.reduce(powers, axis=1, initial=0, keepdims=True)
        out[rows] = powers / total
