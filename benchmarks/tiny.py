"""Kernels of very many very small instructions, in both dialects."""

import neuronxcc.nki as classic
import neuronxcc.nki.language as cl
import nki
import nki.isa as nisa
import nki.language as nl

COLUMNS = 256
CHAIN = 98


@classic.jit
def loads(x):
    """Load one element at a time, as a beginner's first kernel does."""
    rows, columns = x.shape
    out = cl.ndarray((rows, columns), dtype=x.dtype, buffer=cl.shared_hbm)
    tile = cl.ndarray((cl.par_dim(1), rows * columns), dtype=x.dtype, buffer=cl.sbuf)
    for i in range(rows):
        for j in range(columns):
            at = i * columns + j
            tile[0:1, at : at + 1] = cl.load(x[i : i + 1, j : j + 1])
    for i in range(rows):
        cl.store(out[i : i + 1, 0:columns], tile[0:1, i * columns : (i + 1) * columns])
    return out


@classic.jit
def additions(x, count):
    """Chains of additions to tiles of four elements."""
    out = cl.ndarray(x.shape, dtype=x.dtype, buffer=cl.shared_hbm)
    for _ in range(count // (CHAIN + 2)):
        tile = cl.load(x)
        for _ in range(CHAIN):
            tile = cl.add(tile, 1.0)
        cl.store(out, tile)
    return out


@nki.jit
def todays_additions(x, count):
    """Load one element at a time, in the current dialect."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in range(count // (CHAIN + 2)):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        for _ in range(CHAIN):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out, src=tile)
    return out


@classic.jit
def products(x, count):
    """Small products, each with its PSUM tile and the copy out of it."""
    out = cl.ndarray(x.shape, dtype=x.dtype, buffer=cl.shared_hbm)
    tile = cl.load(x)
    for _ in range(count // 2):
        total = cl.matmul(tile, tile, transpose_x=True)
        result = cl.copy(total)
    cl.store(out, result)
    return out


@nki.jit
def todays_products(x, count):
    """Small products into one PSUM tile, each added to those before."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    total = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=tile, src=x)
    for _ in range(count):
        nisa.nc_matmul(total, tile, tile)
    nisa.tensor_copy(dst=tile, src=total)
    nisa.dma_copy(dst=out, src=tile)
    return out
