"""Four correct kernels: :mod:`tests.meta.ten_bugs` plants common errors in them."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def doubled(x, bias):
    """``2 * x + bias``, with one bias for each row."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, 128):
        count = min(128, rows - first)
        here = slice(first, first + count)
        tile = nl.ndarray((count, columns), dtype=x.dtype, buffer=nl.sbuf)
        added = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[here, :])
        nisa.dma_copy(dst=added, src=bias[here, :])
        nisa.tensor_scalar(
            dst=tile,
            data=tile,
            op0=nl.multiply,
            operand0=2.0,
            op1=nl.add,
            operand1=added,
        )
        nisa.dma_copy(dst=out[here, :], src=tile)
    return out


@nki.jit
def row_sums(x):
    """The sum of each row, 512 columns at a time."""
    rows, columns = x.shape
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for first in range(0, columns, 512):
        count = min(512, columns - first)
        tile = nl.ndarray((rows, count), dtype=x.dtype, buffer=nl.sbuf)
        part = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, first : first + count])
        nisa.tensor_reduce(dst=part, data=tile, op=nl.add, axis=1)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def product(lhsT, rhs):
    """``lhsT.T @ rhs``, 128 terms at a time."""
    terms, rows = lhsT.shape
    columns = rhs.shape[1]
    bank = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    for first in range(0, terms, 128):
        count = min(128, terms - first)
        left = nl.ndarray((count, rows), dtype=lhsT.dtype, buffer=nl.sbuf)
        right = nl.ndarray((count, columns), dtype=rhs.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=lhsT[first : first + count, :])
        nisa.dma_copy(dst=right, src=rhs[first : first + count, :])
        nisa.nc_matmul(dst=bank, stationary=left, moving=right, accumulate=first > 0)
    copy = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=copy, src=bank)
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=copy)
    return out
