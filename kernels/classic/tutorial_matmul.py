"""Matrix multiplication with the loads moved outward: two steps of AWS's optimization guide.

Written from its description ("Introduction to NKI Kernel Optimization", AWS Neuron documentation,
guides/tutorials/kernel-optimization.rst), which measured each step on trn2 in float32:
`kernels.classic.matmul.nki_matmul_tiled_` is its version 2, these are its versions 3 and 5.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.compiler.skip_middle_end_transformations
@nki.jit
def matmul_hoisted(lhsT, rhs):
    """lhsT.T @ rhs, the tiles of a column of either operand loaded before the products.

    Dimensions:
        K, M: contraction and rows of the result, multiples of 128
        N: columns of the result, a multiple of 512

    Args:
        lhsT: [K, M] in HBM, the left operand transposed
        rhs: [K, N] in HBM

    Returns:
        [M, N] in HBM, float32

    Pseudocode:
        for each 128 rows m: load lhsT[:, m]
            for each 512 columns n: load rhs[:, n]
                store the sum over k of lhsT[k, m].T @ rhs[k, n]
    """
    K, M, N = contracted(lhsT, rhs)
    rows, columns = nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax
    assert M % rows == N % columns == 0, (
        f"M={M} is not a multiple of {rows} or N={N} of {columns}"
    )
    result = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)

    for m in nl.affine_range(M // rows):
        stationary = load_column(lhsT, m * rows, rows)
        for n in nl.affine_range(N // columns):
            moving = load_column(rhs, n * columns, columns)
            total = nl.zeros((rows, columns), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(K // nl.tile_size.pmax):
                total += nisa.nc_matmul(stationary[k], moving[k])
            nisa.dma_copy(
                dst=result[m * rows : (m + 1) * rows, n * columns : (n + 1) * columns],
                src=nisa.tensor_copy(total),
            )
    return result


@nki.compiler.skip_middle_end_transformations
@nki.jit
def matmul_blocked(lhsT, rhs, M_TILES=16, N_TILES=2, K_TILES=8):
    """lhsT.T @ rhs in blocks of tiles in all three dimensions.

    Dimensions:
        M: rows of the result, a multiple of 128 * M_TILES
        N: columns of the result, a multiple of 512 * N_TILES
        K: contraction, a multiple of 128 * K_TILES

    Args:
        lhsT: [K, M] in HBM, the left operand transposed
        rhs: [K, N] in HBM
        M_TILES, N_TILES, K_TILES: tiles in a block

    Returns:
        [M, N] in HBM, float32

    Notes:
        - The sums of a block's products leave PSUM once for every K block and are added in SBUF.
        - A DMA moves 128 rows of a block, of 4 KiB or more in float32.

    Pseudocode:
        for each block of columns n: totals = 0
            for each block of the contraction k: load rhs[k, n]
                for each block of rows m: load lhsT[k, m]; totals[m] += lhsT[k, m].T @ rhs[k, n]
            store totals
    """
    K, M, N = contracted(lhsT, rhs)
    pmax = nl.tile_size.pmax
    rows, columns = nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax
    block_rows, block_columns, depth = M_TILES * rows, N_TILES * columns, K_TILES * pmax
    for name, size, block in (
        ("M", M, block_rows),
        ("N", N, block_columns),
        ("K", K, depth),
    ):
        assert size % block == 0, (
            f"{name}={size} is not a multiple of its block, {block}"
        )
    result = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)

    for n in nl.affine_range(N // block_columns):
        totals = [
            nl.zeros((rows, block_columns), nl.float32, buffer=nl.sbuf)
            for _ in range(M // rows)
        ]
        for k in nl.sequential_range(K // depth):
            moving = load_column(
                rhs, n * block_columns, block_columns, k * depth, K_TILES
            )
            for m in nl.affine_range(M // block_rows):
                stationary = load_column(
                    lhsT, m * block_rows, block_rows, k * depth, K_TILES
                )
                add_block(totals[m * M_TILES : (m + 1) * M_TILES], stationary, moving)
        for m in nl.affine_range(M // rows):
            nisa.dma_copy(
                dst=result[
                    m * rows : (m + 1) * rows,
                    n * block_columns : (n + 1) * block_columns,
                ],
                src=nisa.tensor_copy(totals[m]),
            )
    return result


def contracted(lhsT, rhs):
    """K, M and N of the operands, which contract over one K, a multiple of 128."""
    (K, M), (K_, N) = lhsT.shape, rhs.shape
    assert K == K_, f"lhsT and rhs contract over different sizes: {K} and {K_}"
    assert K % nl.tile_size.pmax == 0, f"K={K} is not a multiple of {nl.tile_size.pmax}"
    return K, M, N


def load_column(matrix, first, width, top=0, tiles=None):
    """Columns ``first`` to ``first + width``, from row ``top``: SBUF tiles of 128 rows each."""
    pmax = nl.tile_size.pmax
    loaded = []
    for k in range(tiles or matrix.shape[0] // pmax):
        tile = nl.ndarray((pmax, width), dtype=matrix.dtype, buffer=nl.sbuf)
        depth = slice(top + k * pmax, top + (k + 1) * pmax)
        nisa.dma_copy(dst=tile, src=matrix[depth, first : first + width])
        loaded.append(tile)
    return loaded


def add_block(totals, stationary, moving):
    """Add a block of products to ``totals``, one [128, columns] tile in SBUF for each 128 rows."""
    rows, columns = nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax
    for m, total in enumerate(totals):
        for first in range(0, total.shape[1], columns):
            place = slice(first, first + columns)
            product = nl.zeros((rows, columns), nl.float32, buffer=nl.psum)
            for left, right in zip(stationary, moving, strict=True):
                product += nisa.nc_matmul(
                    left[:, m * rows : (m + 1) * rows], right[:, place]
                )
            total[:, place] = nisa.tensor_tensor(total[:, place], product, nl.add)
