"""The last step of the rungs that compute one row at a time: pool and store a window's rows."""

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.classic.conv2d import windows_last


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
        rows = nisa.tensor_reduce(nl.max, windows_last(rows, pool_size), axis=[3, 4])
    nisa.dma_copy(dst=out[image, o * pmax : (o + 1) * pmax, row : row + 1, :], src=rows)


def add_spread_bias(rows, r, total, offset):
    """Row ``r`` of ``rows``: ``total`` [128, 1, columns] + the bias, copied to that size first."""
    spread = nisa.tensor_copy(offset.broadcast_to(total.shape))
    rows[:, r : r + 1, :] = nisa.tensor_tensor(total, spread, nl.add, dtype=rows.dtype)
