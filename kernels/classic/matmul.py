"""Tiled matrix multiplication on the Tensor Engine."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt


@nki.compiler.skip_middle_end_transformations
@nki.jit
def nki_matmul_tiled_(
    lhsT, rhs, result: nt.mutable_tensor, TILE_M=128, TILE_K=128, TILE_N=512
):
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
    for name, size, tile in (("M", M, TILE_M), ("K", K, TILE_K), ("N", N, TILE_N)):
        assert size % tile == 0, (
            f"{name}={size} is not a multiple of TILE_{name}={tile}"
        )

    for m in nl.affine_range(M // TILE_M):
        for n in nl.affine_range(N // TILE_N):
            rows = slice(m * TILE_M, (m + 1) * TILE_M)
            columns = slice(n * TILE_N, (n + 1) * TILE_N)
            total = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)

            for k in nl.affine_range(K // TILE_K):
                depth = slice(k * TILE_K, (k + 1) * TILE_K)
                lhsT_tile = nl.ndarray(
                    (TILE_K, TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf
                )
                rhs_tile = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=lhsT_tile, src=lhsT[depth, rows])
                nisa.dma_copy(dst=rhs_tile, src=rhs[depth, columns])
                total += nisa.nc_matmul(lhsT_tile, rhs_tile)

            rounded = nl.copy(total, dtype=result.dtype)
            nisa.dma_copy(dst=result[rows, columns], src=rounded)
    return result
