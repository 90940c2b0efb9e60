"""The last step of the rungs that compute one row at a time: pool and store a window's rows."""

import nki.isa as nisa
import nki.language as nl

from kernels.nki.conv2d import pool


def new_rows(out, pool_size):
    """SBUF for the convolution's rows that become one row of ``out``, rounded, bias included.

    A maximum commutes with rounding, so that the rows may have the output's dtype already.
    """
    shape = (nl.tile_size.pmax, pool_size, out.shape[3] * pool_size)
    return nl.ndarray(shape, dtype=out.dtype, buffer=nl.sbuf)


def store_pooled(out, image, o, row, rows):
    """Pool ``rows`` [128, pool_size, columns] and store them as one row of ``out``."""
    pmax = nl.tile_size.pmax
    pool_size = rows.shape[1]
    if pool_size > 1:
        rows = pool(rows, pool_size)
    nisa.dma_copy(dst=out[image, o * pmax : (o + 1) * pmax, row : row + 1, :], src=rows)


def add_spread_bias(rows, r, total, offset):
    """Row ``r`` of ``rows``: ``total`` [128, 1, columns] + the bias, copied to that size first."""
    spread = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=spread, src=offset.expand_dim(2).broadcast(2, total.shape[2]))
    nisa.tensor_tensor(dst=rows[:, r : r + 1, :], data1=total, data2=spread, op=nl.add)
