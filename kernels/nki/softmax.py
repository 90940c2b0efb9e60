"""Softmax of the rows of a matrix."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load


@nki.jit
def softmax_rows(x):
    """exp(x) over its sum along each row.

    Dimensions:
        T: rows, any number
        N: elements of a row; two tiles of 128 rows of it fit SBUF, in float32

    Args:
        x: [T, N] in HBM; float32, float16 or bfloat16

    Returns:
        [T, N] in HBM, dtype of x

    Pseudocode:
        for each 128 rows: out = exp(x - max(x)) / sum(exp(x - max(x)))
    """
    T, N = x.shape
    out = nl.ndarray((T, N), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, T, nl.tile_size.pmax):
        rows = slice(first, min(first + nl.tile_size.pmax, T))
        tile = load(x[rows, :])
        powers, total = exponentials(tile)
        share = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=share, data=powers, op0=nl.multiply, operand0=reciprocal_of(total)
        )
        nisa.dma_copy(dst=out[rows, :], src=share)
    return out


def exponentials(tile):
    """exp(tile - its rows' largest elements) and the sums of its rows: SBUF, float32."""
    rows = tile.shape[0]
    negated = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=negated, op=nl.maximum, data=tile, axis=1, negate=True)
    powers = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=powers,
        op=nl.exp,
        data=tile,
        bias=negated,
        reduce_op=nl.add,
        reduce_res=total,
    )
    return powers, total


def reciprocal_of(column):
    """1 / column, in SBUF."""
    inverse = nl.ndarray(column.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=inverse, data=column)
    return inverse
