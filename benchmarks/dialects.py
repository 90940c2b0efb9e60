"""Identical kernels in both dialects, for benchmarks of one dialect against the other.

The pairs issue the same instructions on the same tiles. Import this inside ``embedded()``.
"""

import neuronxcc.nki as classic
import neuronxcc.nki.isa as cisa
import neuronxcc.nki.language as cl
import nki
import nki.isa as nisa
import nki.language as nl

TILE_M = 128
TILE_K = 128
TILE_N = 512


@classic.jit
def matmul_classic(lhsT, rhs):
    """lhsT.T @ rhs for lhsT [K, M] and rhs [K, N] in HBM, multiples of the tiles."""
    (K, M), N = lhsT.shape, rhs.shape[1]
    result = cl.ndarray((M, N), dtype=lhsT.dtype, buffer=cl.shared_hbm)
    for m in cl.affine_range(M // TILE_M):
        rows = slice(m * TILE_M, (m + 1) * TILE_M)
        for n in cl.affine_range(N // TILE_N):
            columns = slice(n * TILE_N, (n + 1) * TILE_N)
            total = cl.zeros((TILE_M, TILE_N), cl.float32, buffer=cl.psum)
            for k in cl.affine_range(K // TILE_K):
                depth = slice(k * TILE_K, (k + 1) * TILE_K)
                left = cl.ndarray((TILE_K, TILE_M), dtype=lhsT.dtype, buffer=cl.sbuf)
                right = cl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=cl.sbuf)
                cisa.dma_copy(dst=left, src=lhsT[depth, rows])
                cisa.dma_copy(dst=right, src=rhs[depth, columns])
                total += cisa.nc_matmul(left, right)
            cisa.dma_copy(
                dst=result[rows, columns], src=cl.copy(total, dtype=lhsT.dtype)
            )
    return result


@nki.jit
def matmul_today(lhsT, rhs):
    """As :func:`matmul_classic`."""
    (K, M), N = lhsT.shape, rhs.shape[1]
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(M // TILE_M):
        rows = slice(m * TILE_M, (m + 1) * TILE_M)
        for n in nl.affine_range(N // TILE_N):
            columns = slice(n * TILE_N, (n + 1) * TILE_N)
            total = nl.ndarray((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // TILE_K):
                depth = slice(k * TILE_K, (k + 1) * TILE_K)
                left = nl.ndarray((TILE_K, TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=lhsT[depth, rows])
                nisa.dma_copy(dst=right, src=rhs[depth, columns])
                nisa.nc_matmul(total, left, right)
            rounded = nl.ndarray((TILE_M, TILE_N), lhsT.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(rounded, total)
            nisa.dma_copy(dst=result[rows, columns], src=rounded)
    return result


@classic.jit
def conv_classic(image, filters, ROWS=8):
    """A convolution of image [C, H, W] with filters [FH, FW, C, K], C and K at most 128.

    The rows of the result are a multiple of ROWS. Returns [K, H - FH + 1, W - FW + 1].
    """
    (C, H, W), (FH, FW, _, K) = image.shape, filters.shape
    height = H - FH + 1
    width = W - FW + 1
    result = cl.ndarray((K, height, width), dtype=image.dtype, buffer=cl.shared_hbm)
    x = cl.ndarray((C, H, W), dtype=image.dtype, buffer=cl.sbuf)
    w = cl.ndarray((C, FH, FW, K), dtype=image.dtype, buffer=cl.sbuf)
    cisa.dma_copy(dst=x, src=image)
    for i in range(FH):
        for j in range(FW):
            cisa.dma_copy(dst=w[:, i, j, :], src=filters[i, j])
    for r in cl.affine_range(height // ROWS):
        total = cl.zeros((K, ROWS, width), cl.float32, buffer=cl.psum)
        for i in range(FH):
            for j in range(FW):
                top = r * ROWS + i
                total += cisa.nc_matmul(
                    w[:, i, j, :], x[:, top : top + ROWS, j : j + width]
                )
        rows = slice(r * ROWS, (r + 1) * ROWS)
        cisa.dma_copy(dst=result[:, rows, :], src=cl.copy(total, dtype=image.dtype))
    return result


@nki.jit
def conv_today(image, filters, ROWS=8):
    """As :func:`conv_classic`."""
    (C, H, W), (FH, FW, _, K) = image.shape, filters.shape
    height = H - FH + 1
    width = W - FW + 1
    result = nl.ndarray((K, height, width), dtype=image.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray((C, H, W), dtype=image.dtype, buffer=nl.sbuf)
    w = nl.ndarray((C, FH, FW, K), dtype=image.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=image)
    for i in range(FH):
        for j in range(FW):
            nisa.dma_copy(dst=w[:, i, j, :], src=filters[i, j])
    for r in nl.affine_range(height // ROWS):
        total = nl.ndarray((K, ROWS, width), nl.float32, buffer=nl.psum)
        for i in range(FH):
            for j in range(FW):
                top = r * ROWS + i
                moving = x[:, top : top + ROWS, j : j + width]
                nisa.nc_matmul(total, w[:, i, j, :], moving)
        rounded = nl.ndarray((K, ROWS, width), image.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(rounded, total)
        nisa.dma_copy(dst=result[:, r * ROWS : (r + 1) * ROWS, :], src=rounded)
    return result
