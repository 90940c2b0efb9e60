"""Matrix transpose on the Tensor Engine, tile by tile."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.compiler.skip_middle_end_transformations
@nki.jit
def matrix_transpose(a_tensor):
    """Transpose a matrix in 128 x 128 tiles; nc_transpose is the only compute instruction.

    Dimensions:
        M, N: rows and columns, each a multiple of 128 (nl.tile_size.pmax)

    Args:
        a_tensor: [M, N] in HBM

    Returns:
        [N, M] in HBM

    Pseudocode:
        for each 128 x 128 tile at (i, j): out[j, i] = a_tensor[i, j].T
    """
    M, N = a_tensor.shape
    tile = nl.tile_size.pmax
    assert M % tile == N % tile == 0, f"matrix_transpose takes multiples of {tile}, got {M} x {N}"
    out = nl.ndarray((N, M), dtype=a_tensor.dtype, buffer=nl.shared_hbm)

    for i in nl.affine_range(M // tile):
        for j in nl.affine_range(N // tile):
            rows = slice(i * tile, (i + 1) * tile)
            columns = slice(j * tile, (j + 1) * tile)
            block = nl.ndarray((tile, tile), dtype=a_tensor.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=block, src=a_tensor[rows, columns])
            turned = nisa.tensor_copy(nisa.nc_transpose(block))
            nisa.dma_copy(dst=out[columns, rows], src=turned)
    return out
