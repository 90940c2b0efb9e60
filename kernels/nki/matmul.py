"""Tiled matrix multiplication on the Tensor Engine."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load


@nki.jit
def nki_matmul_tiled_(lhsT, rhs, result, TILE_M=128, TILE_K=128, TILE_N=512):
    """result = lhsT.T @ rhs, one PSUM tile of the result at a time.

    Dimensions:
        K: contraction, a multiple of TILE_K (at most 128)
        M: rows of the result, a multiple of TILE_M (at most 128)
        N: columns of the result, a multiple of TILE_N (at most 512)

    Args:
        lhsT: [K, M] in HBM, the left operand transposed
        rhs: [K, N] in HBM
        result: [M, N] in HBM, written; its dtype is the output's
        TILE_M, TILE_K, TILE_N: tile sizes; the defaults are the Tensor Engine's limits

    Returns:
        result

    Pseudocode:
        for each tile (m, n): accumulate lhsT[k, m].T @ rhs[k, n] over k in PSUM, in float32;
        round it once into the result's dtype and store it
    """
    K, M = lhsT.shape
    K_, N = rhs.shape
    assert K == K_, f"lhsT and rhs contract over different sizes: {K} and {K_}"
    assert result.shape == (M, N), f"result has shape {result.shape}, not {(M, N)}"
    assert M % TILE_M == 0, f"M={M} is not a multiple of TILE_M={TILE_M}"
    assert K % TILE_K == 0, f"K={K} is not a multiple of TILE_K={TILE_K}"
    assert N % TILE_N == 0, f"N={N} is not a multiple of TILE_N={TILE_N}"

    for m in range(M // TILE_M):
        for n in range(N // TILE_N):
            rows = slice(m * TILE_M, (m + 1) * TILE_M)
            columns = slice(n * TILE_N, (n + 1) * TILE_N)
            total = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)

            for k in range(K // TILE_K):
                depth = slice(k * TILE_K, (k + 1) * TILE_K)
                lhsT_tile, rhs_tile = load(lhsT[depth, rows]), load(rhs[depth, columns])
                nisa.nc_matmul(
                    dst=total, stationary=lhsT_tile, moving=rhs_tile, accumulate=k > 0
                )

            rounded = nl.ndarray(total.shape, dtype=result.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=rounded, src=total)
            nisa.dma_copy(dst=result[rows, columns], src=rounded)
    return result
